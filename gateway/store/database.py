"""The store's file: messages, cursors and the gateway's own identity counter in one SQLite database.

WAL with ``synchronous=FULL``: a transaction is on the medium when its commit returns. Everything here blocks;
which thread may wait is the log's matter. Writing and reading each have a connection of their own.
"""

import contextlib
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import StoreError
from gateway.message import Message

APPLICATION_ID = 0x486F4664  # "HoFd", so that file(1) and we know whose database this is
SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0  # for somebody else's sqlite3 shell; a second gateway is kept out by the folder's lock
READ_BYTES_MAX = 1024 * 1024  # of payload in one read, so that a backlog of large messages stays on disk

SCHEMA = f"""
CREATE TABLE identity (epoch INTEGER NOT NULL, seq INTEGER NOT NULL) STRICT;
CREATE TABLE message (
    position INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    origin TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    received_by TEXT NOT NULL,
    publisher TEXT NOT NULL
) STRICT;
CREATE TABLE cursor (consumer TEXT PRIMARY KEY, position INTEGER NOT NULL, count INTEGER NOT NULL) STRICT;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

INSERT_MESSAGE = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
READ_MESSAGES = "SELECT * FROM message WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
SAVE_CURSOR = "INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)"

Row = tuple[Any, ...]


@dataclass(slots=True)
class Housekeeping:
    """What goes into a transaction besides messages: (consumer, position, count), names to remove, what to trim."""

    saved: list[tuple[str, int, int]]
    removed: list[str]
    trim_to: int


class Database:
    """One open store file. ``cursors`` and ``oldest`` say what was in it when it was opened.

    Args:
        path: the file; made where there is none.
        origin: the origin of the identities that this store gives out.

    Raises:
        StoreError: it is not a store of ours, or SQLite cannot open it.
    """

    def __init__(self, path: Path, origin: str) -> None:
        self._origin = origin
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
        (self.oldest,) = self._reading.execute("SELECT coalesce(min(position), 0) FROM message").fetchone()
        rows = self._reading.execute("SELECT consumer, position, count FROM cursor")
        self.cursors: dict[str, tuple[int, int]] = {consumer: (position, count) for consumer, position, count in rows}

    def _prepare(self) -> None:
        # The ids are read before anything is written, so that a foreign database stays as it was.
        (application_id,) = self._writing.execute("PRAGMA application_id").fetchone()
        (version,) = self._writing.execute("PRAGMA user_version").fetchone()
        (tables,) = self._writing.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and (application_id, version) != (APPLICATION_ID, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"not a message store of version {SCHEMA_VERSION}")
        self._writing.execute("PRAGMA journal_mode = WAL")
        self._writing.execute("PRAGMA synchronous = FULL")
        if not tables:
            epoch = random.SystemRandom().getrandbits(32)
            self._writing.executescript(f"BEGIN; {SCHEMA} INSERT INTO identity VALUES ({epoch}, 0); COMMIT;")

    def _load_counters(self) -> None:
        (self.position,) = self._writing.execute("SELECT coalesce(max(position), 0) FROM message").fetchone()
        (self._seq,) = self._writing.execute("SELECT seq FROM identity").fetchone()

    def commit(self, work: Sequence[Message | Housekeeping]) -> list[int]:
        """Makes a group durable in one transaction, one sync; gives messages without identity theirs.

        Returns:
            The position of each message; for housekeeping the position reached so far.

        Raises:
            sqlite3.Error: nothing of the group was stored.
        """
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            self._load_counters()  # each time: a transaction that failed has used up neither positions nor numbers
            positions = self._write(work)
            self._writing.execute("COMMIT")
        except Exception:
            self._writing.rollback()
            raise
        return positions

    def _write(self, work: Sequence[Message | Housekeeping]) -> list[int]:
        positions: list[int] = []
        rows: list[Row] = []
        first_seq = self._seq
        for item in work:
            if isinstance(item, Housekeeping):
                self._keep_house(item)
            else:
                self.position += 1
                if not item.origin:
                    self._seq += 1
                    item.origin, item.epoch, item.seq = self._origin, self.epoch, self._seq
                rows.append(_row_from(self.position, item))
            positions.append(self.position)
        self._writing.executemany(INSERT_MESSAGE, rows)
        if self._seq != first_seq:
            self._writing.execute("UPDATE identity SET seq = ?", (self._seq,))
        return positions

    def _keep_house(self, housekeeping: Housekeeping) -> None:
        self._writing.executemany(SAVE_CURSOR, housekeeping.saved)
        self._writing.executemany(
            "DELETE FROM cursor WHERE consumer = ?", ((consumer,) for consumer in housekeeping.removed)
        )
        self._writing.execute("DELETE FROM message WHERE position <= ?", (housekeeping.trim_to,))

    def read(self, after: int, up_to: int, limit: int) -> list[tuple[int, Message]]:
        """Returns up to ``limit`` messages with positions behind ``after``, fewer when they are large."""
        found: list[tuple[int, Message]] = []
        size = 0
        rows = self._reading.execute(READ_MESSAGES, (after, up_to, limit))
        try:
            for row in rows:
                message = _message_from(row)
                found.append((row[0], message))
                size += message.size
                if size > READ_BYTES_MAX:
                    break
        finally:
            rows.close()  # ends the read transaction, or checkpoints could not go past it
        return found

    def close(self) -> None:
        self._reading.close()
        self._writing.close()


def _row_from(position: int, message: Message) -> Row:
    return (
        position,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        msgspec.msgpack.encode(message.properties),
        message.origin,
        message.epoch,
        message.seq,
        message.received_ms,
        message.received_by,
        message.publisher,
    )


def _message_from(row: Row) -> Message:
    _, topic, payload, qos, retain, properties, *rest = row
    return Message(topic, payload, qos, bool(retain), msgspec.msgpack.decode(properties, type=dict[int, Any]), *rest)
