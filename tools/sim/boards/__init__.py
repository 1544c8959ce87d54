"""Modules of boards as simulations: with this folder first on the import path they stand in for the board's own."""
