"""A store that is full drops its oldest messages: no more than it has to, and each of them for one reason."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import GatewayConfig, StoreConfig
from gateway.limits import Limits, Verdict
from gateway.message import Message
from gateway.store import Backlog, Cursor, Endings, MessageLog, Work, eviction
from gateway.store.maintenance import Maintenance
from gateway.subscriptions import Subscription
from tests.gateway.store.support import (
    CountsBacklogs,
    append_all,
    disk_full,
    fetch_many,
    leave_as_killed,
    numbered,
    opened,
    payloads,
    redeliver_all,
    stored,
    take_all,
)
from tests.gateway.support import until

RANGES = """
SELECT reason, consumer, first, last, messages FROM dropped WHERE reason != 'damaged' ORDER BY reason, consumer, first
"""


async def discarding(log: MessageLog, folder: Path, max_bytes: int = 300_000) -> Limits:
    store = StoreConfig(path=str(folder), max_bytes=max_bytes, when_full="discard_old")
    limits = Limits(GatewayConfig(name="gw", store=store), log, list, lambda _: [])
    await limits.open()
    return limits


async def test_messages_that_no_consumer_needs_go_before_needed_ones(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        limits = await discarding(log, tmp_path)
        cursor = Cursor(log, "keeps up", ["#"])
        for _ in range(40):
            await append_all(log, [Message("a", bytes(400)) for _ in range(50)])
            deliveries = await cursor.fetch_now(50)
            cursor.acknowledge_all([delivery.packet_identifier for delivery in deliveries[:-1]])
            await until(lambda: log.space.used_bytes <= 300_000, "there is room")
            cursor.acknowledge_all([deliveries[-1].packet_identifier])
        await limits.close()
        assert log.counters.messages_dropped["evicted"] == 0


async def test_unneeded_messages_go_before_older_ones_that_wait(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        limits = await discarding(log, tmp_path, 2_000_000)
        away = Cursor(log, "away", ["a"])
        await append_all(log, [Message("a", bytes(1000)) for _ in range(1000)])
        for _ in range(50):  # five times as much as there is room for
            await append_all(log, [Message("b", bytes(1000)) for _ in range(100)])
            await until(lambda: log.space.used_bytes <= 2_000_000, "there is room")
        await limits.close()
        assert log.counters.messages_dropped["evicted"] == 0
        assert len(await take_all(away)) == 1000


async def test_a_store_that_is_nearly_full_takes_out_unneeded_messages_before_it_is_full(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        store = StoreConfig(path=str(tmp_path), max_bytes=2_000_000, when_full="reject_incoming")
        limits = Limits(GatewayConfig(name="gw", store=store), log, list, lambda _: [])
        await limits.open()
        Cursor(log, "away", ["a"])
        await append_all(log, [Message("a", bytes(1000)) for _ in range(1000)])
        for _ in range(20):
            await append_all(log, [Message("b", bytes(1000)) for _ in range(600)])
            assert log.space.used_bytes > 1_600_000
            while log.space.used_bytes >= 1_500_000:
                assert limits.verdict("b", "publisher", "") == Verdict.TAKE
                await asyncio.sleep(0)
        await limits.close()


async def test_what_its_consumers_have_is_not_noted_though_it_goes_with_what_they_have_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["alarm"])
        route = Cursor(log, "route", ["#"])
        await append_all(log, [*numbered(1, "alarm"), *numbered(100)])
        await take_all(route)
        await log.eviction.evict(50, 0)
        assert log.space.needed_count == 0
    assert stored(tmp_path, RANGES) == [("evicted", "away", 1, 1, 1)]


async def test_what_may_wait_for_a_route_that_is_configured_no_more_is_dropped_in_its_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "route/old", ["#"])
        await append_all(log, numbered(1))
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["alarm"])
        await append_all(log, [*numbered(20), *numbered(1, "alarm"), *numbered(20)])
        await log.eviction.evict(40, 0)
    assert stored(tmp_path, RANGES) == [("evicted", "away", 22, 22, 1), ("evicted", "route/old", 1, 40, 40)]


async def test_what_was_dropped_is_not_handed_out_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "slow", ["#"])
        await append_all(log, numbered(10))
        deliveries = await cursor.fetch_now(3)
        await log.eviction.evict(5, 0)
        cursor.redeliver([delivery.packet_identifier for delivery in deliveries])
        assert payloads(await cursor.fetch_now(10)) == [5, 6, 7, 8, 9]
    assert stored(tmp_path, RANGES) == [("evicted", "slow", 1, 3, 3), ("evicted", "slow", 4, 5, 2)]


async def test_what_each_consumer_misses_is_in_a_range_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        quick, half = Cursor(log, "quick", ["#"]), Cursor(log, "half", ["#"])
        Cursor(log, "away", ["#"])
        Cursor(log, "no local", [Subscription("#", not_from="publisher")])
        await append_all(log, numbered(10))
        quick.acknowledge_all([delivery.packet_identifier for delivery in await quick.fetch_now(10)])
        half.acknowledge_all([delivery.packet_identifier for delivery in await half.fetch_now(3)])
        await log.eviction.evict(5, 0)
        assert log.counters.messages_dropped["evicted"] == 12
    assert stored(tmp_path, RANGES) == [
        ("evicted", "away", 1, 5, 5),
        ("evicted", "half", 4, 5, 2),
        ("evicted", "no local", 1, 5, 5),
    ]


async def test_consumers_that_miss_the_same_cost_no_look_at_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(Cursor, "takes", lambda cursor, position, message: looks.append(position))
    async with opened(tmp_path) as log:
        for number in range(200):
            Cursor(log, f"session/{number}", ["#"])
        await append_all(log, numbered(500))
        await log.eviction.evict(400, 0)
    assert looks == []
    assert stored(tmp_path, f"SELECT count(*), sum(messages) FROM ({RANGES})") == [(200, 80_000)]


async def test_what_arrives_after_the_store_has_dropped_it_is_in_no_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "slow", ["#"])
        await append_all(log, numbered(10))
        deliveries = await cursor.fetch_now(3)
        await log.eviction.evict(8, 0)
        cursor.acknowledge_all([delivery.packet_identifier for delivery in deliveries[:2]])
        redeliver_all(cursor)
        assert payloads(await cursor.fetch_now(10)) == [8, 9]
    assert stored(tmp_path, RANGES) == [("evicted", "slow", 3, 3, 1), ("evicted", "slow", 4, 8, 5)]


async def test_what_waits_to_come_again_is_in_a_range_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "slow", ["#"])
        await append_all(log, numbered(10))
        await cursor.fetch_now(3)
        redeliver_all(cursor)
        await log.eviction.evict(8, 0)
        assert stored(tmp_path, "SELECT sum(messages) FROM dropped WHERE consumer = 'slow'") == [(8,)]
        assert payloads(await cursor.fetch_now(10)) == [8, 9]
    assert stored(tmp_path, "SELECT * FROM ending") == []
    async with opened(tmp_path):
        pass
    assert stored(tmp_path, "SELECT sum(messages) FROM dropped WHERE consumer = 'slow'") == [(8,)]


async def test_a_full_store_with_many_consumers_drops_fewer_messages_at_a_time(tmp_path: Path) -> None:
    """Else the ranges of all of them keep the event loop for seconds."""
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, f"slow-{number}", ["#"], durable=False) for number in range(100)]
        await append_all(log, numbered(1000))
        evicting = asyncio.create_task(log.eviction.evict(1000, 0))
        before = most = 0
        while not evicting.done():
            await asyncio.sleep(0)
            dropped = log.counters.messages_dropped["evicted"]
            before, most = dropped, max(most, dropped - before)
        await evicting
        assert before == 1000 * len(cursors)
        assert most <= 20_000


async def test_what_is_on_its_way_when_its_consumer_leaves_is_in_a_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "slow", ["#"])
        await append_all(log, numbered(10))
        await cursor.fetch_now(3)
        await log.eviction.evict(3, 0)
        assert stored(tmp_path, RANGES) == []
        cursor.close()
    assert stored(tmp_path, RANGES) == [("evicted", "slow", 1, 3, 3)]
    assert stored(tmp_path, "SELECT * FROM ending") == []


@pytest.mark.parametrize("is_missed", [False, True])
async def test_after_a_kill_no_range_tells_of_what_had_arrived_or_was_told_before(
    tmp_path: Path, is_missed: bool
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with opened(before) as log:
        cursor = Cursor(log, "slow", ["#"])
        await append_all(log, numbered(100))
        deliveries = await cursor.fetch_now(100)
        await log.eviction.evict(100, 0)
        first = [delivery.packet_identifier for delivery in deliveries[:40]]
        if is_missed:
            cursor.redeliver(first)
        else:
            cursor.acknowledge_all(first)
        await log.submit([])
        leave_as_killed(before, after)
    async with opened(after) as log:
        endings = Endings(log)
        endings.open()
        await endings.close()
    assert stored(after, "SELECT sum(messages) FROM dropped") == [(100 if is_missed else 60,)]
    assert stored(after, "SELECT * FROM ending") == []


async def test_after_a_kill_what_was_dropped_on_its_way_leaves_its_range(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with opened(before) as log:
        cursor, arrived = Cursor(log, "slow", ["#"]), Cursor(log, "arrived", ["#"])
        await append_all(log, numbered(10))
        await cursor.fetch_now(3)
        deliveries = await arrived.fetch_now(3)
        await log.eviction.evict(3, 0)
        arrived.acknowledge_all([delivery.packet_identifier for delivery in deliveries])
        await log.submit([])
        leave_as_killed(before, after)
    assert stored(after, RANGES) == []
    async with opened(after) as log:
        endings = Endings(log)
        endings.open()
        assert payloads(await Cursor(log, "slow", ["#"]).fetch_now(10)) == [3, 4, 5, 6, 7, 8, 9]
        await endings.close()
    assert stored(after, RANGES) == [("evicted", "slow", 1, 3, 3)]
    assert stored(after, "SELECT * FROM ending") == []


async def test_evicted_messages_go_to_no_consumer_while_another_one_is_held_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs())
        slow, quick = Cursor(log, "slow", ["a"]), Cursor(log, "quick", ["a", "b"])
        await append_all(log, [*numbered(10), *numbered(5, "b")])
        async with slow.fetching:  # as while it is counted
            evicting = asyncio.create_task(log.eviction.evict(10, 0))
            await until(lambda: log.gone == 10, "it has begun")
            assert payloads(await quick.fetch_now(20)) == [0, 1, 2, 3, 4]
        await evicting
        assert slow.backlog == Backlog(0, 0)
        assert quick.backlog == Backlog(5, 10)
    assert stored(tmp_path, RANGES) == [("evicted", "quick", 1, 10, 10), ("evicted", "slow", 1, 10, 10)]


async def test_what_the_rules_deny_to_a_client_that_is_away_is_not_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "away", ["#"])
        cursor.rights.may_receive = lambda topic: topic == "mine"
        await append_all(log, numbered(50, "others"))
        assert log.space.needed_count == 0
        await append_all(log, [*numbered(1, "mine"), *numbered(1, "others")])
        assert payloads(await cursor.fetch_now(10)) == [0]


async def test_where_nothing_can_be_deleted_nothing_is_dropped_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_damaged = property(lambda _: False, lambda *_: None)  # as behind a damaged page
    monkeypatch.setattr(Maintenance, "may_trim", is_damaged, raising=False)
    async with opened(tmp_path) as log:
        limits = await discarding(log, tmp_path)
        cursor = Cursor(log, "away", ["#"])
        await append_all(log, [Message("a", b"%d" % number + bytes(4000)) for number in range(200)])
        await limits.close()
        assert log.space.used_bytes > 300_000
        assert len(await fetch_many(cursor, 200)) == 200


async def test_a_disk_that_does_not_take_it_stops_neither_the_limits_nor_their_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as log:
        limits = await discarding(log, tmp_path)
        away = Cursor(log, "away", ["#"])
        await away.fetching.acquire()  # until the disk is full
        await append_all(log, [Message("a", bytes(4000)) for _ in range(100)])
        await until(lambda: log.gone > 0, "it has begun to drop")
        with disk_full():
            away.fetching.release()
            await until(lambda: "could not be dropped" in caplog.text, "it is said")
        await append_all(log, numbered(1))
        await until(lambda: log.space.used_bytes <= 300_000, "dropped")
        await limits.close()


async def test_a_gateway_that_ends_does_not_wait_until_all_that_is_too_much_is_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        limits = await discarding(log, tmp_path)
        away = Cursor(log, "away", ["#"])
        async with away.fetching:  # what is too much at first is not dropped yet
            await append_all(log, [Message("a", bytes(4000)) for _ in range(100)])
            await until(lambda: log.gone > 0, "it has begun to drop")
            await append_all(log, [Message("a", bytes(4000)) for _ in range(300)])
            closing = asyncio.create_task(limits.close())
            await asyncio.sleep(0)
        await closing
        assert log.space.used_bytes > 2 * 300_000


async def test_what_is_dropped_while_its_consumer_ends_is_in_one_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        endings = Endings(log)
        slow, ending = Cursor(log, "slow", ["a"]), Cursor(log, "ending", ["a"])
        await append_all(log, numbered(20))
        async with slow.fetching:  # as from a slow medium
            evicting = asyncio.create_task(log.eviction.evict(10, 0))
            await until(lambda: log.gone == 10, "it has begun")
            endings.note(ending)
            ending.drop()
            await asyncio.sleep(0)
        await evicting
        await endings.close()
        assert payloads(await slow.fetch_now(20)) == list(range(10, 20))
    assert stored(tmp_path, RANGES) == [
        ("ended", "ending", 11, 20, 10),
        ("evicted", "ending", 1, 10, 10),
        ("evicted", "slow", 1, 10, 10),
    ]


async def test_after_a_kill_what_was_dropped_is_neither_delivered_nor_dropped_again(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with opened(before) as log:
        Cursor(log, "away", ["#"])
        await append_all(log, numbered(100))  # in one row
        await log.eviction.evict(10, 0)
        leave_as_killed(before, after)
    assert stored(after, RANGES) == [("evicted", "away", 1, 10, 10)]
    async with opened(after) as log:
        away = Cursor(log, "away", ["#"])
        deliveries = await away.fetch_now(3)
        assert payloads(deliveries) == [10, 11, 12]
        await log.eviction.evict(10, 0)
        away.acknowledge_all([delivery.packet_identifier for delivery in deliveries])
    assert stored(after, RANGES) == [("evicted", "away", 1, 10, 10), ("evicted", "away", 14, 20, 7)]


async def test_after_a_kill_what_a_full_queue_has_dropped_is_not_delivered(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with opened(before) as log:
        log.limit_by(CountsBacklogs())
        away = Cursor(log, "away", ["#"])
        await append_all(log, numbered(40))
        await away.discard_oldest(lambda backlog: backlog.messages <= 10)
        await append_all(log, numbered(1))
        leave_as_killed(before, after)
    assert stored(after, RANGES) == [("evicted", "away", 1, 30, 30)]
    async with opened(after) as log:
        assert payloads(await Cursor(log, "away", ["#"]).fetch_now(100)) == [*range(30, 40), 0]


async def test_what_was_dropped_while_the_disk_took_nothing_is_told_together_with_the_places(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with opened(before) as log:
        Cursor(log, "away", ["#"])
        await append_all(log, numbered(100))
        with disk_full(), pytest.raises(sqlite3.Error):
            await log.eviction.evict(10, 0)
        Cursor(log, "another", ["a"])  # whose place is written before anything else is
        await log.submit([])
        leave_as_killed(before, after)
    assert stored(after, RANGES) == [("evicted", "away", 1, 10, 10)]
    async with opened(after) as log:
        assert payloads(await Cursor(log, "away", ["#"]).fetch_now(3)) == [10, 11, 12]


@pytest.mark.parametrize("is_in_flight", [False, True])
async def test_a_kill_within_an_eviction_leaves_each_message_to_its_consumer_or_in_a_range_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_in_flight: bool
) -> None:
    """Many cursors lose a message some at a time, so that the event loop goes on."""
    monkeypatch.setattr(eviction, "PASS_AT_ONCE", 2)
    monkeypatch.setattr(eviction, "WRITTEN_AT_ONCE", 2)
    names = [f"session/{number}" for number in range(10)]
    copies: list[Path] = []
    async with opened(tmp_path / "store") as log:
        cursors = [Cursor(log, name, ["#"]) for name in names]
        await append_all(log, numbered(5))
        for cursor in cursors if is_in_flight else ():
            assert len(await cursor.fetch_now(3)) == 3
        submit = log.submit

        async def submit_and_kill(works: Sequence[Work]) -> list[Any]:
            done = await submit(works)
            copies.append(tmp_path / str(len(copies)))
            leave_as_killed(tmp_path / "store", copies[-1])
            return done

        monkeypatch.setattr(log, "submit", submit_and_kill)
        await log.eviction.evict(2, 0)
    assert len(copies) >= 5
    lost: set[int] = set()
    for copy in copies:
        async with opened(copy) as log:
            endings = Endings(log)
            endings.open()
            handed_out = {name: payloads(await Cursor(log, name, ["#"]).fetch_now(10)) for name in names}
            await endings.close()
        ranges = dict.fromkeys(names, 0) | dict(stored(copy, "SELECT consumer, sum(messages) FROM dropped GROUP BY 1"))
        assert {name: ranges[name] + len(handed_out[name]) for name in names} == dict.fromkeys(names, 5)
        assert all(found == list(range(5 - len(found), 5)) for found in handed_out.values())
        lost.add(sum(ranges.values()))
    assert lost >= {4, 8, 20}


async def test_a_cursor_that_hands_messages_out_while_others_lose_them_loses_them_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "PASS_AT_ONCE", 2)
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, f"session/{number}", ["#"]) for number in range(7)]
        await append_all(log, numbered(5))
        async with cursors[3].fetching:
            evicting = asyncio.create_task(log.eviction.evict(2, 0))
            await until(lambda: log.gone == 2, "the log has dropped them")
        await evicting
        for cursor in cursors:
            assert payloads(await cursor.fetch_now(10)) == [2, 3, 4]
    assert stored(tmp_path, f"SELECT count(*), sum(messages) FROM ({RANGES})") == [(7, 14)]
