"""A cursor that leaves messages out: each one is asked for once, and has its range with the place that is behind it."""

import random
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import Cursor, Delivery, LaneCursor, MessageLog
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS
from tests.gateway.store.support import append_all, opened, payloads, stored

RANGES = "SELECT reason, consumer, origin, first, last, messages FROM dropped ORDER BY origin, first"
ROUTE = "route/central"


def keep_tens(message: Message) -> bool:
    return int(message.payload) % 10 != 0


def cursor_of(log: MessageLog, window: int = 65535) -> LaneCursor:
    cursor = LaneCursor(log, ROUTE, ["#"], window=window)
    cursor.drop_by(None, keep_tens)
    return cursor


async def fill(log: MessageLog, numbers: range, origin: str = "a") -> None:
    await append_all(log, (Message("t", b"%d" % n, origin=origin, epoch=7, seq=n) for n in numbers))


async def everything(cursor: Cursor) -> list[int]:
    found: list[int] = []
    while deliveries := await cursor.fetch_now(100):
        found += payloads(deliveries)
        cursor.acknowledge_all([one.packet_identifier for one in deliveries])
    return found


async def in_flight(cursor: Cursor) -> list[Delivery]:
    """All that the window takes."""
    found: list[Delivery] = []
    while deliveries := await cursor.fetch_now(100):
        found += deliveries
    return found


async def test_what_is_left_out_leaves_one_range_with_the_number_of_its_messages(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = cursor_of(log)
        await fill(log, range(1, 101))
        assert await everything(cursor) == list(range(10, 101, 10))
        assert cursor.backlog is not None and cursor.backlog.messages == 0
        assert log.counters.messages_dropped["selected"] == 90
    assert stored(tmp_path, RANGES) == [("selected", ROUTE, "a", 1, 99, 90)]


async def test_a_message_is_asked_for_once_however_often_it_is_looked_at(tmp_path: Path) -> None:
    asked: list[int] = []

    def leaves_out(message: Message) -> bool:
        asked.append(int(message.payload))
        return len(asked) % 3 != 1

    async with opened(tmp_path) as log:
        cursor = LaneCursor(log, ROUTE, ["#"], window=2)
        cursor.drop_by(None, leaves_out)
        await fill(log, range(1, 31))
        sent: list[int] = []
        for _ in range(10):
            await cursor.discard_oldest(lambda _: True)
            first = await cursor.fetch_now(1)
            again = [one.packet_identifier for one in first]
            cursor.redeliver(again)
            assert payloads(await cursor.fetch_now(1)) == payloads(first)
            sent += payloads(first)
            cursor.acknowledge_all(again)
        assert (asked, sent) == (list(range(1, 29)), list(range(1, 29, 3)))


async def test_limits_drop_a_message_before_a_rule_is_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = LaneCursor(log, ROUTE, ["#"])
        cursor.drop_by(lambda message: "expired" if message.payload == b"1" else None, keep_tens)
        await fill(log, range(1, 11))
        assert await everything(cursor) == [10]
    assert stored(tmp_path, RANGES) == [("expired", ROUTE, "a", 1, 1, 1), ("selected", ROUTE, "a", 2, 9, 8)]


async def test_the_window_counts_what_is_in_flight_and_not_what_is_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = cursor_of(log, window=5)
        await fill(log, range(1, 201))
        assert payloads(await in_flight(cursor)) == [10, 20, 30, 40, 50]


async def test_no_two_messages_in_flight_have_the_same_packet_identifier(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = LaneCursor(log, ROUTE, ["#"], window=10)
        cursor.drop_by(None, lambda message: message.topic == "noise")
        await log.submit([Message("t", b"1")])
        (first,) = await cursor.fetch_now(1)
        await log.submit([Message("noise", b"")] * (PACKET_IDENTIFIERS + 10))
        await log.submit([Message("t", b"2")])
        assert await cursor.fetch_now(10) == []
        cursor.acknowledge_all([first.packet_identifier])
        assert payloads(await cursor.fetch_now(10)) == [2]


async def test_what_may_have_been_sent_before_a_crash_is_marked_however_far_apart_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = cursor_of(log, window=5)
        await fill(log, range(1, 101))
        sent = await in_flight(cursor)
        assert not any(one.dup for one in sent)
        cursor.close()
    async with opened(tmp_path) as log:
        again = await in_flight(cursor_of(log, window=5))
        assert [(one.packet_identifier, one.dup) for one in again] == [(one.packet_identifier, True) for one in sent]


@pytest.mark.parametrize("is_acknowledged", [False, True])
async def test_after_a_crash_what_is_left_out_again_has_no_range_yet(
    tmp_path: Path, seed: int, is_acknowledged: bool
) -> None:
    """What the file has at any commit is what a crash leaves: the place, and the ranges up to it."""
    chance = random.Random(seed)
    async with opened(tmp_path) as log:
        cursor = cursor_of(log, window=20)
        for begin in range(1, 2001, 100):
            await fill(log, range(begin, begin + 100), chance.choice("abc"))
            sent = [one.packet_identifier for one in await cursor.fetch_now(20)]
            cursor.acknowledge_all(sent[: chance.randrange(len(sent) + 1)] if is_acknowledged else [])
            log.defer(lambda _: None)
            await log.submit([])
            place = stored(tmp_path, f"SELECT position FROM cursor WHERE consumer = '{ROUTE}'")[0][0]
            noted = stored(tmp_path, "SELECT coalesce(sum(messages), 0) FROM dropped")[0][0]
            assert noted <= place - place // 10 and (not noted or noted >= place - place // 10 - 9)


async def test_a_route_that_ends_notes_what_it_has_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = cursor_of(log)
        await fill(log, range(10, 30))
        assert payloads(await in_flight(cursor)) == [10, 20]
        cursor.drop()
    assert stored(tmp_path, RANGES) == [("selected", ROUTE, "a", 11, 29, 18)]
