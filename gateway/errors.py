"""The errors that end a gateway before or while it starts, beside those of its configuration (`host.errors`)."""

import sqlite3

from host.errors import HostError

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


class ListenError(HostError):
    """A listener cannot be opened; the text names its address."""


class StoreError(HostError):
    """The message store cannot be opened; the text names its folder."""

    @property
    def may_pass(self) -> bool:
        """Whether a later start may succeed, also by what SQLite says of a disk or of another process."""
        return super().may_pass or getattr(self.__cause__, "sqlite_errorcode", 0) & 0xFF in PASSING


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


def is_read_only(error: BaseException) -> bool:
    """Whether an error of SQLite says that it may not write a file, or the files beside it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY


def advice_on(error: Exception) -> str:
    """Returns the advice that follows the text of an error of SQLite; "" where no command helps."""
    return ADVICE if is_damage(error) or "no such table" in str(error) else ""
