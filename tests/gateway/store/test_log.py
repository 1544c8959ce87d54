"""The message log: durable before a position is known, read back the same, trimmed behind the slowest cursor."""

import asyncio
import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import Cursor, Delivery, MessageLog, maintenance
from gateway.store import log as log_module
from gateway.store import reader as tail_module
from gateway.store.sqlite.wal import PAGE_SIZE
from gateway.store.tables.retained import Keep
from gateway.store.tables.schema import SCHEMA_VERSION
from tests.gateway.store.support import (
    append_all,
    append_each,
    disk_full,
    epoch_of,
    fetch_many,
    messages_in,
    numbered,
    opened,
    stored,
)
from tests.gateway.support import until
from tools.lab.testing.process import process_io
from wire.properties import CONTENT_TYPE, USER_PROPERTY


async def test_messages_come_back_as_they_were(tmp_path: Path) -> None:
    message = Message(
        "a/b",
        b"\x00payload",
        qos=1,
        properties={CONTENT_TYPE: "text/plain", USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "3")]},
        origin="device",
        epoch=7,
        seq=9,
        received_ms=123,
        received_by="gw",
        publisher="client",
    )
    async with opened(tmp_path) as log:
        assert await log.submit([message]) == [1]
    async with opened(tmp_path) as log:
        ((position, read),) = await log.read(0, 10)
        assert position == 1
        assert [tuple(pair) for pair in read.properties.pop(USER_PROPERTY)] == message.properties.pop(USER_PROPERTY)
        assert read == message


async def test_a_message_without_identity_gets_the_next_one_of_the_store(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        identified = Message("a", b"", origin="device", epoch=1, seq=5)
        await append_all(log, [Message("a", b""), identified, Message("a", b"")])
        epoch = epoch_of(tmp_path)
    async with opened(tmp_path) as log:
        await log.submit([Message("a", b"")])
        assert epoch_of(tmp_path) == epoch
    identities = [(message.origin, message.epoch, message.seq) for _, message in messages_in(tmp_path)]
    assert identities == [("gw", epoch, 3)]  # no consumer needed the others


async def test_two_stores_have_different_epochs(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with opened(one), opened(two):
        assert epoch_of(one) != epoch_of(two)


async def test_a_commit_interval_gathers_what_comes_within_it(tmp_path: Path) -> None:
    log = await MessageLog.open(tmp_path, origin="gw", commit_interval_ms=1000)
    await log.submit([Message("a", b"first")])
    second = log.submit([Message("a", b"second")])
    for _ in range(3):
        await asyncio.sleep(0)  # without an interval the commit would have begun
    third = log.submit([Message("a", b"third")])
    await second
    assert third.done()
    await log.close()


async def test_a_disk_that_is_full_fails_the_messages_concerned_and_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        [before] = await log.submit([Message("a", b"before")])
        with disk_full(), pytest.raises(sqlite3.OperationalError):
            await log.submit([Message("a", b"x" * 10_000)])
        assert await log.submit([Message("a", b"after")]) == [before + 1]
        assert [message.payload for _, message in await log.read(0, 10)] == [b"before", b"after"]
        assert [message.seq for _, message in await log.read(0, 10)] == [1, 2]  # dense: nothing seems lost later


async def test_messages_older_than_the_tail_are_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "CACHE_MESSAGES_MAX", 10)
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        await append_all(log, [Message("a", b"%d" % number) for number in range(100)])
        for after in (0, 42, 88, 89, 90, 95, 99, 100):
            positions = [position for position, _ in await log.read(after, 20)]
            assert positions == list(range(after + 1, min(after + 20, 100) + 1))
        assert (await log.read(41, 1))[0][1].payload == b"41"


async def test_a_read_of_large_messages_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "CACHE_BYTES_MAX", 1000)
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        await append_all(log, [Message("a", b"x" * 400_000) for _ in range(6)])
        assert len(await log.read(0, 6)) == 3


async def test_the_log_is_trimmed_behind_the_slowest_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)
    async with opened(tmp_path) as log:
        fast, slow = Cursor(log, "fast", ["#"]), Cursor(log, "slow", ["#"], durable=False)
        await append_each(log, numbered(10))  # what was stored together is trimmed together
        for cursor, acknowledged in ((fast, 10), (slow, 4)):
            for delivery in (await cursor.fetch_now(10))[:acknowledged]:
                cursor.acknowledge_all([delivery.packet_identifier])
        await until(lambda: messages_in(tmp_path)[0][0] == 5, "trimmed to 5")
        slow.close()
        await until(lambda: messages_in(tmp_path)[0][0] == 10, "all but the newest")


async def test_a_durable_consumer_that_is_away_keeps_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["#"]).close()
        Cursor(log, "here", ["#"], durable=False)
    async with opened(tmp_path) as log:
        assert log.consumers.names() == ["away"]
        await append_each(log, numbered(10))
        runs = list[object]()
        log.defer(runs.append)
        await until(lambda: runs, "the maintenance has run")
        await log.submit([])
        assert len(messages_in(tmp_path)) == 10
        log.forget("away")
        assert log.consumers.names() == []
        await until(lambda: len(messages_in(tmp_path)) == 1, "no consumer needs them")


async def test_trimming_keeps_up_however_many_messages_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TRIM_MOST", 5)
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "route/central", ["#"])
        await append_each(log, numbered(150))
        cursor.acknowledge_all([delivery.packet_identifier for delivery in await cursor.fetch_now(150)])
        await until(lambda: len(messages_in(tmp_path)) < 10, "all are trimmed")


async def test_between_two_commits_as_much_is_trimmed_as_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "TRIM_MOST", 5)
    async with opened(tmp_path, commit_interval_ms=400) as log:
        cursor = Cursor(log, "route/central", ["#"])
        for _ in range(5):
            await append_all(log, numbered(20))
        cursor.acknowledge_all([delivery.packet_identifier for delivery in await cursor.fetch_now(100)])
        await until(lambda: log.space.stored_count < 100, "the first are trimmed")
        assert log.space.stored_count == 1


async def test_what_is_trimmed_is_not_written_once_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "route/central", ["#"])
        await append_each(log, [Message("a", os.urandom(100_000)) for _ in range(15)])
        before = process_io(os.getpid(), "wchar")
        cursor.acknowledge_all([delivery.packet_identifier for delivery in await fetch_many(cursor, 15)])
        await until(lambda: len(messages_in(tmp_path)) == 1, "all are trimmed")
        assert process_io(os.getpid(), "wchar") - before < 500_000
        assert log.space.used_bytes < 500_000


@pytest.mark.parametrize("size", [100, 1500])
async def test_the_bytes_in_use_are_known_to_three_pages_after_each_small_commit(tmp_path: Path, size: int) -> None:
    async with opened(tmp_path) as log:
        with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as store:
            for _ in range(30):
                await log.submit([Message("a", os.urandom(size))])
                ((pages,),) = store.execute(
                    "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"
                )
                assert abs(log.space.used_bytes - pages * PAGE_SIZE) <= 3 * PAGE_SIZE


async def test_positions_go_on_where_they_were_after_everything_was_trimmed(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await append_all(log, [Message("a", b"") for _ in range(5)])
    async with opened(tmp_path) as log:
        assert log.head == 5
        assert await log.submit([Message("a", b"")]) == [6]


async def test_a_store_in_use_is_refused_by_name(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreError, match=f"{tmp_path}: another process uses it"):
            await MessageLog.open(tmp_path, origin="gw")


async def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "messages.sqlite")
    other.execute("CREATE TABLE another (thing)")
    other.close()
    before = (tmp_path / "messages.sqlite").read_bytes()
    with pytest.raises(StoreError, match=r"messages.sqlite: not a message store"):
        await MessageLog.open(tmp_path, origin="gw")
    assert (tmp_path / "messages.sqlite").read_bytes() == before
    (tmp_path / "messages.sqlite").write_bytes(b"no database at all, but long enough to look" * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        await MessageLog.open(tmp_path, origin="gw")


@pytest.mark.parametrize("version", [6, SCHEMA_VERSION + 1])
async def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    async with opened(tmp_path) as log:
        await log.submit([Message("a", b"")])
    stored(tmp_path, f"PRAGMA user_version = {version}")
    before = (tmp_path / "messages.sqlite").read_bytes()
    refused = rf"messages.sqlite: of version {version}, and this gateway reads versions 7 to {SCHEMA_VERSION}: "
    with pytest.raises(StoreError, match=refused):
        await MessageLog.open(tmp_path, origin="gw")
    assert (tmp_path / "messages.sqlite").read_bytes() == before


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/store: .*/file: Not a directory"):
        await MessageLog.open(tmp_path / "file/store", origin="gw")


async def test_a_cursor_that_could_not_be_saved_is_saved_with_the_next_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as log:
        await log.submit([Message("a", b"")])
        with disk_full():
            cursor = Cursor(log, "route/" + "x" * 10_000, ["#"])
            await until(lambda: "cursors could not be saved" in caplog.text, "said so")
        await log.submit([Message("a", b"")])
        assert stored(tmp_path, "SELECT position, count FROM cursor") == [(1, 0)]
        assert (await cursor.fetch_now(1))[0].position == 2


async def test_what_was_put_off_and_failed_is_written_in_its_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.submit([Message("a", b"")])
        failing = []
        with disk_full():
            for payload in (b"old", b"new"):
                log.defer(Keep(Message("kept", payload, retain=True)))
                failing.append(log.submit([Message("a", b"x" * 10_000)]))
                await asyncio.sleep(0)  # its commit has begun, so that the second one fails behind it
            assert all(await asyncio.gather(*failing, return_exceptions=True))
        await log.submit([Message("a", b"")])
        _, message = (await log.reader.read_retained(["kept"]))["kept"] or (0, None)
        assert message is not None
        assert message.payload == b"new"


async def test_publishers_wait_while_too_much_is_not_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "UNCOMMITTED_BYTES_MAX", 10_000)
    async with opened(tmp_path) as log:
        future = log.submit([Message("a", b"x" * 20_000)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await log.writer.wait_for_room()
        await future
        await log.writer.wait_for_room()


async def test_publishers_wait_after_few_retained_messages_with_long_names(tmp_path: Path) -> None:
    """Each is looked for in the database's tree, where a long name is read again at each level."""
    async with opened(tmp_path) as log:
        for number in range(20):
            log.defer(Keep(Message(f"{60_000 * 'a'}{number}", b"x", retain=True)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await log.writer.wait_for_room()
        for number in range(20):
            log.defer(Keep(Message(f"a/{number}", b"x", retain=True)))
        await log.writer.wait_for_room()


async def test_damaged_messages_are_set_aside_and_everything_else_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        await append_each(log, numbered(9))
    damage(tmp_path, [3, 4, 9])
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "keeper", ["#"])
        assert log.head == 9
        await log.submit([Message("a", b"9")])
        deliveries: list[Delivery] = []
        while len(deliveries) < 7:
            deliveries += await cursor.fetch_now(100)
        assert [int(delivery.message.payload) for delivery in deliveries] == [0, 1, 4, 5, 6, 7, 9]
        assert [delivery.position for delivery in deliveries] == [1, 2, 5, 6, 7, 8, 10]
        assert deliveries[-1].message.seq == 10
        for delivery in deliveries:
            cursor.acknowledge_all([delivery.packet_identifier])
        assert cursor.position == 10
        ranges = stored(tmp_path, "SELECT reason, origin, first, last, messages FROM dropped ORDER BY first")
        assert ranges == [("damaged", "gw", number, number, 1) for number in (3, 4, 9)]
        assert len(stored(tmp_path, "SELECT body FROM damaged")) == 3
    assert caplog.text.count("are damaged in the file; they are set aside") == 3


def damage(folder: Path, positions: list[int]) -> None:
    """Changes a byte of each row that ends there."""
    connection = sqlite3.connect(folder / "messages.sqlite")
    for position in positions:
        (body,) = connection.execute("SELECT body FROM message_group WHERE last = ?", (position,)).fetchone()
        corrupt = bytes((body[0], body[1] ^ 1)) + body[2:]
        connection.execute("UPDATE message_group SET body = ? WHERE last = ?", (corrupt, position))
    connection.commit()
    connection.close()
