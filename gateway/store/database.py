"""The store's file: messages, places and all other tables in one SQLite database.

With WAL and ``synchronous=FULL`` a transaction is on the medium when its commit returns. Everything here blocks; the
log chooses the thread. Writing and reading have a connection each.
"""

import contextlib
import errno
import logging
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import ADVICE, StoreError, is_damage
from gateway.store.sqlite import marks
from gateway.store.sqlite.checkpoint import Checkpoints
from gateway.store.sqlite.disk import words_of
from gateway.store.sqlite.folder import LOCK, MESSAGES, TakenFolder, check_moved, note_of
from gateway.store.sqlite.marks import LockNote
from gateway.store.sqlite.rows import first_row, open_at_rest, sealed
from gateway.store.sqlite.wal import hides_transactions
from gateway.store.tables import (
    connectors,
    cursors,
    drops,
    endings,
    log_rows,
    qos2,
    refused,
    retained,
    routes,
    schema,
    seen,
    sessions,
    wills,
)
from gateway.store.tables.damage import set_corrupt_rows_aside
from gateway.store.tables.log_rows import PARTS, LogRow, Part, PublishBatch, Work
from gateway.store.tables.upgrade.releases import prepare
from wire.identity import SEQ_MAX

BUSY_TIMEOUT_S = 10.0  # for a user's sqlite3 shell; the folder's lock keeps a second gateway out
ON_TRIAL = (
    "of version {}, and a start would bring it to version {}, which the former release may not read. "
    "This release is on trial and leaves it: docs/how-to/upgrade.md says how to let it"
)
COMMIT_PAGES = 1  # of a commit besides its messages, roughly
GROWTH_PAGES = 2  # if a commit changes the number of pages: the first page, and one with page numbers

logger = logging.getLogger(__name__)


class Deletion(ABC):
    """A work that deletes messages which no consumer needs.

    If a damaged page is in its way, ``is_given_up`` becomes True: it deletes nothing, and the rest of its commit is
    written.
    """

    is_given_up = False

    @abstractmethod
    def __call__(self, connection: sqlite3.Connection) -> Any: ...


@dataclass
class MaintenanceWrite(Deletion):
    """What the maintenance writes: places as (consumer, position, count), and the position up to which to trim."""

    saved: list[tuple[str, int, int]]
    trim_to: int

    def __call__(self, connection: sqlite3.Connection) -> retained.Extent:
        connection.executemany(cursors.SAVE, map(sealed, self.saved))
        if not self.is_given_up:
            connection.execute(log_rows.TRIM, (self.trim_to,))
            connection.execute(log_rows.TRIM_GAPS, (self.trim_to,))
        connection.execute(qos2.FORGET_DONE)
        return retained.expire(connection, int(time.time() * 1000))


def check_files(path: Path, note: LockNote | None) -> None:
    """Raises StoreError if a file of a store is missing, belongs to another store, or hides messages. Writes
    nothing.
    """
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.is_dir():
            raise StoreError(f"message store {file}: {os.strerror(errno.EISDIR)}")
    if hides_transactions(path):  # SQLite reports nothing: it goes on from the transactions before
        raise StoreError(f"message store {path}: its WAL is damaged, and messages are behind that{ADVICE}")
    if problem := marks.problem_of(path, note):
        raise StoreError(f"message store {path}: {problem}{marks.ADVICE}")


def check_store(folder: Path, *, keeps_format: bool = False) -> None:
    """Raises StoreError if a start would refuse the store's files, or, if asked for, would upgrade their format. Writes
    nothing.

    No process may use the store meanwhile. It does not read all rows, so damage inside the file is not found.
    """
    check_moved(folder)
    path = folder / MESSAGES
    check_files(path, note_of(folder))
    if not (path.exists() and path.stat().st_size):
        return
    try:
        with open_at_rest(path) as connection:
            version = schema.version_of(connection)
    except sqlite3.Error as error:
        raise StoreError(f"message store {path}: {words_of(error, folder)}") from error
    if keeps_format and version not in (0, schema.SCHEMA_VERSION):
        raise StoreError(f"message store {path}: {ON_TRIAL.format(version, schema.SCHEMA_VERSION)}")


@dataclass
class Found:
    """What a store's file had when it was opened: the rows of each table but the messages.

    ``oldest`` and ``newest`` are the positions of the oldest and the newest message, ``cursors`` are the consumers'
    places, ``flows`` the QoS 2 messages on their way out, ``incoming`` and ``released`` the identifiers of received
    ones. ``read_to`` is up to when each source of a connector was read, in Unix ms, ``taken_commands`` the newest
    command of each connector. ``unsent`` are the messages that routes which keep did not hand on, as bits by chunk.
    ``retained`` is the extent of all retained messages.
    """

    oldest: int
    newest: int
    cursors: dict[str, cursors.Place]
    gaps: list[tuple[int, int]]
    flows: list[qos2.Flow]
    incoming: dict[str, qos2.Digests]
    released: dict[str, qos2.Digests]
    read_to: dict[str, int]
    taken_commands: dict[str, connectors.TakenCommand]
    owed: dict[str, list[retained.Owed]]
    wills: list[wills.StoredWill]
    sessions: dict[str, sessions.StoredSession]
    endings: dict[int, endings.StoredEnding]
    refused: list[refused.RefusedRow]
    routes: dict[str, routes.RouteRow]
    unsent: dict[str, dict[int, int]]
    seen: seen.SeenRows
    retained: retained.Extent


class Database:
    """One open store file.

    ``found`` is what it had when it was opened. ``used_bytes`` and ``free_bytes`` are the bytes in use and free in the
    file as of the last commit, to a page or two. ``newest_rows`` are the rows with the messages of the last commit.
    ``reader`` is the connection for reading.

    Args:
        path: the file, which is made if it does not exist.
        origin: the origin of the identities that this store gives.
        taken: the folder of the file.
        deflate: whether rows are deflated, which costs time and spares the medium.

    Raises:
        StoreError: it is not a message store, one of its files is missing or belongs to another store, or SQLite cannot
            open it.
    """

    def __init__(self, path: Path, origin: str, taken: TakenFolder, deflate: bool = False) -> None:
        self.origin = origin
        self._taken = taken
        self._begins_round = False
        self._deflate = deflate
        self._is_wal_foul = False
        self._wal_pages = 0  # written since the log was looked at, roughly
        self._unmeasured = 0  # bytes of messages that were written since the file was measured
        self.newest_rows: list[LogRow] = []
        note = taken.note()
        check_files(path, note)
        if note is None and path.exists():
            logger.warning("message store: %s says nothing of it: an older copy would not be known", path.parent / LOCK)
        with contextlib.ExitStack() as opened:
            try:
                self._writer = sqlite3.connect(
                    path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
                )
                opened.callback(self._writer.close)
                self._prepare()
                set_corrupt_rows_aside(self._writer, path)
                self.reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                opened.callback(self.reader.close)
                self._load()
                self._checkpoints = Checkpoints(path, self._writer, self._page_size)
                opened.callback(self._checkpoints.close)
                self._begin_run(path)
            except (OSError, sqlite3.Error, msgspec.MsgspecError, TypeError) as error:
                raise StoreError(f"message store {path}: {words_of(error, path.parent)}") from error
            opened.pop_all()

    def _load(self) -> None:
        self._marks = marks.load(self._writer)
        self.epoch = self._marks.epoch
        newest: tuple[int, int] = self._writer.execute(log_rows.NEWEST).fetchone() or (0, 0)
        self.position, self._seq = newest
        (self._page_size,) = self._writer.execute("PRAGMA page_size").fetchone()
        self.used_bytes, self.free_bytes = self._measure()
        reader = self.reader
        self.found = Found(
            (first_row(reader, log_rows.OLDEST) or (0,))[0],
            self.position,
            cursors.load(reader),
            log_rows.load_gaps(reader),
            qos2.load_flows(reader),
            qos2.load_incoming(reader),
            qos2.load_released(reader),
            connectors.load_read_to(reader),
            connectors.load_taken(reader),
            retained.load_owed(reader),
            wills.load(reader),
            sessions.load(reader),
            endings.load(reader),
            refused.load(reader),
            routes.load(reader),
            routes.load_unsent(reader),
            seen.load(reader),
            retained.measure(reader),
        )

    def _prepare(self) -> None:
        # The version is read before anything is written, so that a foreign database is not changed.
        if not schema.version_of(self._writer):
            schema.make(self._writer)  # before there is a WAL, as the page size cannot be changed afterwards
        for statement in schema.LATER_TABLES:
            self._writer.execute(statement)
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = FULL")
        self._empty_wal()
        if (version := prepare(self._writer)) not in (0, schema.SCHEMA_VERSION):
            logger.info("message store: upgraded from version %d to version %d", version, schema.SCHEMA_VERSION)
            self._empty_wal()
        self._writer.execute("PRAGMA secure_delete = OFF")  # Debian's default makes trimming write everything again
        self._writer.execute("PRAGMA wal_autocheckpoint = 0")  # Checkpoints does that

    def _empty_wal(self) -> None:
        """Copies the WAL into the database and empties it.

        A crash may have left frames behind the last transaction that a later start would take for a transaction. The
        database says that it needs no WAL before the WAL is emptied, so that a start after a power cut between the two
        knows it. That commit writes at the beginning of the WAL, over what the crash left.
        """
        (is_busy, *_) = self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if not is_busy:
            marks.note_closed(self._writer)
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _begin_run(self, path: Path) -> None:
        """Writes this start's marks into the database's own file, before a commit writes to the WAL.

        From then on a start refuses the database without its WAL.
        """
        before, run = self._marks.run, marks.draw()
        self._taken.write_note(LockNote(self.epoch, [before, run], self.position), is_synced=True)
        self._taken.lock_messages()
        file_id = self._taken.file_id()
        self._writer.execute("BEGIN IMMEDIATE")
        if self._marks.file_id not in (0, file_id):
            self._begin_epoch(path)
        self._begin_round(run=run, wal_bytes=max(1, self._checkpoints.wal_bytes), file_id=file_id, epoch=self.epoch)
        self._writer.execute("COMMIT")
        self._checkpoints.copy_all()
        self._taken.write_note(LockNote(self.epoch, [run], self.position), is_synced=True)

    def _begin_epoch(self, path: Path) -> None:
        """Begins a new epoch, as the store is a copy: the original may have given more identities of the former epoch.

        The packet identifiers of incoming QoS 2 messages are forgotten.
        """
        now_ms = int(time.time() * 1000)
        own = (self.origin, self.epoch, self._seq + 1, SEQ_MAX)
        self._writer.execute(drops.INSERT, (drops.DAMAGED, drops.GATEWAY, "", *own, 0, now_ms, now_ms))
        self._writer.execute("DELETE FROM incoming")
        self._writer.execute("DELETE FROM released")
        self.found.incoming, self.found.released = {}, {}
        self.epoch = marks.draw_epoch()
        logger.warning("message store: %s is a copy: new messages have identities of a new epoch", path)

    def _begin_round(self, **changes: int) -> None:
        """Writes a new round with the commit that begins the WAL anew."""
        one = self._marks
        self._marks = replace(one, round=marks.draw(), before=one.round, **changes)
        marks.save(self._writer, self._marks)

    def _mark_round(self) -> None:
        """Writes to the row of marks in a commit that may begin the WAL anew.

        It writes a new round, or notes that the database's own file has the present one.
        """
        one = self._marks
        self._begins_round = self._checkpoints.all_copied and one.round == one.before
        if self._begins_round:
            self._begin_round()
        elif self._checkpoints.all_copied:
            self._marks = replace(one, before=one.round)
            marks.save(self._writer, self._marks)

    def commit(self, batch: Sequence[Sequence[Work]]) -> list[list[Any]]:
        """Makes the works durable in one transaction with one sync; messages without an identity get one.

        Returns:
            For each sequence of works the position of each message, of a batch that of its first message, and the
            results of the other works.

        Raises:
            sqlite3.Error: nothing was stored.
        """
        before, said = (self.position, self._seq), self._marks
        first = self.position + 1
        parts = [one for works in batch for one in works if isinstance(one, PARTS)]
        positions = list(map(self._number, parts))
        rows = list(log_rows.split(first, parts))
        if self._is_wal_foul:
            self._restart_wal()
        try:
            try:
                results = self._write(batch, rows, positions)
            except sqlite3.Error as error:
                if not is_damage(error) or not _give_up_deletions(batch):
                    raise
                results = self._write(batch, rows, positions)
        except Exception:
            self.position, self._seq = before  # positions and sequence numbers are free again
            raise
        if self._marks is not said:
            self._checkpoints.all_copied = False
        self.newest_rows = rows
        return results

    def checkpoint(self) -> None:
        """Copies committed pages from the WAL into the database if they are many; runs behind each commit."""
        pages, self._wal_pages = self._wal_pages, 0
        if self._begins_round:
            self._begins_round = False
            self._checkpoints.copy_all()
        self._checkpoints.note_written(pages)
        self._taken.note_position(self.epoch, self._marks.run, self.position)

    def _restart_wal(self) -> None:
        """Empties the WAL after a failed sync.

        The frames of the commit that failed may be whole in the WAL. A start after a kill would take them for a
        transaction, though its client was not answered.
        """
        with contextlib.suppress(sqlite3.Error):  # the disk may still refuse: the next commit tries again
            (is_busy, *_) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._is_wal_foul = bool(is_busy)
            if not is_busy:
                self._checkpoints.all_copied = True
                self._checkpoints.make_room()

    def _measure(self) -> tuple[int, int]:
        (pages,) = self._writer.execute("PRAGMA page_count").fetchone()
        (free,) = self._writer.execute("PRAGMA freelist_count").fetchone()
        return (pages - free) * self._page_size, free * self._page_size

    def _write(self, batch: Sequence[Sequence[Work]], rows: list[LogRow], positions: list[int]) -> list[list[Any]]:
        """Runs one transaction. One small row is a transaction by itself: to begin and to commit takes as long."""
        said, numbers = self._marks, iter(positions)
        has_others = sum(map(len, batch)) > len(positions)
        is_small = len(rows) == 1 and not has_others and rows[0].size < self._page_size - self._unmeasured
        try:
            if is_small and not self._checkpoints.all_copied:
                self._unmeasured += log_rows.write(self._writer, rows, self._seq, self._deflate)
                self._wal_pages += COMMIT_PAGES
                return [[next(numbers) for _ in works] for works in batch]
            self._writer.execute("BEGIN IMMEDIATE")
            self._mark_round()
            results = [
                [next(numbers) if isinstance(one, PARTS) else one(self._writer) for one in works] for works in batch
            ]
            size = log_rows.write(self._writer, rows, self._seq, self._deflate)
            measured = self._measure()  # here, as the locks are held already
            self._writer.execute("COMMIT")
        except Exception as error:
            self._writer.rollback()
            self._is_wal_foul |= getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC
            self._marks, self._begins_round = said, False
            raise
        if has_others:
            size += sum(one.message.size for works in batch for one in works if isinstance(one, retained.Keep))
        grown = (measured[0] - self.used_bytes) // self._page_size
        self._unmeasured = 0
        self.used_bytes, self.free_bytes = measured
        self._wal_pages += COMMIT_PAGES + max(grown, size // self._page_size) + (GROWTH_PAGES if grown else 0)
        return results

    def _number(self, part: Part) -> int:
        """Gives messages their position, and those without an identity one; returns the position of the first one."""
        position = part.position = self.position + 1
        self.position += part.count
        if isinstance(part, PublishBatch):
            if not part.bring_identities:
                part.epoch, part.first_seq = self.epoch, self._seq + 1
                self._seq += part.count
        elif not part.origin:
            self._seq += 1
            part.origin, part.epoch, part.seq = self.origin, self.epoch, self._seq
        return position

    def close(self) -> None:
        """Copies the last commits into the database and removes the WAL, unless another process reads it."""
        self._checkpoints.close()
        with contextlib.suppress(sqlite3.Error):  # otherwise the WAL stays, and the next start reads it
            self._begin_round(wal_bytes=0)
        self.reader.close()
        self._writer.close()


def _give_up_deletions(batch: Sequence[Sequence[Work]]) -> bool:
    """Makes all deletions give up; returns whether there are any."""
    deletions = [one for works in batch for one in works if isinstance(one, Deletion) and not one.is_given_up]
    for one in deletions:
        one.is_given_up = True
    return bool(deletions)
