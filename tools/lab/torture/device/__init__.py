"""Devices whose power, line and broker are cut; their messages are counted at the end."""
