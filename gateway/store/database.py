"""The store's file: messages, cursors and the gateway's own identity counter in one SQLite database.

WAL with ``synchronous=FULL``: a transaction is on the medium when its commit returns. Everything here blocks;
which thread may wait is the log's matter. Writing and reading each have a connection of their own.
"""

import contextlib
import errno
import logging
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import ADVICE, StoreError, advice_on, is_damage
from gateway.message import Message
from gateway.store import (
    consumers,
    damage,
    drops,
    endings,
    flows,
    gaps,
    groups,
    identity,
    incoming,
    retained,
    schema,
    sessions,
    wills,
)
from gateway.store.checkpoints import Checkpoints
from gateway.store.checksum import sealed
from gateway.store.folder import LOCK, MESSAGES, TakenFolder, note_of
from gateway.store.groups import CorruptGroup, Group, Part
from gateway.store.identity import Note
from gateway.store.reading import first_row, open_at_rest
from gateway.store.run import Run
from gateway.store.spoilt import set_spoilt_rows_aside
from gateway.store.wal import hides_transactions
from wire.identity import SEQ_MAX

BUSY_TIMEOUT_S = 10.0  # for somebody else's sqlite3 shell; a second gateway is kept out by the folder's lock
NOTE_EVERY = 16  # messages: each note makes a page of the kernel dirty
COMMIT_PAGES = 1  # of a commit besides its messages, roughly
GROWTH_PAGES = 2  # where it makes the file's pages more or less: the first page, and a page with their numbers
READ_BYTES_MAX = 1024 * 1024  # of payload in one read, so that a backlog of large messages stays on disk

logger = logging.getLogger(__name__)

Work = Part | Callable[[sqlite3.Connection], Any]
"""What a transaction is made of: messages to store, or something else to write with them."""


class Deletion(ABC):
    """A work that deletes messages which no consumer needs.

    ``is_given_up`` where a damaged page was in its way: nothing is deleted, and the rest of its commit is written.
    """

    is_given_up = False

    @abstractmethod
    def __call__(self, connection: sqlite3.Connection) -> Any: ...


@dataclass
class Housekeeping(Deletion):
    """What is written now and then: (consumer, position, count), what to trim."""

    saved: list[tuple[str, int, int]]
    trim_to: int

    def __call__(self, connection: sqlite3.Connection) -> retained.Extent:
        connection.executemany(consumers.SAVE, map(sealed, self.saved))
        if not self.is_given_up:
            connection.execute(groups.TRIM, (self.trim_to,))
            connection.execute(gaps.TRIM, (self.trim_to,))
        connection.execute(flows.FORGET_DONE)
        return retained.expire(connection, int(time.time() * 1000))


def check_files(path: Path, note: Note | None) -> None:
    """Raises StoreError where a file of a store is missing, is not its own, or hides messages; writes nothing."""
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.is_dir():
            raise StoreError(f"message store {file}: {os.strerror(errno.EISDIR)}")
    if hides_transactions(path):  # SQLite does not say so: it goes on from what is before
        raise StoreError(f"message store {path}: its WAL is damaged, and messages are behind that{ADVICE}")
    if problem := identity.problem_of(path, note):
        raise StoreError(f"message store {path}: {problem}{identity.ADVICE}")


def check_store(folder: Path) -> None:
    """Raises StoreError where a start would not take the files of a store; writes nothing.

    No process may use the store meanwhile. What only reading all of it finds is not looked for.
    """
    path = folder / MESSAGES
    check_files(path, note_of(folder))
    if not (path.exists() and path.stat().st_size):
        return
    try:
        with open_at_rest(path) as connection:
            schema.version_of(connection)
    except sqlite3.Error as error:
        raise StoreError(f"message store {path}: {error}{advice_on(error)}") from error


class Database:
    """One open store file. ``cursors`` and ``oldest`` say what was in it when it was opened, ``used_bytes`` how much
    is in it after the last commit, ``free_bytes`` how much of it is free.

    Args:
        path: the file; made where there is none.
        origin: the origin of the identities that this store gives out.
        taken: the folder of the file.
        deflate: whether what is stored is made smaller where it can be, which costs time and spares the medium.

    Raises:
        StoreError: it is not a store of ours, a file of it is missing or not its own, or SQLite cannot open it.
    """

    def __init__(self, path: Path, origin: str, taken: TakenFolder, deflate: bool = False) -> None:
        self.origin = origin
        self._taken = taken
        self._noted = 0  # the position that the lock file has
        self._begins_round = False
        self._deflate = deflate
        self._is_log_foul = False
        self._log_pages = 0  # written since the log was looked at, roughly
        note = taken.note()
        check_files(path, note)
        if note is None and path.exists():
            logger.warning("message store: %s says nothing of it: an older copy would not be known", path.parent / LOCK)
        with contextlib.ExitStack() as opened:
            try:
                self._writing = sqlite3.connect(
                    path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
                )
                opened.callback(self._writing.close)
                self._prepare()
                set_spoilt_rows_aside(self._writing, path)
                self._reading = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                opened.callback(self._reading.close)
                self._load()
                self._checkpoints = Checkpoints(path, self._writing, self._page_size)
                opened.callback(self._checkpoints.close)
                self._begin_run(path)
            except (OSError, sqlite3.Error, msgspec.MsgspecError, TypeError) as error:
                raise StoreError(f"message store {path}: {error}{advice_on(error)}") from error
            opened.pop_all()

    def _load(self) -> None:
        self._identity = identity.load(self._writing)
        self.epoch = self._identity.epoch
        newest: tuple[int, int] = self._writing.execute(groups.NEWEST).fetchone() or (0, 0)
        self.position, self._seq = newest
        self.oldest: int = (first_row(self._reading, groups.OLDEST) or (0,))[0]
        rows = self._reading.execute("SELECT consumer, position, count FROM cursor")
        self.cursors: dict[str, tuple[int, int]] = {consumer: (position, count) for consumer, position, count in rows}
        self.gaps = gaps.load(self._reading)
        self.flows = flows.load(self._reading)
        self.incoming = incoming.load(self._reading)
        (self._page_size,) = self._writing.execute("PRAGMA page_size").fetchone()
        self.used_bytes, self.free_bytes = self._measure()
        self.owed = retained.load_owed(self._reading)
        self.wills = wills.load(self._reading)
        self.sessions = sessions.load(self._reading)
        self.endings = endings.load(self._reading)
        self.retained = retained.measure(self._reading)

    def _prepare(self) -> None:
        # The version is read before anything is written, so that a foreign database keeps what is in it.
        if not schema.version_of(self._writing):
            schema.make(self._writing)  # before there is a WAL, with which the size of pages is settled
        self._writing.execute("PRAGMA journal_mode = WAL")
        self._writing.execute("PRAGMA synchronous = FULL")
        self._empty_log()
        self._writing.execute("PRAGMA secure_delete = OFF")  # with it, as Debian has it, trimming writes all once more
        self._writing.execute("PRAGMA wal_autocheckpoint = 0")  # that is the checkpoints' work

    def _empty_log(self) -> None:
        """What a crash left behind the last transaction is not to be taken for another one.

        The file says that it needs no WAL before that is emptied, by a commit that begins the WAL anew: in front of
        what a crash left it would look like a transaction in front of others.
        """
        (is_busy, *_) = self._writing.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if not is_busy:
            identity.note_closed(self._writing)
            self._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _begin_run(self, path: Path) -> None:
        """From now on the WAL is needed: the database's own file says so before anything is in it."""
        before, run = self._identity.run, identity.draw()
        self._taken.write_note(Note(self.epoch, [before, run], self.position), is_synced=True)
        self._taken.lock_messages()
        places = self._taken.places()
        self._writing.execute("BEGIN IMMEDIATE")
        if self._identity.place not in (0, *places):
            self._begin_epoch(path)
        self._begin_round(run=run, wal_bytes=max(1, self._checkpoints.log_bytes), place=places[0], epoch=self.epoch)
        self._writing.execute("COMMIT")
        self._checkpoints.copy_all()
        self._taken.write_note(Note(self.epoch, [run], self.position), is_synced=True)

    def _begin_epoch(self, path: Path) -> None:
        """The store is a copy: what the original has given since then is not given again, nor held for a repetition."""
        now_ms = int(time.time() * 1000)
        own = (self.origin, self.epoch, self._seq + 1, SEQ_MAX)
        self._writing.execute(drops.INSERT, (damage.DAMAGED, drops.GATEWAY, "", *own, 0, now_ms, now_ms))
        self._writing.execute("DELETE FROM incoming")
        self.incoming = {}
        self.epoch = identity.draw_epoch()
        logger.warning("message store: %s is a copy: new messages have identities of a new epoch", path)

    def _begin_round(self, **changes: int) -> None:
        """The next commit begins the WAL anew: what it writes with that says so."""
        one = self._identity
        self._identity = replace(one, round=identity.draw(), before=one.round, **changes)
        identity.save(self._writing, self._identity)

    def _mark_round(self) -> None:
        """Part of a commit that may begin the WAL anew: that of the round, or the word that the file has the round."""
        one = self._identity
        self._begins_round = self._checkpoints.all_copied and one.round == one.before
        if self._begins_round:
            self._begin_round()
        elif self._checkpoints.all_copied:
            self._identity = replace(one, before=one.round)
            identity.save(self._writing, self._identity)

    def commit(self, work: Sequence[Sequence[Work]]) -> list[list[Any]]:
        """Makes groups durable in one transaction, one sync; gives messages without identity theirs.

        Returns:
            For each group the position of each message, of a run that of its first one, and what other work returns.

        Raises:
            sqlite3.Error: nothing of any group was stored.
        """
        before, said = (self.position, self._seq), self._identity
        first = self.position + 1
        parts: list[Part] = []
        positions = [self._number(one, parts) for group in work for one in group if isinstance(one, Part)]
        if self._is_log_foul:
            self._begin_log_anew()
        try:
            try:
                done, size, measured = self._write(work, first, parts)
            except sqlite3.Error as error:
                if not is_damage(error) or not _give_up_deletions(work):
                    raise
                done, size, measured = self._write(work, first, parts)
        except Exception:
            self.position, self._seq = before  # it has used up neither positions nor numbers
            raise
        if self._identity != said:
            self._checkpoints.all_copied = False
        grown = (measured[0] - self.used_bytes) // self._page_size
        self.used_bytes, self.free_bytes = measured
        self._log_pages += COMMIT_PAGES + max(grown, size // self._page_size) + (GROWTH_PAGES if grown else 0)
        numbers = iter(positions)
        return [
            [next(numbers) if isinstance(one, Part) else result for one, result in zip(group, results, strict=True)]
            for group, results in zip(work, done, strict=True)
        ]

    def shorten_log(self) -> None:
        """Copies what commits have written into the database, where that is much; it belongs behind each of them."""
        pages, self._log_pages = self._log_pages, 0
        if self._begins_round:
            self._begins_round = False
            self._checkpoints.copy_all()
        self._checkpoints.note_written(pages)
        if self.position - self._noted >= NOTE_EVERY:
            self._taken.write_note(Note(self.epoch, [self._identity.run], self.position), is_synced=False)
            self._noted = self.position

    def _begin_log_anew(self) -> None:
        """What a failed sync has left in the log is whole, and after a kill it would look like one that was lost."""
        with contextlib.suppress(sqlite3.Error):  # the disk may not take it yet: the next commit tries again
            (is_busy, *_) = self._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._is_log_foul = bool(is_busy)
            if not is_busy:
                self._checkpoints.all_copied = True
                self._checkpoints.make_room()

    def _measure(self) -> tuple[int, int]:
        (pages,) = self._writing.execute("PRAGMA page_count").fetchone()
        (free,) = self._writing.execute("PRAGMA freelist_count").fetchone()
        return (pages - free) * self._page_size, free * self._page_size

    def _write(
        self, work: Sequence[Sequence[Work]], first: int, parts: list[Part]
    ) -> tuple[list[list[Any]], int, tuple[int, int]]:
        """One transaction: returns results, how many bytes of messages were written, and how much is in use then."""
        said = self._identity
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            self._mark_round()
            results = [[None if isinstance(one, Part) else one(self._writing) for one in group] for group in work]
            size = groups.write(self._writing, first, parts, self._seq, self._deflate)
            measured = self._measure()  # here, where it has the locks already
            self._writing.execute("COMMIT")
        except Exception as error:
            self._writing.rollback()
            self._is_log_foul |= getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC
            self._identity, self._begins_round = said, False
            raise
        size += sum(one.message.size for group in work for one in group if isinstance(one, retained.Keep))
        return results, size, measured

    def _number(self, part: Part, parts: list[Part]) -> int:
        """Gives messages their position, and those that have no identity theirs."""
        position = self.position + 1
        self.position += part.count
        if isinstance(part, Run):
            if not part.bring_identities:
                part.epoch, part.first_seq = self.epoch, self._seq + 1
                self._seq += part.count
        elif not part.origin:
            self._seq += 1
            part.origin, part.epoch, part.seq = self.origin, self.epoch, self._seq
        part.position = position
        parts.append(part)
        return position

    def read(self, after: int, up_to: int) -> list[Group]:
        """Returns groups in order that hold the messages behind a position, as many as fit READ_BYTES_MAX.

        Raises CorruptGroup where the first of them cannot be read.
        """
        found: list[Group] = []
        size = 0
        with contextlib.closing(groups.read(self._reading, after, up_to)) as reading:
            try:
                for group in reading:
                    found.append(group)
                    size += group.size
                    if size > READ_BYTES_MAX:
                        break
            except sqlite3.DatabaseError as error:
                if not found:
                    found.append(self._read_one(after, up_to, error))
        return found

    def _read_one(self, after: int, up_to: int, error: sqlite3.DatabaseError) -> Group:
        """The group behind a position, where one of the next cannot be read; a hole that is set aside has no messages.

        Python reads on before it hands out a row: it may be the one behind it that cannot be read.
        """
        if not is_damage(error):
            raise error
        if hole := damage.known_hole(self._reading, after + 1):
            return hole
        try:
            row = first_row(self._reading, damage.ROW_FROM, (after + 1, up_to))
        except sqlite3.DatabaseError as its_own:
            if not is_damage(its_own):
                raise
            raise damage.find_hole(self._reading, after + 1, up_to) from its_own
        return groups.decode(row)

    def set_aside(self, corrupt: CorruptGroup, count: int) -> Work:
        """Returns what takes so many messages out of the log that cannot be read."""
        return damage.set_aside(self._reading, corrupt, count, self.origin, self.epoch)

    def retained_size(self, topic: str) -> int | None:
        """Returns the bytes of a topic's retained message, None where it has none; its row alone is looked for."""
        return retained.size_of(self._reading, topic)

    def size_of_state(self) -> int:
        """Returns the bytes of what is neither a message nor a retained one (``schema.size_of_state``)."""
        return schema.size_of_state(self._reading)

    def find_retained(
        self, topic_filter: str, after: str, since: int, now_ms: int
    ) -> tuple[list[tuple[str, int]], str | None]:
        """Returns a piece of the retained messages of a filter, and where it ends (``retained.find``)."""
        return retained.find(self._reading, topic_filter, after, since=since, now_ms=now_ms)

    def read_retained(self, topics: Sequence[str]) -> dict[str, tuple[int, Message] | None]:
        """Returns position and message by topic, None where it has no retained one: as many as fit READ_BYTES_MAX."""
        return retained.read(self._reading, topics, READ_BYTES_MAX)

    def close(self) -> None:
        """What the last commits wrote is copied, and the WAL is there no more, unless another process reads."""
        self._checkpoints.close()
        with contextlib.suppress(sqlite3.Error):  # then the WAL stays, and the next start goes on with it
            self._begin_round(wal_bytes=0)
        self._reading.close()
        self._writing.close()


def _give_up_deletions(work: Sequence[Sequence[Work]]) -> bool:
    """Has works delete nothing that would; returns whether there are any."""
    deletions = [one for group in work for one in group if isinstance(one, Deletion) and not one.is_given_up]
    for one in deletions:
        one.is_given_up = True
    return bool(deletions)
