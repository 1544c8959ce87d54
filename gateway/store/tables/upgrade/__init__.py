"""How the tables of earlier releases become those of this one."""
