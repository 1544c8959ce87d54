"""The store's file: messages, cursors and the gateway's own identity counter in one SQLite database.

WAL with ``synchronous=FULL``: a transaction is on the medium when its commit returns. Everything here blocks;
which thread may wait is the log's matter. Writing and reading each have a connection of their own.
"""

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import damage, drops, flows, groups, incoming, retained, wills
from gateway.store.groups import CorruptGroup, Group, Part
from gateway.store.run import Run

APPLICATION_ID = 0x486F4664  # "HoFd", so that file(1) and we know whose database this is
SCHEMA_VERSION = 3
BUSY_TIMEOUT_S = 10.0  # for somebody else's sqlite3 shell; a second gateway is kept out by the folder's lock
CHECKPOINT_PAGES = 2000  # of the WAL; what is rewritten or trimmed before it is copied is written once less
READ_BYTES_MAX = 1024 * 1024  # of payload in one read, so that a backlog of large messages stays on disk

SCHEMA = f"""
CREATE TABLE identity (epoch INTEGER NOT NULL) STRICT;
{groups.SCHEMA}
CREATE TABLE cursor (consumer TEXT PRIMARY KEY, position INTEGER NOT NULL, count INTEGER NOT NULL) STRICT;
{incoming.SCHEMA}
{flows.SCHEMA}
{retained.SCHEMA}
{wills.SCHEMA}
{drops.SCHEMA}
{damage.SCHEMA}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

SAVE_CURSOR = "INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)"

Work = Part | Callable[[sqlite3.Connection], Any]
"""What a transaction is made of: messages to store, or something else to write with them."""


@dataclass(slots=True)
class Housekeeping:
    """What is written now and then: (consumer, position, count), names to remove, what to trim."""

    saved: list[tuple[str, int, int]]
    removed: list[str]
    trim_to: int

    def __call__(self, connection: sqlite3.Connection) -> int:
        connection.executemany(SAVE_CURSOR, self.saved)
        connection.executemany("DELETE FROM cursor WHERE consumer = ?", ((consumer,) for consumer in self.removed))
        connection.execute(groups.TRIM, (self.trim_to,))
        connection.execute(flows.FORGET_DONE)
        return retained.expire(connection, int(time.time() * 1000))


class Database:
    """One open store file. ``cursors`` and ``oldest`` say what was in it when it was opened, ``used_bytes`` how much
    is in it after the last commit.

    Args:
        path: the file; made where there is none.
        origin: the origin of the identities that this store gives out.
        deflate: whether what is stored is made smaller where it can be, which costs time and spares the medium.

    Raises:
        StoreError: it is not a store of ours, or SQLite cannot open it.
    """

    def __init__(self, path: Path, origin: str, deflate: bool = False) -> None:
        self.origin = origin
        self._deflate = deflate
        with contextlib.ExitStack() as opened:
            try:
                self._writing = sqlite3.connect(
                    path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
                )
                opened.callback(self._writing.close)
                self._prepare()
                self._reading = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                opened.callback(self._reading.close)
                self._load()
            except (sqlite3.Error, TypeError) as error:
                raise StoreError(f"message store {path}: {error}") from error
            opened.pop_all()

    def _load(self) -> None:
        self.epoch = int(self._writing.execute("SELECT epoch FROM identity").fetchone()[0])
        self._load_counters()
        self.oldest: int = (self._reading.execute(groups.OLDEST).fetchone() or (0,))[0]
        rows = self._reading.execute("SELECT consumer, position, count FROM cursor")
        self.cursors: dict[str, tuple[int, int]] = {consumer: (position, count) for consumer, position, count in rows}
        self.flows = flows.load(self._reading)
        self.incoming = incoming.load(self._reading)
        self._measure()
        self.owed = retained.load_owed(self._reading)
        self.wills = wills.load(self._reading)
        self.retained_count = retained.count(self._reading)

    def _prepare(self) -> None:
        # The ids are read before anything is written, so that a foreign database stays as it was.
        (application_id,) = self._writing.execute("PRAGMA application_id").fetchone()
        (version,) = self._writing.execute("PRAGMA user_version").fetchone()
        (tables,) = self._writing.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise sqlite3.DatabaseError("not a message store")
        if tables and version != SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"of version {version}, and this gateway reads version {SCHEMA_VERSION}")
        self._writing.execute("PRAGMA journal_mode = WAL")
        self._writing.execute("PRAGMA synchronous = FULL")
        self._writing.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if not tables:
            epoch = random.SystemRandom().getrandbits(32)
            self._writing.executescript(f"BEGIN; {SCHEMA} INSERT INTO identity VALUES ({epoch}); COMMIT;")

    def _load_counters(self) -> None:
        newest: tuple[int, int] = self._writing.execute(groups.NEWEST).fetchone() or (0, 0)
        self.position, self._seq = newest

    def commit(self, work: Sequence[Sequence[Work]]) -> list[list[Any]]:
        """Makes groups durable in one transaction, one sync; gives messages without identity theirs.

        Returns:
            For each group the position of each message, of a run that of its first one, and what other work returns.

        Raises:
            sqlite3.Error: nothing of any group was stored.
        """
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            self._load_counters()  # each time: a transaction that failed has used up neither positions nor numbers
            results = self._write(work)
            self._writing.execute("COMMIT")
        except Exception:
            self._writing.rollback()
            raise
        self._measure()
        return results

    def _measure(self) -> None:
        pages, free, size = (
            self._writing.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        self.used_bytes = (pages - free) * size

    def _write(self, work: Sequence[Sequence[Work]]) -> list[list[Any]]:
        first = self.position + 1
        parts: list[Part] = []
        results = [
            [self._number(one, parts) if isinstance(one, Part) else one(self._writing) for one in group]
            for group in work
        ]
        groups.write(self._writing, first, parts, self._seq, self._deflate)
        return results

    def _number(self, part: Part, parts: list[Part]) -> int:
        """Gives messages their position, and those that have no identity theirs."""
        position = self.position + 1
        self.position += part.count
        if isinstance(part, Run):
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
        with contextlib.closing(groups.read(self._reading, after, up_to, self.epoch)) as reading:
            try:
                for group in reading:
                    found.append(group)
                    size += group.size
                    if size > READ_BYTES_MAX:
                        break
            except CorruptGroup:
                if not found:
                    raise
        return found

    def read_retained(self, topics: Sequence[str]) -> dict[str, tuple[int, Message]]:
        """Returns position and message by topic, for those that have a retained one."""
        return retained.read(self._reading, topics)

    def close(self) -> None:
        self._reading.close()
        self._writing.close()
