"""Cursors: in order, nothing skipped, nothing twice, and in the same place after a crash."""

import asyncio
import contextlib
import random
import sys
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import Cursor, Delivery, GroupCursor, MessageLog, count_backlogs, maintenance, qos2
from gateway.store.consumers import registry
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS
from gateway.subscriptions import Subscription
from tests.gateway.store.support import CountsBacklogs, append_all, numbered, opened, payloads, redeliver_all, stored
from tests.gateway.support import until


async def nothing_comes(cursor: Cursor) -> bool:
    return not await cursor.fetch_now(1)


async def test_a_new_consumer_begins_at_the_head(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await append_all(log, numbered(3))
        cursor = Cursor(log, "route/central", ["#"])
        assert await nothing_comes(cursor)
        await log.submit([Message("a", b"7")])
        (delivery,) = await cursor.fetch_now(10)
        assert (delivery.position, delivery.packet_identifier, delivery.dup, delivery.qos) == (4, 1, False, 1)


async def test_what_is_stored_for_others_is_passed_over_without_a_look(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "quiet", ["quiet"])
        await log.submit([Message("quiet", b"0")])
        await append_all(log, numbered(5000, "noise"))
        await log.submit([Message("quiet", b"1")])
        (first,) = await cursor.fetch_now(1)
        cursor.acknowledge_all([first.packet_identifier])
        assert cursor.position == 5001
        assert payloads(await cursor.fetch_now(1)) == [1]


async def test_what_is_discarded_gives_no_packet_identifier_away_that_is_in_use(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs())
        cursor = Cursor(log, "session/c", ["a"], window=1000)
        await append_all(log, numbered(2))
        await cursor.fetch_now(2)
        await append_all(log, numbered(PACKET_IDENTIFIERS - 1))
        await cursor.discard_oldest(lambda backlog: backlog.messages <= 2)
        await append_all(log, numbered(1))
        assert await cursor.fetch_now(1) == []  # until the first one is acknowledged
        redeliver_all(cursor)
        assert [delivery.packet_identifier for delivery in await cursor.fetch_now(10)] == [1, 2]


async def test_what_a_client_has_already_is_not_discarded(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "session/c", ["a"])
        await append_all(log, numbered(4))
        await cursor.fetch_now(2)
        await log.submit([qos2.begin([qos2.Flow("c", 9, "session/c", 2)])])
        cursor.acknowledge_all([2])
        cursor.close()
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs())
        cursor = Cursor(log, "session/c", ["a"])
        await count_backlogs(log, [cursor])
        await cursor.discard_oldest(lambda backlog: backlog.messages <= 1)
        assert payloads(await cursor.fetch_now(10)) == [3]
    assert stored(tmp_path, "SELECT first, messages FROM dropped WHERE reason = 'evicted' ORDER BY first") == [
        (1, 1),
        (3, 1),
    ]


async def test_one_that_is_never_acknowledged_stops_no_other_where_the_window_has_no_end(tmp_path: Path) -> None:
    count = 66_000
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "share/group/a", ["a"], window=sys.maxsize)
        await append_all(log, numbered(count))
        received = payloads(await cursor.fetch_now(1))
        while len(received) < count:
            deliveries = await cursor.fetch_now(1000)
            received += payloads(deliveries)
            cursor.acknowledge_all([delivery.packet_identifier for delivery in deliveries])
        assert received == list(range(count))
        assert (cursor.position, cursor.count) == (0, 0)
        redeliver_all(cursor)
        assert payloads(await cursor.fetch_now(10)) == [0]
        cursor.acknowledge_all([1])
        assert (cursor.position, cursor.count) == (count, count)


async def test_fetch_waits_for_the_next_message(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = GroupCursor(log, "c", ["#"])
        fetching = asyncio.create_task(cursor.fetch(10))
        await asyncio.sleep(0)
        log.submit([Message("a", b"1")])
        assert payloads(await fetching) == [1]


@pytest.mark.usefixtures("from_file")
async def test_a_cancelled_fetch_loses_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor, received = Cursor(log, "c", ["#"]), list[int]()
        await append_all(log, numbered(50))
        for turns in range(1, 30):
            fetching = asyncio.create_task(cursor.fetch_now(1))
            for _ in range(turns):
                await asyncio.sleep(0)
            assert turns > 1 or not fetching.done(), "it waits for the file"
            fetching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                received += payloads(await fetching)
        assert received + payloads(await cursor.fetch_now(50)) == list(range(50))


async def test_messages_for_others_only_move_the_position(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["mine/#"])
        await append_all(log, [*numbered(5, "others"), *numbered(2, "mine/a"), *numbered(3, "others")])
        first, second = await cursor.fetch_now(10)
        assert (first.position, second.position, cursor.position, cursor.count) == (6, 7, 5, 0)
        cursor.acknowledge_all([first.packet_identifier])
        assert (cursor.position, cursor.count) == (6, 1)
        cursor.acknowledge_all([second.packet_identifier])
        assert await nothing_comes(cursor)
        assert (cursor.position, cursor.count) == (10, 2)


async def test_a_caught_up_consumer_that_is_away_holds_back_nothing_of_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["mine"])
        await append_all(log, numbered(100, "others"))
        assert cursor.position == 100
        await append_all(log, [*numbered(1, "mine"), *numbered(10, "others")])
        assert cursor.position == 100


async def test_a_place_is_saved_now_and_then_also_where_all_was_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)
    monkeypatch.setattr(registry, "PASSED_MOST", 100)
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["mine"])
        Cursor(log, "keeper", ["#"])
        for _ in range(3):
            await append_all(log, numbered(90, "others"))
            await until(lambda: log.head - place_in(tmp_path, "away") < 100, "its place is saved")


def place_in(folder: Path, consumer: str) -> int:
    return int(stored(folder, f"SELECT position FROM cursor WHERE consumer = '{consumer}'")[0][0])


async def test_acknowledgements_out_of_order_move_the_position_by_the_prefix(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"])
        await append_all(log, numbered(4))
        deliveries = await cursor.fetch_now(4)
        for index, position in ((2, 0), (1, 0), (0, 3), (3, 4)):
            assert cursor.acknowledge_all([deliveries[index].packet_identifier])
            assert cursor.position == position
            assert cursor.count == position
        assert not cursor.acknowledge_all([deliveries[0].packet_identifier])


async def test_rewinding_repeats_what_is_unacknowledged_with_the_same_identifiers(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"])
        await append_all(log, numbered(6))
        deliveries = await cursor.fetch_now(5)
        cursor.acknowledge_all([deliveries[1].packet_identifier])
        redeliver_all(cursor)
        redeliver_all(cursor)
        again = await cursor.fetch_now(10)
        assert again == [delivery._replace(dup=True) for delivery in deliveries if delivery is not deliveries[1]]
        (new,) = await cursor.fetch_now(10)
        assert (new.packet_identifier, new.dup) == (6, False)


async def test_released_deliveries_come_before_new_ones_to_the_next_that_fetches(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = GroupCursor(log, "c", ["#"])
        await append_all(log, numbered(6))
        lost = (await cursor.fetch_now(2))[1]
        held = await cursor.fetch_now(2)
        waiting = asyncio.create_task(cursor.fetch(4))
        assert payloads(await waiting) == [4, 5]
        waiting = asyncio.create_task(cursor.fetch(4))
        await asyncio.sleep(0)
        cursor.redeliver([held[0].packet_identifier, lost.packet_identifier])
        assert payloads(await waiting) == [1, 2]


async def test_a_crash_repeats_the_unacknowledged_with_the_same_identifiers(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"])
        await append_all(log, numbered(70_000))
        while cursor.count < 69_990:
            for delivery in await cursor.fetch_now(min(1000, 69_990 - cursor.count)):
                cursor.acknowledge_all([delivery.packet_identifier])
        before = await cursor.fetch_now(3)
        assert [delivery.packet_identifier for delivery in before] == [4456, 4457, 4458]
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"], window=3)
        assert (cursor.position, cursor.count) == (69_990, 69_990)
        after = await cursor.fetch_now(3)
        assert after == [delivery._replace(dup=True) for delivery in before]
        for delivery in after:
            cursor.acknowledge_all([delivery.packet_identifier])
        assert not any(delivery.dup for delivery in await cursor.fetch_now(3))


async def test_the_window_bounds_what_is_unacknowledged(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"], window=4)
        await append_all(log, numbered(10))
        deliveries = [*await cursor.fetch_now(3), *await cursor.fetch_now(3)]
        assert payloads(deliveries) == [0, 1, 2, 3]
        cursor.acknowledge_all([deliveries[1].packet_identifier])
        assert await nothing_comes(cursor)
        cursor.acknowledge_all([deliveries[0].packet_identifier])
        assert payloads(await cursor.fetch_now(9)) == [4, 5]


async def test_a_subscription_made_later_does_not_reach_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", [Subscription("a", qos=1)])
        await append_all(log, [Message("a", b"0"), Message("b", b"1")])
        cursor.subscribe(Subscription("b", qos=0, since=log.head))
        await append_all(log, [Message("b", b"2"), Message("a", b"3")])
        deliveries = await cursor.fetch_now(10)
        assert [(int(d.message.payload), d.qos) for d in deliveries] == [(0, 1), (2, 0), (3, 1)]


async def test_overlapping_subscriptions_deliver_once_at_the_highest_qos(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", [Subscription("a/#", qos=0), Subscription("a/+", qos=1)])
        await log.submit([Message("a/b", b"0")])
        (delivery,) = await cursor.fetch_now(10)
        assert delivery.qos == 1


async def test_one_consumer_has_one_cursor(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "c", ["#"])
        with pytest.raises(ValueError, match="'c' has a cursor already"):
            Cursor(log, "c", ["#"])


async def test_a_dropped_consumer_begins_anew(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"])
        await append_all(log, numbered(3))
        cursor.drop()
        again = Cursor(log, "c", ["#"])
        assert (again.position, again.count) == (3, 0)
    assert stored(tmp_path, "SELECT consumer, position, count FROM cursor WHERE consumer = 'c'") == [("c", 3, 0)]


async def test_random_walks_agree_with_a_list(tmp_path: Path, seed: int) -> None:
    """A list of what was published and a set of what was acknowledged, beside the real cursor over restarts."""
    chance = random.Random(seed)
    published: list[int] = []
    expected: list[int] = []
    acknowledged: set[int] = set()
    for _ in range(6):
        async with opened(tmp_path) as log:
            cursor = Cursor(log, "c", ["mine/+"], window=20)
            held: dict[int, Delivery] = {}
            for _ in range(60):
                await walk(chance, log, cursor, held, published, expected, acknowledged)
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["mine/+"])
        missing = [number for number in expected if number not in acknowledged]
        received: list[int] = []
        while len(received) < len(missing):
            received += payloads(await cursor.fetch_now(1000))
        assert received == sorted(received)
        assert set(received) >= set(missing)
        assert await nothing_comes(cursor)


async def walk(
    chance: random.Random,
    log: MessageLog,
    cursor: Cursor,
    held: dict[int, Delivery],
    published: list[int],
    expected: list[int],
    acknowledged: set[int],
) -> None:
    step = chance.choice(("publish", "fetch", "acknowledge", "acknowledge", "rewind"))
    if step == "publish":
        for _ in range(chance.randrange(10)):
            number = len(published)
            topic = chance.choice(("mine/a", "mine/b", "others"))
            published.append(number)
            if topic != "others":
                expected.append(number)
            await log.submit([Message(topic, b"%d" % number)])
    elif step == "fetch":
        for delivery in await cursor.fetch_now(chance.randrange(1, 8)):
            assert delivery.packet_identifier not in held
            assert held == {} or delivery.dup or delivery.position > max(d.position for d in held.values())
            held[delivery.packet_identifier] = delivery
    elif step == "acknowledge" and held:
        packet_identifier = chance.choice(list(held))
        delivery = held.pop(packet_identifier)
        assert cursor.acknowledge_all([packet_identifier])
        acknowledged.add(int(delivery.message.payload))
    elif step == "rewind":
        redeliver_all(cursor)
        held.clear()


async def test_what_is_dropped_between_gives_no_packet_identifier_away_that_is_in_use(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "a", ["#"])
        cursor.reason_to_drop = lambda message: "expired" if message.payload == b"old" else None
        await log.submit([Message("t", b"fresh") for _ in range(PACKET_IDENTIFIERS - 5)])
        await log.submit([Message("t", b"old") for _ in range(20)])
        await log.submit([Message("t", b"fresh") for _ in range(20)])
        handed_out: list[Delivery] = []
        while (room := PACKET_IDENTIFIERS - 7 - len(handed_out)) > 0:
            handed_out += await cursor.fetch_now(room)
        while deliveries := await cursor.fetch_now(1000):
            handed_out += deliveries
        assert len({delivery.packet_identifier for delivery in handed_out}) == len(handed_out)
        cursor.acknowledge_all([delivery.packet_identifier for delivery in handed_out])
        behind = await cursor.fetch_now(1000)
        assert len(handed_out) + len(behind) == PACKET_IDENTIFIERS - 5 + 20
