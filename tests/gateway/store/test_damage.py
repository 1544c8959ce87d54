"""A page of the log that the medium has changed, under a gateway that goes on."""

import asyncio
import contextlib
import random
import sqlite3
import sys
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MESSAGES, Cursor, Delivery, MessageLog, compaction, maintenance, quarantine, wills
from gateway.store.repair import repair
from gateway.store.sqlite.wal import PAGE_SIZE
from gateway.store.tables import log_rows
from gateway.store.tables.retained import Keep
from tests.gateway.store.corruption import corrupt_pages, noise, zero
from tests.gateway.store.repair.test_repair import change, pages_of_messages
from tests.gateway.store.support import append_each, messages_in, opened, stored
from tests.gateway.support import LONG_S, Client, connected, running, tcp_port, until
from wire.codec.packets import Publish

COUNT = 200


async def fill(folder: Path, rng: random.Random) -> None:
    async with opened(folder) as log:
        Cursor(log, "keeper", ["#"])
        await append_each(log, (Message("a", b"%d" % n + b" " * rng.choice((50, 400, 9000))) for n in range(COUNT)))


async def take_all(log: MessageLog, cursor: Cursor, until_number: int) -> list[Delivery]:
    deliveries: list[Delivery] = []
    while not deliveries or int(deliveries[-1].message.payload) < until_number:
        deliveries += await cursor.fetch_now(100)
    return deliveries


class Kept:
    """Keeps all messages of the log."""

    position = 0

    def evict(self, position: int) -> None:
        raise AssertionError("the log is not full")


def last_messages(folder: Path, count: int) -> list[tuple[int, Message]]:
    """The newest messages with their positions, from before which not all can be read."""
    connection = sqlite3.connect(folder / MESSAGES)
    with contextlib.closing(connection):
        (head,) = connection.execute("SELECT max(last) FROM message_group").fetchone()
        found = log_rows.read(connection, head - count, head)
        return [numbered for group in found for numbered in group.read(0, sys.maxsize)]


@pytest.mark.parametrize("how", [zero, noise])
async def test_a_page_that_is_damaged_costs_its_messages_alone_and_the_log_goes_on(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: object
) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)
    rng = random.Random(seed)
    await fill(tmp_path, rng)
    model = dict(messages_in(tmp_path))
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    pages = sorted(lying_in[rng.randrange(20, COUNT - 50)])
    corrupt_pages(tmp_path / MESSAGES, pages, rng, how)  # type: ignore[arg-type]
    lost = {position for position, its in lying_in.items() if not its.isdisjoint(pages)}
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "keeper", ["#"])
        await log.submit([Message("a", b"%d" % COUNT)])
        deliveries = await take_all(log, cursor, COUNT)
        assert {delivery.position for delivery in deliveries[:-1]} == model.keys() - lost
        assert all(delivery.message == model[delivery.position] for delivery in deliveries[:-1])
        for delivery in deliveries:
            cursor.acknowledge_all([delivery.packet_identifier])
        await until(lambda: log.space.is_damaged, "what is in the way of the trimming is known")
        await log.submit([Message("a", b"%d" % (COUNT + 1))])
        assert int((await cursor.fetch_now(1))[0].message.payload) == COUNT + 1
    assert "nothing is deleted any more until" in caplog.text
    ranges = stored(tmp_path, "SELECT first, last, messages FROM dropped WHERE reason = 'damaged'")
    assert sum(messages for _, _, messages in ranges) == len(lost)
    assert {seq for first, last, _ in ranges for seq in range(first, last + 1)} == {model[one].seq for one in lost}
    assert sum(note.messages for note in quarantine.notes_in(tmp_path)) == len(lost)
    async with opened(tmp_path) as log:  # it is known once and for all
        cursor = Cursor(log, "keeper", ["#"])
        assert [int((await cursor.fetch_now(1))[0].message.payload)] == [COUNT + 1]
    assert repair(tmp_path, "gw", []).damage
    async with opened(tmp_path) as log:
        assert not log.space.is_damaged


@pytest.mark.parametrize("how", [zero, noise])
@pytest.mark.parametrize("keeps_first", [False, True])
async def test_a_damaged_page_among_messages_that_no_consumer_needs_fails_no_commit(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, how: object, keeps_first: bool
) -> None:
    """They are trimmed, or taken out behind the first one, for which a consumer waits."""
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)
    filters = ["alarm"] if keeps_first else ["nothing"]
    async with opened(tmp_path) as log:
        Cursor(log, "away", filters)
        log.consumers.keepers.keep_for(Kept())
        await append_each(log, [Message("alarm", b""), *(Message("b", b"%d" % n + bytes(300)) for n in range(COUNT))])
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    corrupt_pages(tmp_path / MESSAGES, sorted(lying_in[COUNT // 2]), random.Random(seed), how)  # type: ignore[arg-type]
    monkeypatch.setattr(compaction, "SWEEP_FROM_BYTES", 20_000)
    async with opened(tmp_path) as log:
        Cursor(log, "away", filters)
        stored_at = []
        while not log.space.is_damaged:
            stored_at += await log.submit([Message("b", bytes(300))])
        stored_at += [(await log.submit([Message("b", b"more")]))[0] for _ in range(10)]
    found = [(position, message.seq) for position, message in last_messages(tmp_path, len(stored_at))]
    assert found == [(position, position) for position in stored_at], "no number is left out or given twice"
    assert stored_at == [*range(COUNT + 2, COUNT + 2 + len(stored_at))]


@pytest.mark.parametrize("how", [zero, noise])
async def test_consumers_at_different_places_in_a_damaged_page_all_get_past_it(
    tmp_path: Path, seed: int, how: object
) -> None:
    rng = random.Random(seed)
    names = ("first", "second", "third")
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, ["#"]) for name in names]
        await append_each(log, [Message("a", b"%d" % number + b" " * 200) for number in range(COUNT)])
    model = dict(messages_in(tmp_path))
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    (page,) = lying_in[COUNT // 2]
    lost = sorted(position for position, its in lying_in.items() if page in its)
    places = [lost[len(lost) // 2], lost[len(lost) // 4], 0]
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, ["#"]) for name in names]
        for cursor, place in zip(cursors, places, strict=True):
            while cursor.position < place:
                cursor.acknowledge_all([(await cursor.fetch_now(1))[0].packet_identifier])
    corrupt_pages(tmp_path / MESSAGES, [page], rng, how)  # type: ignore[arg-type]
    async with opened(tmp_path) as log:
        for name, place in zip(names, places, strict=True):
            deliveries = await take_all(log, Cursor(log, name, ["#"]), COUNT - 1)
            expected = [position for position in model if position > place and position not in lost]
            assert [delivery.position for delivery in deliveries] == expected
    assert noted_as_damaged(tmp_path) == [model[position].seq for position in lost]


@pytest.mark.parametrize("at_once", [False, True])
async def test_consumers_at_different_places_in_a_damaged_row_all_get_past_it(
    tmp_path: Path, seed: int, at_once: bool
) -> None:
    row = range(21, 31)  # positions
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, ["#"]) for name in ("ahead", "behind")]
        for number in range(40):
            if number + 1 not in row:
                await log.submit([Message("a", b"%d" % number)])
            elif number + 1 == row[0]:
                await log.submit([Message("a", b"%d" % one + b" " * 2000) for one in range(number, row[-1])])
        while cursors[0].position < row[4]:
            cursors[0].acknowledge_all([(await cursors[0].fetch_now(1))[0].packet_identifier])
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    pages = lying_in.pop(row[-1]).difference(*lying_in.values())
    assert len(pages) > 1, "what does not fit the row's own page"
    corrupt_pages(tmp_path / MESSAGES, sorted(pages)[1:2], random.Random(seed), zero)
    async with opened(tmp_path) as log, asyncio.timeout(LONG_S):
        ahead, behind = (take_all(log, Cursor(log, name, ["#"]), 39) for name in ("ahead", "behind"))
        got = await asyncio.gather(ahead, behind) if at_once else [await ahead, await behind]
        after = [*range(row[-1] + 1, 41)]
        assert [delivery.position for delivery in got[0]] == after
        assert [delivery.position for delivery in got[1]] == [*range(1, row[0]), *after]
        assert log.counters.messages_dropped["damaged"] == len(row)
    assert noted_as_damaged(tmp_path) == list(row)


async def test_a_row_that_was_set_aside_counts_once_where_its_page_is_damaged_later(tmp_path: Path, seed: int) -> None:
    async with opened(tmp_path) as log:
        for name in ("before", "after"):
            Cursor(log, name, ["#"])
        await append_each(log, [Message("a", b"%d" % number + b" " * 200) for number in range(COUNT)])
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    (page,) = lying_in[COUNT // 2]
    lost = sorted(position for position, its in lying_in.items() if page in its)
    for name, corrupt in (("before", lost[2:4]), ("after", lost)):
        if corrupt is lost:
            corrupt_pages(tmp_path / MESSAGES, [page], random.Random(seed), zero)
        else:
            change(tmp_path, f"UPDATE message_group SET crc = crc - 1 WHERE last IN {tuple(corrupt)}")
        async with opened(tmp_path) as log:
            deliveries = await take_all(log, Cursor(log, name, ["#"]), COUNT - 1)
            expected = [position for position in lying_in if position not in corrupt]
            assert [delivery.position for delivery in deliveries] == sorted(expected)
        assert noted_as_damaged(tmp_path) == corrupt


async def test_a_row_of_nulls_is_set_aside_and_the_rest_is_delivered(tmp_path: Path) -> None:
    """SQLite reads a damaged page as such rows, although the columns are NOT NULL."""
    lost = [COUNT // 2, COUNT // 2 + 1]
    async with opened(tmp_path) as log:
        Cursor(log, "reader", ["#"])
        await append_each(log, [Message("a", b"%d" % number) for number in range(COUNT)])
    with contextlib.closing(sqlite3.connect(tmp_path / MESSAGES, isolation_level=None)) as connection:
        (schema,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'message_group'").fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        rewrite = "UPDATE sqlite_schema SET sql = ? WHERE name = 'message_group'"
        connection.execute(rewrite, (schema.replace(" NOT NULL", "").replace("STRICT", ""),))
        connection.execute("PRAGMA writable_schema = RESET")
        nulls = ", ".join(f"{column} = NULL" for column in ("count", "seq", "deflated", "crc", "body"))
        connection.execute(f"UPDATE message_group SET {nulls} WHERE last IN {tuple(lost)}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(rewrite, (schema,))
        connection.execute("PRAGMA writable_schema = RESET")
    async with opened(tmp_path) as log, asyncio.timeout(LONG_S):
        deliveries = await take_all(log, Cursor(log, "reader", ["#"]), COUNT - 1)
        assert [delivery.position for delivery in deliveries] == [n for n in range(1, COUNT + 1) if n not in lost]
    assert noted_as_damaged(tmp_path) == lost


def noted_as_damaged(folder: Path) -> list[int]:
    """The numbers of the identities in the ranges, each as often as it is there, and the ranges count no more."""
    ranges = stored(folder, "SELECT first, last, messages FROM dropped WHERE reason = 'damaged'")
    numbers = sorted(seq for first, last, _ in ranges for seq in range(first, last + 1))
    assert sum(messages for _, _, messages in ranges) == len(numbers)
    assert sum(note.messages for note in quarantine.notes_in(folder)) == len(numbers)
    return numbers


@pytest.mark.parametrize(
    "corruption",
    ["SET position = 9", "SET count = 700", "SET consumer = 'session/clienT'", "SET consumer = CAST(x'ff' AS TEXT)"],
)
async def test_a_damaged_place_makes_no_consumer_miss_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, corruption: str
) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        await client.subscribe("a")
        await client.disconnect()
        publisher = await connected(broker, "publisher")
        for number in range(10):
            await publisher.publish("a", b"%d" % number)
    change(tmp_path, f"UPDATE cursor {corruption} WHERE consumer = 'session/client'")
    async with opened(tmp_path):
        pass  # as if it is killed before every consumer is back
    assert "the place of consumer" in caplog.text and "was set aside" in caplog.text
    assert len(quarantine.notes_in(tmp_path)) == 1
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        assert client.connack.session_present
        assert [int((await client.receive()).payload) for _ in range(10)] == list(range(10))
        assert sorted(broker.log.consumers.names()) == ["session/client", "session/publisher"]
    assert repair(tmp_path, "gw", []).damage == []


async def test_a_will_that_is_damaged_is_set_aside(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        will = wills.StoredWill("client", None, Publish("a", b"corrupt", 1), 0)
        await log.submit([wills.save(will)])
    change(tmp_path, "UPDATE will SET topic = 'b'")
    async with opened(tmp_path) as log:
        assert log.found.wills == []
    (note,) = quarantine.notes_in(tmp_path)
    assert note.what == "the will of client 'client'"
    assert b"corrupt" in note.body


async def test_a_retained_message_that_is_damaged_is_told_and_its_topic_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as log:
        for topic in ("corrupt", "whole"):
            await log.submit([Keep(Message(topic, topic.encode(), retain=True))])
    path = tmp_path / MESSAGES
    data = path.read_bytes()
    assert data.count(b"corrupt" * 2) == 1, "topic and payload lie side by side"
    path.write_bytes(data.replace(b"corrupt" * 2, b"corruptcorrupT"))
    async with opened(tmp_path) as log:
        found = await log.reader.read_retained(["corrupt", "whole"])
        assert found["corrupt"] is None and found["whole"] is not None
        assert log.space.retained.topics == 1
        assert log.counters.messages_dropped["damaged"] == 1
    assert "the retained message of topic 'corrupt' is damaged" in caplog.text
    assert stored(tmp_path, "SELECT reason, messages FROM dropped") == [("damaged", 1)]
    (note,) = quarantine.notes_in(tmp_path)
    assert note.what == "the retained message of topic 'corrupt'"
    assert b"corrupT" in note.body
    assert len(path.read_bytes()) % PAGE_SIZE == 0


async def test_a_repair_keeps_the_notes_of_what_was_set_aside_before(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    before = quarantine.Note("messages.sqlite", "somewhere", "for the test", "nowhere")
    quarantine.set_aside(tmp_path, [before])
    corrupt_pages(tmp_path / MESSAGES, [1], random.Random(seed), zero)
    report = repair(tmp_path, "gw", [])
    kept, new = quarantine.notes_in(tmp_path)
    assert kept == before
    assert new.reason == "; ".join(report.damage)
