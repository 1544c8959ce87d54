"""Looks after the tables and the landing files: keeps them small, forgets devices, checks them, makes them anew."""
