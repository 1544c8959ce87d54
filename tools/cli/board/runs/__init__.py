"""Runs of `holdfast flash`: all is checked that can be without a board, and then one board or many get it."""
