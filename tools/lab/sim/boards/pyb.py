"""`pyb` of a simulated STM32 board: only the class of its flash, which a store must recognize."""


class Flash:
    """The internal flash, with MicroPython's cache."""
