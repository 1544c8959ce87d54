"""A page of the log that the medium has spoilt, under a gateway that goes on."""

import asyncio
import contextlib
import random
import sqlite3
import sys
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.repair import repair
from gateway.store import compaction, groups, housekeeper, quarantine, wills
from gateway.store.cursor import Cursor
from gateway.store.delivery import Delivery
from gateway.store.folder import MESSAGES
from gateway.store.log import MessageLog
from gateway.store.retained import Keep
from gateway.store.wills import StoredWill
from tests.gateway.store.support import messages_in, opened, stored
from tests.gateway.store.test_repair import PAGE, change, fill_with_noise, pages_of_messages, spoil, zero
from tests.gateway.support import LONG_S, Client, running, tcp_port, until
from wire.packets import Publish

COUNT = 200


async def fill(folder: Path, rng: random.Random) -> None:
    async with opened(folder) as log:
        Cursor(log, "keeper", ["#"])
        for number in range(COUNT):
            await log.append(Message("a", b"%d" % number + b" " * rng.choice((50, 400, 9000))))


async def take_all(log: MessageLog, cursor: Cursor, until_number: int) -> list[Delivery]:
    deliveries: list[Delivery] = []
    while not deliveries or int(deliveries[-1].message.payload) < until_number:
        deliveries += await cursor.fetch(100)
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
        found = groups.read(connection, head - count, head)
        return [numbered for group in found for numbered in group.read(0, sys.maxsize)]


@pytest.mark.parametrize("how", [zero, fill_with_noise])
async def test_a_page_that_is_damaged_costs_its_messages_alone_and_the_log_goes_on(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: object
) -> None:
    monkeypatch.setattr(housekeeper, "HOUSEKEEPING_INTERVAL_S", 0.01)
    rng = random.Random(seed)
    await fill(tmp_path, rng)
    model = dict(messages_in(tmp_path))
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    pages = sorted(lying_in[rng.randrange(20, COUNT - 50)])
    spoil(tmp_path / MESSAGES, pages, rng, how)  # type: ignore[arg-type]
    lost = {position for position, its in lying_in.items() if not its.isdisjoint(pages)}
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "keeper", ["#"])
        await log.append(Message("a", b"%d" % COUNT))
        deliveries = await take_all(log, cursor, COUNT)
        assert {delivery.position for delivery in deliveries[:-1]} == model.keys() - lost
        assert all(delivery.message == model[delivery.position] for delivery in deliveries[:-1])
        for delivery in deliveries:
            cursor.acknowledge(delivery.packet_identifier)
        await until(lambda: log.is_damaged, "what is in the way of the trimming is known")
        await log.append(Message("a", b"%d" % (COUNT + 1)))
        assert int((await cursor.fetch(1))[0].message.payload) == COUNT + 1
    assert "nothing is deleted any more until" in caplog.text
    ranges = stored(tmp_path, "SELECT first, last, messages FROM dropped WHERE reason = 'damaged'")
    assert sum(messages for _, _, messages in ranges) == len(lost)
    assert {seq for first, last, _ in ranges for seq in range(first, last + 1)} == {model[one].seq for one in lost}
    assert sum(note.messages for note in quarantine.notes_in(tmp_path)) == len(lost)
    async with opened(tmp_path) as log:  # it is known once and for all
        cursor = Cursor(log, "keeper", ["#"])
        assert [int((await cursor.fetch(1))[0].message.payload)] == [COUNT + 1]
    assert repair(tmp_path, "gw", []).damage
    async with opened(tmp_path) as log:
        assert not log.is_damaged


@pytest.mark.parametrize("how", [zero, fill_with_noise])
@pytest.mark.parametrize("keeps_first", [False, True])
async def test_a_damaged_page_among_messages_that_nobody_needs_fails_no_commit(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, how: object, keeps_first: bool
) -> None:
    """They are trimmed, or taken out behind the first one, for which a consumer waits."""
    monkeypatch.setattr(housekeeper, "HOUSEKEEPING_INTERVAL_S", 0.01)
    filters = ["alarm"] if keeps_first else ["nothing"]
    async with opened(tmp_path) as log:
        Cursor(log, "away", filters)
        log.keep_for(Kept())
        await log.append(Message("alarm", b""))
        for number in range(COUNT):
            await log.append(Message("b", b"%d" % number + bytes(300)))
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    spoil(tmp_path / MESSAGES, sorted(lying_in[COUNT // 2]), random.Random(seed), how)  # type: ignore[arg-type]
    monkeypatch.setattr(compaction, "SWEEP_FROM_BYTES", 20_000)
    async with opened(tmp_path) as log:
        Cursor(log, "away", filters)
        stored_at = []
        while not log.is_damaged:
            stored_at.append(await log.append(Message("b", bytes(300))))
        stored_at += [await log.append(Message("b", b"more")) for _ in range(10)]
    found = [(position, message.seq) for position, message in last_messages(tmp_path, len(stored_at))]
    assert found == [(position, position) for position in stored_at], "no number is left out or given twice"
    assert stored_at == [*range(COUNT + 2, COUNT + 2 + len(stored_at))]


@pytest.mark.parametrize("how", [zero, fill_with_noise])
async def test_consumers_at_different_places_in_a_damaged_page_all_get_past_it(
    tmp_path: Path, seed: int, how: object
) -> None:
    rng = random.Random(seed)
    names = ("first", "second", "third")
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, ["#"]) for name in names]
        for number in range(COUNT):
            await log.append(Message("a", b"%d" % number + b" " * 200))
    model = dict(messages_in(tmp_path))
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    (page,) = lying_in[COUNT // 2]
    lost = sorted(position for position, its in lying_in.items() if page in its)
    places = [lost[len(lost) // 2], lost[len(lost) // 4], 0]
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, ["#"]) for name in names]
        for cursor, place in zip(cursors, places, strict=True):
            while cursor.position < place:
                cursor.acknowledge((await cursor.fetch(1))[0].packet_identifier)
    spoil(tmp_path / MESSAGES, [page], rng, how)  # type: ignore[arg-type]
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
                await log.append(Message("a", b"%d" % number))
            elif number + 1 == row[0]:
                await log.submit([Message("a", b"%d" % one + b" " * 2000) for one in range(number, row[-1])])
        while cursors[0].position < row[4]:
            cursors[0].acknowledge((await cursors[0].fetch(1))[0].packet_identifier)
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    pages = lying_in.pop(row[-1]).difference(*lying_in.values())
    assert len(pages) > 1, "what does not fit the row's own page"
    spoil(tmp_path / MESSAGES, sorted(pages)[1:2], random.Random(seed), zero)
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
        for number in range(COUNT):
            await log.append(Message("a", b"%d" % number + b" " * 200))
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    (page,) = lying_in[COUNT // 2]
    lost = sorted(position for position, its in lying_in.items() if page in its)
    for name, spoilt in (("before", lost[2:4]), ("after", lost)):
        if spoilt is lost:
            spoil(tmp_path / MESSAGES, [page], random.Random(seed), zero)
        else:
            change(tmp_path, f"UPDATE message_group SET crc = crc - 1 WHERE last IN {tuple(spoilt)}")
        async with opened(tmp_path) as log:
            deliveries = await take_all(log, Cursor(log, name, ["#"]), COUNT - 1)
            expected = [position for position in lying_in if position not in spoilt]
            assert [delivery.position for delivery in deliveries] == sorted(expected)
        assert noted_as_damaged(tmp_path) == spoilt


def noted_as_damaged(folder: Path) -> list[int]:
    """The numbers of the identities in the ranges, each as often as it is there, and the ranges count no more."""
    ranges = stored(folder, "SELECT first, last, messages FROM dropped WHERE reason = 'damaged'")
    numbers = sorted(seq for first, last, _ in ranges for seq in range(first, last + 1))
    assert sum(messages for _, _, messages in ranges) == len(numbers)
    assert sum(note.messages for note in quarantine.notes_in(folder)) == len(numbers)
    return numbers


@pytest.mark.parametrize(
    "spoil_it",
    ["SET position = 9", "SET count = 700", "SET consumer = 'session/clienT'", "SET consumer = CAST(x'ff' AS TEXT)"],
)
async def test_a_place_that_is_damaged_makes_nobody_miss_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil_it: str
) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        await client.subscribe("a")
        await client.disconnect()
        publisher = await Client("publisher").connect(tcp_port(broker))
        for number in range(10):
            await publisher.publish("a", b"%d" % number)
    change(tmp_path, f"UPDATE cursor {spoil_it} WHERE consumer = 'session/client'")
    async with opened(tmp_path):
        pass  # as where it is killed before everybody is there again
    assert "the place of consumer" in caplog.text and "was set aside" in caplog.text
    assert len(quarantine.notes_in(tmp_path)) == 1
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        assert client.connack.session_present
        assert [int((await client.receive()).payload) for _ in range(10)] == list(range(10))
        assert sorted(broker.log.consumers()) == ["session/client", "session/publisher"]
    assert repair(tmp_path, "gw", []).damage == []


async def test_a_will_that_is_damaged_is_set_aside(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        will = StoredWill("client", None, Publish("a", b"spoilt", 1), 0)
        await log.submit([wills.save(will)])
    change(tmp_path, "UPDATE will SET topic = 'b'")
    async with opened(tmp_path) as log:
        assert log.wills == []
    (note,) = quarantine.notes_in(tmp_path)
    assert note.place == "the will of client 'client'"
    assert b"spoilt" in note.body


async def test_a_retained_message_that_is_damaged_is_told_and_its_topic_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as log:
        for topic in ("spoilt", "whole"):
            await log.submit([Keep(Message(topic, topic.encode(), retain=True))])
    path = tmp_path / MESSAGES
    data = path.read_bytes()
    assert data.count(b"spoilt" * 2) == 1, "topic and payload lie side by side"
    path.write_bytes(data.replace(b"spoilt" * 2, b"spoiltspoilT"))
    async with opened(tmp_path) as log:
        found = await log.read_retained(["spoilt", "whole"])
        assert found["spoilt"] is None and found["whole"] is not None
        assert log.retained_count == 1
        assert log.counters.messages_dropped["damaged"] == 1
    assert "the retained message of topic 'spoilt' is damaged" in caplog.text
    assert stored(tmp_path, "SELECT reason, messages FROM dropped") == [("damaged", 1)]
    (note,) = quarantine.notes_in(tmp_path)
    assert note.place == "the retained message of topic 'spoilt'"
    assert b"spoilT" in note.body
    assert len(path.read_bytes()) % PAGE == 0


async def test_a_repair_keeps_the_notes_of_what_was_set_aside_before(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    before = quarantine.Note("messages.sqlite", "somewhere", "for the test", "nowhere")
    quarantine.set_aside(tmp_path, [before])
    spoil(tmp_path / MESSAGES, [1], random.Random(seed), zero)
    report = repair(tmp_path, "gw", [])
    kept, new = quarantine.notes_in(tmp_path)
    assert kept == before
    assert new.reason == "; ".join(report.damage)
