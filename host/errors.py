"""The errors of a program that cannot use something of its machine.

::

    HostError             the command's exit code is 1 where the cause may pass by itself, else 2
    └── ConfigError       what a configuration or an option says cannot be used
"""

import errno
import ssl

LASTING = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
"""Errors of the system that say that a path or an address is wrong; each other one may pass."""


class HostError(Exception):
    """The program cannot run; the text says why, and names the file, the address or the folder.

    Args:
        text: what is wrong.
        may_pass: whether it may be right at a later start without anybody's work. An error whose cause is one of the
            system knows by that.
    """

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        super().__init__(text)
        self._may_pass = may_pass

    @property
    def may_pass(self) -> bool:
        """Whether a later start may succeed with the same configuration: a disk that fails, is full or is not mounted
        yet, an address that is not up yet, a port that another process holds for a moment.
        """
        cause = self.__cause__
        if isinstance(cause, HostError):
            return self._may_pass or cause.may_pass
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):
            return self._may_pass or cause.errno not in LASTING
        return self._may_pass


class ConfigError(HostError):
    """A configuration or an option cannot be used; the text names the file, the key and what was expected."""
