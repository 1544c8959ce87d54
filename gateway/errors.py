"""What ends a gateway before or while it starts.

::

    GatewayError          the command's exit code is 2
    ├── ConfigError       the configuration file cannot be used
    ├── ListenError       a listener cannot be opened
    └── StoreError        the message store cannot be opened
"""


class GatewayError(Exception):
    """The gateway cannot run; the text names what and where."""

    exit_code = 2


class ConfigError(GatewayError):
    """The configuration file cannot be used; the text names file, key and what was expected."""


class ListenError(GatewayError):
    """A listener cannot be opened; the text names its address."""


class StoreError(GatewayError):
    """The message store cannot be opened; the text names its folder."""
