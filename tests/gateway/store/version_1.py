"""A store as version 1 of the schema had it, and a process that upgrades one and is killed on the way.

``python -m tests.gateway.store.version_1 FILE COUNT`` kills itself after COUNT hundreds of SQLite's instructions.
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gateway.message import Message
from gateway.store.upgrade import upgrade

SCHEMA = """
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
PRAGMA application_id = 0x486F4664;
PRAGMA user_version = 1;
"""
INSTRUCTIONS = 100  # between two looks


def write_store(
    folder: Path, messages: Iterable[tuple[int, Message]], cursors: Iterable[tuple[str, int, int]], epoch: int, seq: int
) -> None:
    """Makes a store with messages at their positions, and (consumer, position, count)."""
    connection = sqlite3.connect(folder / "messages.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA)
    connection.execute("INSERT INTO identity VALUES (?, ?)", (epoch, seq))
    connection.executemany("INSERT INTO cursor VALUES (?, ?, ?)", cursors)
    for position, m in messages:
        properties = msgspec.msgpack.encode(m.properties)
        row = (position, m.topic, m.payload, m.qos, m.retain, properties, m.origin, m.epoch, m.seq)
        provenance = (m.received_ms, m.received_by, m.publisher)
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row + provenance)
    connection.commit()
    connection.close()


def upgrade_until(path: Path, count: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == count:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.set_progress_handler(look, INSTRUCTIONS)
    upgrade(connection, 1)
    print(looks)


if __name__ == "__main__":
    upgrade_until(Path(sys.argv[1]), int(sys.argv[2]))
