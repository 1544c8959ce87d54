"""Backup and restore: a copy of a store never gives an identity that another copy has given."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from gateway.errors import StoreError, is_read_only
from gateway.store.repair.command import announce
from gateway.store.sqlite import marks, swap_files
from gateway.store.sqlite.disk import words_of
from gateway.store.sqlite.folder import MESSAGES, check_moved, take_folder, why_unusable
from gateway.store.sqlite.marks import LockNote
from gateway.store.sqlite.rows import open_at_rest, open_for_reading
from gateway.store.tables import schema
from gateway.store.tables.drops import DAMAGED, GATEWAY, INSERT
from gateway.store.tables.upgrade.releases import prepare
from wire.identity import SEQ_MAX

EMPTY = "there is no message store in it: it is empty"  # a first start ended before it had made the tables
HEADER = b"SQLite format 3\0"  # https://www.sqlite.org/fileformat2.html#magic_header_string
WITHOUT_END = f"SELECT * FROM dropped WHERE reason = '{DAMAGED}' AND last = {SEQ_MAX}"


def backup(folder: Path, target: Path) -> None:
    """Copies a store into a file, as it is at one moment; a gateway may run on it.

    Raises:
        StoreError: there is no store, it was moved, it cannot be read, or the file exists or cannot be written.
    """
    target = target.absolute()
    what, where = f"backup of {folder} to {target}", target.parent
    try:
        check_moved(folder)
        if os.path.lexists(target):
            raise StoreError(f"{target}: there is a file already")
        os.scandir(where).close()  # its error names the folder
        with swap_files.begun(where, f".{target.name}.part") as making:  # SQLite makes files beside it
            try:
                _copy(folder / MESSAGES, making / MESSAGES)
                swap_files.sync(making / MESSAGES)
            except (sqlite3.Error, OSError) as error:  # while the copy still fills the disk
                why = why_unusable(folder) if is_read_only(error) else None
                raise StoreError(f"{what}: {words_of(why or error, where)}") from error
            (making / MESSAGES).rename(target)
        swap_files.sync(where)
    except OSError as error:
        raise StoreError(f"{what}: {words_of(error, where)}") from error


def restore(folder: Path, source: Path, origin: str) -> Path:
    """Replaces the files of a store that no gateway uses by a backup; returns the folder with the former files.

    Args:
        folder: the store's folder.
        source: the backup.
        origin: the gateway's name.

    Raises:
        StoreError: a gateway runs on the store, or the backup cannot be used; then the store is unchanged.
    """
    what = f"restore of {source} to {folder}"
    try:
        _check_backup(source)
        with contextlib.closing(take_folder(folder)) as taken, swap_files.begun(folder) as making:
            try:
                _copy(source, making / MESSAGES)
                _tell_of_replaced(folder / MESSAGES, making / MESSAGES, taken.note(), origin)
                announce(making / MESSAGES, taken)
                return swap_files.offer(folder)
            except (sqlite3.Error, OSError) as error:  # while the copy still fills the disk
                raise StoreError(f"{what}: {words_of(error, folder)}") from error
    except OSError as error:
        raise StoreError(f"{what}: {words_of(error, folder)}") from error


def begin_epoch(folder: Path) -> None:
    """Makes the next start on a store begin a new epoch: for a copy that does not look like one.

    Raises:
        StoreError: there is no store, it is damaged, or a gateway runs on it.
    """
    path = folder / MESSAGES
    if not path.exists():
        raise StoreError(f"message store {folder}: there is none")
    with contextlib.closing(take_folder(folder)) as taken:
        if problem := marks.problem_of(path, taken.note()):
            raise StoreError(f"message store {path}: {problem}{marks.ADVICE}")
        try:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                if not schema.version_of(connection):
                    raise sqlite3.DatabaseError(EMPTY)
                connection.execute("PRAGMA synchronous = FULL")
                marks.note_copied(connection)
        except sqlite3.Error as error:
            raise StoreError(f"message store {path}: {words_of(error, folder)}") from error


def _check_backup(source: Path) -> None:
    """Raises StoreError if a file is no copy of a store, and OSError if it cannot be read."""
    with source.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise StoreError(f"{source}: it is no backup of a message store")


def _tell_of_replaced(replaced: Path, made: Path, note: LockNote | None, origin: str) -> None:
    """Notes ranges for epochs of the replaced store that the copy does not know: their messages may be lost.

    If the replaced file cannot be read, the lock file still has its newest epoch. Raises sqlite3.Error.
    """
    now_ms = int(time.time() * 1000)
    lost = [(DAMAGED, GATEWAY, "", origin, note.epoch, 1, SEQ_MAX, 0, now_ms, now_ms)] if note else []
    with contextlib.suppress(sqlite3.Error), open_at_rest(replaced) as connection:
        schema.version_of(connection)
        lost += connection.execute(WITHOUT_END).fetchall()
    with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as copy:
        told = {marks.load(copy).epoch, *(row[4] for row in copy.execute(WITHOUT_END).fetchall())}
        for row in lost:
            if row[4] not in told:
                told.add(row[4])
                copy.execute(INSERT, row)


def _copy(source: Path, target: Path) -> None:
    """Copies a database and marks the copy. Raises sqlite3.Error, OSError."""
    if not source.exists():
        raise FileNotFoundError(f"{source} is not there")
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with open_for_reading(source) as reading, contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
        if not schema.version_of(reading):
            raise sqlite3.DatabaseError(EMPTY)
        reading.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
        prepare(copy)
        marks.note_copied(copy)
