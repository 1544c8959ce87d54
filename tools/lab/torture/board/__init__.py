"""Boards whose cable, power or program ends while `holdfast flash` writes them."""
