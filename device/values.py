"""A configuration in use, and the error of one that cannot be used."""


class ConfigError(Exception):
    """The configuration cannot be used; the text names the key and what was expected."""


class Values:
    """A checked configuration, with an attribute for each key.

    It needs none of the code that checked it, which leaves the heap.
    """

    until = None
    """The classes of the log, publisher and session of a device that keeps messages until a receipt."""
