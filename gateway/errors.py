"""The errors that end a gateway before or while it starts.

::

    GatewayError          the command's exit code is 1 where the cause may pass by itself, else 2
    ├── ConfigError       the configuration file cannot be used
    ├── ListenError       a listener cannot be opened
    └── StoreError        the message store cannot be opened
"""

import errno
import sqlite3
import ssl

LASTING = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
"""Errors of the system that say that a path or an address is wrong; each other one may pass."""
PASSING = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
)
"""Errors of SQLite that may pass."""
ADVICE = "; `holdfast gateway repair` saves what can be read"


class GatewayError(Exception):
    """The gateway cannot run; the text says why, and names the file, listener or folder.

    Args:
        text: what is wrong.
        may_pass: whether it may be right at a later start without anybody's work. An error whose cause is one of the
            system, or of SQLite, knows by that.
    """

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        super().__init__(text)
        self._may_pass = may_pass

    @property
    def may_pass(self) -> bool:
        """Whether a later start may succeed with the same configuration and the same store."""
        return self._may_pass or may_pass(self.__cause__)


class ConfigError(GatewayError):
    """The configuration file cannot be used; the text names file, key and what was expected."""


class ListenError(GatewayError):
    """A listener cannot be opened; the text names its address."""


class StoreError(GatewayError):
    """The message store cannot be opened; the text names its folder."""


def damaged_page(text: str) -> sqlite3.DatabaseError:
    """Returns the error that SQLite would raise, had it noticed that a page is damaged."""
    error = sqlite3.DatabaseError(text)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite says that its file is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_lock(error: BaseException) -> bool:
    """Whether an error of SQLite says that another process has locked its file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def may_pass(error: BaseException | None) -> bool:
    """Whether an error may pass by itself: a disk that is full, fails, is read-only or is not mounted yet, an address
    that is not up yet, a port or a store that another process holds for a moment.
    """
    if isinstance(error, GatewayError):
        return error.may_pass
    if isinstance(error, OSError):
        return not isinstance(error, ssl.SSLError) and error.errno not in LASTING
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in PASSING


def advice_on(error: Exception) -> str:
    """Returns the advice that follows the text of an error of SQLite; "" where no command helps."""
    return ADVICE if is_damage(error) or "no such table" in str(error) else ""
