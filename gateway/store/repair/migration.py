"""Migration: the stores of a gateway go to other folders, all of them or none, and nothing in them changes.

::

    old stores are locked ─► each is copied, synced ─► compared row by row ─► all old ones sealed ─► all new ones freed

A sealed store is never used again: so the new one goes on with its epoch, and gives no identity twice. A new store that
is not free yet is not used either. So at each moment at most one of the two sets can be used, and a migration that was
killed goes on when it is called again. A gateway opens its default store first: so that is sealed first and freed last.
"""

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import NamedTuple

from gateway.errors import ADVICE, StoreError
from gateway.store.sqlite import marks, swap_files
from gateway.store.sqlite.disk import words_of
from gateway.store.sqlite.folder import COMING, MESSAGES, MOVED, TakenFolder, moved_to, note_of, take_folder
from gateway.store.sqlite.rows import first_row, open_at_rest, read_schema
from gateway.store.tables import schema
from gateway.store.unseen_drops import FILE as UNSEEN_DROPS

COUNTS = {
    "messages": "SELECT coalesce(sum(count), 0) FROM message_group",
    "sessions": "SELECT count(*) FROM session WHERE topic_filter = ''",
    "retained": "SELECT count(*) FROM retained",
    "places": "SELECT count(*) FROM cursor",
}
"""What is told of a migration, each with its query."""

PART = ".part"  # behind the name of a file that is being copied
ROWS_AT_ONCE = 1000


class Move(NamedTuple):
    """A store, and where it goes: their folders. ``stream`` is its stream, "" the default one."""

    stream: str
    old: Path
    new: Path


class Migrated(NamedTuple):
    """What has been moved: rows that were compared in all tables, and how many messages, sessions, retained messages
    and places there are among them.
    """

    stores: int
    rows: int
    messages: int
    sessions: int
    retained: int
    places: int


def migrate(moves: Sequence[Move]) -> Migrated:
    """Moves stores that no gateway uses. Called again after it was killed, it goes on.

    Args:
        moves: all stores of a gateway, its default stream's first.

    Raises:
        StoreError: a store is in use or damaged, was moved elsewhere, or cannot be copied; or there is a store where
            one is to go. Then the old stores can be used as before, unless all of them are sealed.
    """
    with contextlib.ExitStack() as stack:
        if all(_is_free(move) and moved_to(move.old) == move.new.absolute() for move in moves):
            raise StoreError(f"message store {moves[0].old}: it was moved to {moves[0].new} already")
        taken: list[TakenFolder] = []
        for move in moves:
            _check(move)
            stack.enter_context(contextlib.closing(take_folder(move.old, may_be_moved=True)))
            taken.append(stack.enter_context(contextlib.closing(take_folder(move.new, may_be_moved=True))))
        try:
            if not any(map(_is_free, moves)):  # else all are sealed, and were compared
                for move in moves:
                    _note(move.new / COMING, move.old)
                for move, there in zip(moves, taken, strict=True):
                    _copy_all(move)
                    if note := note_of(move.old):
                        there.write_note(note, is_synced=True)
            found = [_compare(move) for move in moves]
            for move in moves:
                _note(move.old / MOVED, move.new)
            for move in reversed(moves):
                (move.new / COMING).unlink(missing_ok=True)
                swap_files.sync(move.new)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"migration: {words_of(error, moves[0].new)}") from error
    return Migrated(len(moves), *map(sum, zip(*found, strict=True)))


def _check(move: Move) -> None:
    """Raises StoreError if a store cannot be moved."""
    if not (move.old / MESSAGES).exists():
        raise StoreError(f"message store {move.old}: there is none")
    if (move.old / COMING).exists():
        raise StoreError(f"message store {move.old}: it has not come there as a whole, end that migration first")
    elsewhere = moved_to(move.old)
    if elsewhere is not None and elsewhere != move.new.absolute():
        raise StoreError(f"message store {move.old}: it was moved to {elsewhere}")
    if (other := moved_to(move.new)) is not None:
        text = f"its store was moved to {other}: delete the folder to use it again, or choose another one"
        raise StoreError(f"message store {move.new}: {text}")
    if elsewhere is None and (move.new / MESSAGES).exists() and not (move.new / COMING).exists():
        raise StoreError(f"message store {move.new}: there is a store already")
    if problem := marks.problem_of(move.old / MESSAGES, note_of(move.old)):
        raise StoreError(f"message store {move.old / MESSAGES}: {problem}{marks.ADVICE}")


def _is_free(move: Move) -> bool:
    """Whether an earlier call has moved a store to its end."""
    return moved_to(move.old) is not None and not (move.new / COMING).exists()


def _note(path: Path, other: Path) -> None:
    """Writes the name of a folder to a file, durably."""
    part = path.with_name(path.name + PART)
    part.write_text(str(other.absolute()))
    swap_files.sync(part)
    part.rename(path)
    swap_files.sync(path.parent)


def _copy_all(move: Move) -> None:
    """Copies all databases of a folder, and its mark of drops that no operator has seen. Raises StoreError."""
    for source in _databases(move.old):
        try:
            _copy(source, move.new / source.name)
        except (sqlite3.Error, OSError) as error:
            text = f"migration of {source} to {move.new}: {words_of(error, move.new)}"
            _discard_copies(move)
            raise StoreError(text) from error
    if (move.old / UNSEEN_DROPS).exists():
        shutil.copyfile(move.old / UNSEEN_DROPS, move.new / UNSEEN_DROPS)
        swap_files.sync(move.new / UNSEEN_DROPS)
    swap_files.sync(move.new)


def _discard_copies(move: Move) -> None:
    """Removes what was copied, which is no store yet: the disk may be one that the old gateway needs."""
    for source in _databases(move.old):
        for suffix in ("", PART, f"{PART}-journal"):
            (move.new / (source.name + suffix)).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(target.name + PART)
    part.unlink(missing_ok=True)
    file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    file_id = marks.file_id_of(file)  # before SQLite has the file: to close it would end SQLite's locks
    os.close(file)
    with open_at_rest(source) as reading, contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy:
        reading.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
        read_schema(copy)
        if source.name == MESSAGES:
            schema.version_of(copy)
            marks.save(copy, replace(marks.load(copy), wal_bytes=0, file_id=file_id))
    swap_files.sync(part)
    part.rename(target)


def _compare(move: Move) -> tuple[int, ...]:
    """Compares all rows of all databases; returns how many there are, and the COUNTS. Raises StoreError."""
    rows = 0
    counts: list[int] = []
    for source in _databases(move.old):
        with open_at_rest(source) as old, open_at_rest(move.new / source.name) as new:
            if _tables(old) != _tables(new):
                raise StoreError(f"migration: {move.new / source.name} has other tables than {source}")
            for table in _tables(old):
                if (source.name, table) == (MESSAGES, "identity"):
                    _compare_marks(move, old, new)
                else:
                    rows += _compare_table(source, move.new, old, new, table)
            if source.name == MESSAGES:
                counts = [int(first_row(new, query)[0]) for query in COUNTS.values()]
    return rows, *counts


def _compare_marks(move: Move, old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    before = replace(marks.load(old), wal_bytes=0, file_id=0)
    if before != replace(marks.load(new), wal_bytes=0, file_id=0):
        raise StoreError(f"migration: the identity in {move.new} is another one than in {move.old}: {astuple(before)}")


def _compare_table(source: Path, new_folder: Path, old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> int:
    count = 0
    with contextlib.closing(old.cursor()) as before, contextlib.closing(new.cursor()) as after:
        for cursor in (before, after):
            cursor.execute(f'SELECT * FROM "{table}"')
        while True:
            rows = before.fetchmany(ROWS_AT_ONCE)
            if rows != after.fetchmany(ROWS_AT_ONCE):
                place = f"row {count + 1} or one of the {ROWS_AT_ONCE - 1} behind it"
                raise StoreError(f"migration: {place} of {table!r} in {new_folder} is not as in {source}{ADVICE}")
            if not rows:
                return count
            count += len(rows)


def _tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(query).fetchall()]


def _databases(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*.sqlite"))
