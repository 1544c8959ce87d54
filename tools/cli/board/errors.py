"""How flashing ends that cannot be done."""


class BoardError(Exception):
    """Something went wrong at the board: a cable, a port, a program that does not answer. Exit code 1."""


class Refused(Exception):
    """What the user gave does not fit the board, or would lose something. Nothing was written. Exit code 2."""
