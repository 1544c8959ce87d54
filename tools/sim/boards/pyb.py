"""`pyb` of a simulated STM32 board: only that its flash object can be told from others."""


class Flash:
    """The internal flash behind its cache."""
