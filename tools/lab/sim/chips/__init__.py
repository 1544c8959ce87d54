"""Chips as their datasheets describe them, to be wired to a simulated board."""
