"""The errors that end a gateway before or while it starts.

::

    GatewayError          the command's exit code is 2, or 1 where the disk is full or fails
    ├── ConfigError       the configuration file cannot be used
    ├── ListenError       a listener cannot be opened
    └── StoreError        the message store cannot be opened
"""

import errno
import sqlite3

ADVICE = "; `holdfast gateway repair` saves what can be read"


class GatewayError(Exception):
    """The gateway cannot run; the text says why, and names the file, listener or folder."""


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


def is_disk_trouble(error: BaseException | None) -> bool:
    """Whether an error of SQLite or of the system says that the disk is full or fails; either may pass by itself."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def advice_on(error: Exception) -> str:
    """Returns the advice that follows the text of an error of SQLite; "" where no command helps."""
    return ADVICE if is_damage(error) or "no such table" in str(error) else ""
