"""A store that an earlier version has written becomes one of this version, in one transaction.

Version 1 had a row for each message and the last number of the store's own identities in ``identity``. Version 2 was
never released. In version 3 a row of the log had a checksum of its body alone, and a retained message had none; in
version 4 consumers' places and wills had none.
"""

import logging
import sqlite3
import time
import zlib
from typing import Any

import msgspec

from gateway.message import Message
from gateway.store import checksum, groups
from gateway.store.schema import SCHEMA_VERSION, TABLES
from wire.properties import MESSAGE_EXPIRY_INTERVAL

FROM_1 = f"""
BEGIN IMMEDIATE;
ALTER TABLE identity RENAME TO identity_1;
ALTER TABLE message RENAME TO message_1;
ALTER TABLE cursor RENAME TO cursor_1;
{TABLES}
INSERT INTO identity SELECT epoch FROM identity_1;
INSERT INTO cursor SELECT consumer, position, count, crc_of_all(consumer, position, count) FROM cursor_1;
"""
DROP_1 = ("DROP TABLE message_1", "DROP TABLE cursor_1", "DROP TABLE identity_1")
TABLES_4 = """
CREATE TABLE cursor_4 (consumer TEXT PRIMARY KEY, position INTEGER NOT NULL, count INTEGER NOT NULL) STRICT;
CREATE TABLE will_4 (
    session TEXT PRIMARY KEY,
    user TEXT,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    delay_s INTEGER NOT NULL,
    due_ms INTEGER NOT NULL
) STRICT;
"""
"""The tables that were others in version 4, as they were: by that a repair knows their rows."""

FROM_4 = f"""
ALTER TABLE cursor ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
UPDATE cursor SET crc = crc_of_all(consumer, position, count);
ALTER TABLE will ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
UPDATE will SET crc = crc_of_all(session, user, topic, payload, qos, retain, properties, delay_s, due_ms);
PRAGMA user_version = {SCHEMA_VERSION};
"""
FROM_3 = """
UPDATE message_group SET crc = crc_of(last, count, seq, deflated, body) WHERE crc = crc32(body);
ALTER TABLE retained ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
UPDATE retained SET crc = crc_of_all(
    topic, position, payload, qos, properties, origin, epoch, seq, received_ms, received_by, publisher, expires_ms
);
"""
MESSAGES = """
SELECT position, topic, payload, qos, retain, properties, origin, epoch, seq, received_ms, received_by, publisher
FROM message_1 ORDER BY position
"""
MESSAGES_AT_ONCE = 200

logger = logging.getLogger(__name__)


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Makes a store of another version one of this version, durably; after an error it is as it was.

    Raises:
        sqlite3.Error: it cannot be read or written, or nothing is known of this version.
    """
    if version not in UPGRADES:
        raise sqlite3.DatabaseError(f"of version {version}, from which there is no way to {SCHEMA_VERSION}")
    checksum.add_to_sql(connection)
    try:
        UPGRADES[version](connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    logger.info("message store: upgraded from version %d to %d", version, SCHEMA_VERSION)


def _upgrade_from_1(connection: sqlite3.Connection) -> None:
    connection.executescript(FROM_1)
    (epoch,) = connection.execute("SELECT epoch FROM identity").fetchone()
    (last_seq,) = connection.execute("SELECT seq FROM identity_1").fetchone()
    _copy_messages(connection, epoch, last_seq)
    for statement in DROP_1:
        connection.execute(statement)


def _upgrade_from_3(connection: sqlite3.Connection) -> None:
    connection.create_function("crc_of", 5, groups.crc_of)
    connection.create_function("crc32", 1, zlib.crc32)
    connection.executescript(f"BEGIN IMMEDIATE; {FROM_3} {FROM_4}")


def _upgrade_from_4(connection: sqlite3.Connection) -> None:
    connection.executescript(f"BEGIN IMMEDIATE; {FROM_4}")


UPGRADES = {1: _upgrade_from_1, 3: _upgrade_from_3, 4: _upgrade_from_4}


def _copy_messages(connection: sqlite3.Connection, epoch: int, last_seq: int) -> None:
    (newest,) = connection.execute("SELECT max(position) FROM message_1").fetchone()
    rows = connection.execute(MESSAGES)
    now_ms = int(time.time() * 1000)
    seq = 0
    while batch := rows.fetchmany(MESSAGES_AT_ONCE):
        messages = [_message_from(row, now_ms) for row in batch]
        seq = max((message.seq for message in messages if message.epoch == epoch), default=seq)
        is_last = batch[-1][0] == newest
        groups.write(connection, batch[0][0], [*messages], last_seq if is_last else seq, deflate=False)


def _message_from(row: tuple[Any, ...], now_ms: int) -> Message:
    _, topic, payload, qos, retain, properties, *rest = row
    message = Message(topic, payload, qos, bool(retain), msgspec.msgpack.decode(properties, type=dict[int, Any]), *rest)
    expiry_s = message.properties.get(MESSAGE_EXPIRY_INTERVAL)
    if expiry_s is not None:
        message.expires_ms = now_ms + 1000 * expiry_s  # version 1 did not count it: it begins now
    return message
