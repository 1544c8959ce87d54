"""What can be wrong with a device before it has started."""


class ConfigError(Exception):
    """The configuration cannot be used; the text names the key and what was expected."""
