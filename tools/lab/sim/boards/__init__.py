"""Simulations of modules that only boards have. A program imports them if this folder is first on its import path."""
