"""A store of an earlier version: all that is in it is there afterwards; a newer one is left alone."""

import random
import sqlite3
import subprocess
import sys
import time
import zlib
from pathlib import Path

import msgspec
import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.session_store import SessionDescription, SessionStore, StoredSession
from gateway.store import shelf, wills
from gateway.store.cursor import Cursor
from gateway.store.log import MessageLog
from gateway.store.quarantine import notes_in
from gateway.store.retained import Keep
from gateway.store.schema import SCHEMA_VERSION
from gateway.store.wills import StoredWill
from gateway.subscriptions import Subscription
from tests.gateway.store.support import messages_in, opened, stored
from tests.gateway.store.version_1 import write_store
from tests.gateway.support import ROOT
from wire.packets import Publish
from wire.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL

EPOCH = 77
FIRST = 31  # what is before it was trimmed
MESSAGES = [
    Message(
        f"site/{number % 7}",
        b"%d" % number,
        origin="gw" if number % 3 else "device",
        epoch=EPOCH if number % 3 else 5,
        seq=number,
        received_ms=1000 + number,
        received_by="gw",
        publisher="client",
        properties={CONTENT_TYPE: "text/plain"} if number % 2 else {},
    )
    for number in range(FIRST, FIRST + 900)
]
PLACES = "SELECT consumer, position, count FROM cursor ORDER BY consumer"
HEAD = FIRST + len(MESSAGES) - 1
CURSORS = [("route/central", 500, 470), ("session/s", FIRST - 1, 0), ("share/g/a/#", HEAD, 900)]


def write_old_store(folder: Path) -> None:
    write_store(folder, list(enumerate(MESSAGES, FIRST)), CURSORS, EPOCH, HEAD)


async def test_a_store_of_version_1_is_upgraded_with_all_that_is_in_it(tmp_path: Path) -> None:
    write_old_store(tmp_path)
    async with opened(tmp_path) as log:
        assert (log.head, log.store_epoch) == (HEAD, EPOCH)
        assert log.consumers() == sorted(consumer for consumer, _, _ in CURSORS)
        cursor = Cursor(log, "route/central", ["#"])
        (delivery,) = await cursor.fetch(1)
        assert (delivery.position, delivery.packet_identifier) == (501, 471)
        await log.append(Message("a", b"new"))
    assert messages_in(tmp_path)[: len(MESSAGES)] == list(enumerate(MESSAGES, FIRST))
    position, new = messages_in(tmp_path)[-1]
    assert (position, new.epoch, new.seq) == (HEAD + 1, EPOCH, HEAD + 1)
    assert stored(tmp_path, "PRAGMA integrity_check") == [("ok",)]
    assert stored(tmp_path, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE '%_1'") == []


async def test_an_expiry_interval_that_nobody_counted_begins_with_the_upgrade(tmp_path: Path) -> None:
    message = Message("a", b"", origin="gw", epoch=EPOCH, seq=1, properties={MESSAGE_EXPIRY_INTERVAL: 60})
    write_store(tmp_path, [(1, message)], [], EPOCH, 1)
    before_ms = int(time.time() * 1000)
    async with opened(tmp_path):
        pass
    ((_, upgraded),) = messages_in(tmp_path)
    assert upgraded.properties == {MESSAGE_EXPIRY_INTERVAL: 60}
    assert before_ms + 60_000 <= upgraded.expires_ms <= int(time.time() * 1000) + 60_000


async def test_sessions_of_that_time_are_read_as_they_were(tmp_path: Path) -> None:
    subscription = {"topic_filter": "a/#", "qos": 1, "since": 7, "not_from": None}
    described = {
        "expiry_s": 60,
        "disconnected_ms": 5,
        "subscriptions": [subscription],
        "shared": {"$share/g/b": subscription},
    }
    connection = sqlite3.connect(tmp_path / "sessions.sqlite")
    connection.execute('CREATE TABLE "session" (key TEXT PRIMARY KEY, value BLOB)')
    connection.execute("INSERT INTO session VALUES (?, ?)", ("client", msgspec.msgpack.encode(described)))
    connection.commit()
    connection.close()
    expected = Subscription("a/#", 1, 7)
    sessions = {"client": StoredSession(SessionDescription(60, 5), {"a/#": expected, "$share/g/b": expected})}
    for _ in range(2):  # as they were, and as they are now
        store = SessionStore(tmp_path)
        assert await store.open() == sessions
        await store.close()
    keys = [("client",), ("client\0$share/g/b",), ("client\0a/#",)]
    assert stored(tmp_path, "SELECT key FROM session ORDER BY key", "sessions.sqlite") == keys
    assert stored(tmp_path, "PRAGMA user_version", "sessions.sqlite") == [(2,)]


async def test_an_upgrade_of_sessions_that_ends_in_its_middle_goes_on_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "AT_ONCE", 1)
    own = [Subscription("a"), Subscription("b")]
    described = {"expiry_s": 60, "disconnected_ms": 5, "subscriptions": own, "shared": {}}
    connection = sqlite3.connect(tmp_path / "sessions.sqlite", isolation_level=None)
    connection.execute('CREATE TABLE "session" (key TEXT PRIMARY KEY, value BLOB)')
    connection.execute("INSERT INTO session VALUES (?, ?)", ("client", msgspec.msgpack.encode(described)))
    is_in_its_middle = "WHEN (SELECT count(*) FROM session) > 1 BEGIN SELECT RAISE(ABORT, 'for the test'); END"
    connection.execute(f"CREATE TRIGGER broken BEFORE INSERT ON session {is_in_its_middle}")
    with pytest.raises(StoreError, match="for the test"):
        await SessionStore(tmp_path).open()
    connection.execute("DROP TRIGGER broken")
    connection.close()
    store = SessionStore(tmp_path)
    assert await store.open() == {"client": StoredSession(SessionDescription(60, 5), {"a": own[0], "b": own[1]})}
    await store.close()


async def test_an_empty_store_of_version_1_is_upgraded(tmp_path: Path) -> None:
    write_store(tmp_path, [], [], EPOCH, 0)
    async with opened(tmp_path) as log:
        assert (log.head, log.store_epoch) == (0, EPOCH)


async def test_a_store_of_version_3_gets_the_checksums_of_its_whole_rows(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        for number in range(3):
            await log.append(Message("a", b"%d" % number))
        await log.submit([Keep(Message("kept", b"value", retain=True))])
    before = messages_in(tmp_path)
    connection = sqlite3.connect(tmp_path / "messages.sqlite")
    connection.create_function("crc32", 1, zlib.crc32)
    connection.execute("UPDATE message_group SET crc = crc32(body)")
    connection.execute("UPDATE message_group SET crc = crc + 1 WHERE last = 2")  # damaged, and stays so
    for table in ("retained", "cursor", "will"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN crc")
    connection.execute("PRAGMA user_version = 3")
    connection.commit()
    connection.close()
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "keeper", ["#"])
        deliveries = [(await cursor.fetch(1))[0] for _ in range(2)]
        _, kept = (await log.read_retained(["kept"]))["kept"] or (0, None)
        assert kept is not None and kept.payload == b"value"
    assert [delivery.message for delivery in deliveries] == [before[0][1], before[2][1]]


async def test_a_store_of_version_4_gets_checksums_of_places_and_wills(tmp_path: Path) -> None:
    will = StoredWill("client", "user", Publish("a", b"gone", 1, True), 5)
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        await log.append(Message("a", b""))
        await log.submit([wills.save(will)])
    connection = sqlite3.connect(tmp_path / "messages.sqlite")
    for table in ("cursor", "will"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN crc")
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    for _ in range(2):
        async with opened(tmp_path) as log:
            assert (log.consumers(), log.wills) == (["keeper"], [will])
    assert notes_in(tmp_path) == []


async def test_a_kill_in_the_middle_of_an_upgrade_leaves_either(tmp_path: Path, seed: int) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    write_old_store(whole)
    looks = int(upgrade_in_a_process(whole, 0).stdout)
    for number, count in enumerate([1, 2, *random.Random(seed).sample(range(3, looks), 6), looks]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_old_store(folder)
        assert upgrade_in_a_process(folder, count).returncode == -9
        assert stored(folder, "PRAGMA user_version") in ([(1,)], [(SCHEMA_VERSION,)])
        async with opened(folder) as log:
            assert log.head == HEAD
        assert messages_in(folder) == list(enumerate(MESSAGES, FIRST))
        assert stored(folder, PLACES) == sorted(CURSORS)


def upgrade_in_a_process(folder: Path, count: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gateway.store.version_1", str(folder / "messages.sqlite"), str(count)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", [2, 99])
async def test_a_store_that_this_program_does_not_know_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    async with opened(tmp_path) as log:
        await log.append(Message("a", b""))
    connection = sqlite3.connect(tmp_path / "messages.sqlite")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = (tmp_path / "messages.sqlite").read_bytes()
    with pytest.raises(StoreError, match=rf"messages.sqlite: of version {version}, "):
        await MessageLog.open(tmp_path, origin="gw")
    assert (tmp_path / "messages.sqlite").read_bytes() == before
