"""The lanes of a route: each message is in one of them, in order, over hand-overs, reconnects, restarts and kills."""

import asyncio
import random
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import Delivery, DeliveryRun, LaneCursor, MessageLog, Outgoing, Piece, hand_over
from gateway.store.routes.lanes import BackfillRanges
from gateway.store.tables.qos2 import ENDED, ROUTE_END
from tests.gateway.store.support import append_all, disk_full, leave_as_killed, opened, random_batch, stored

CONSUMER = "route/central"
ORIGINS = ("a", "b")


def lanes_on(log: MessageLog, window: int = 1000) -> tuple[LaneCursor, LaneCursor]:
    if CONSUMER not in log.routes.names():
        log.routes.note_filters(CONSUMER, ("#",))
    backfill = log.routes.backfill_of(CONSUMER)
    live = LaneCursor(log, CONSUMER, ["#"], backfill=backfill, window=window)
    return live, LaneCursor(log, CONSUMER, ["#"], backfill=backfill, is_backfill=True, window=window)


async def positions_of(cursor: LaneCursor) -> list[int]:
    found: list[int] = []
    while deliveries := await cursor.fetch_now(100):
        found += [one.position for one in deliveries]
        cursor.acknowledge_all([one.packet_identifier for one in deliveries])
    return found


def some(count: int) -> list[Message]:
    return [Message("a", b"x", 1, origin="a", epoch=7, seq=number) for number in range(1, count + 1)]


def test_the_set_of_the_backfill_says_which_positions_are_in_it_over_additions_cuts_and_trims(seed: int) -> None:
    dice = random.Random(seed)
    ranges, there, end = BackfillRanges(), set[int](), 0
    for _ in range(200):
        first = end + dice.choice((1, 1, 2, 9))
        end = first + dice.choice((0, 3, 20))
        ranges.add(first, end)
        there.update(range(first, end + 1))
        if dice.random() < 0.2:
            at = dice.randint(max(0, end - 15), end)
            ranges.cut(at)
            there = {one for one in there if one <= at}
            end = at
        if dice.random() < 0.1:
            at = dice.randint(0, end)
            ranges.trim(at)
            whole = [one for first, last in ranges for one in range(first, last + 1)]
            assert all(one <= at for one in there - set(whole))
            there &= set(whole)
        place = dice.randint(1, end + 2)
        is_in, last = ranges.stretch(place)
        assert is_in == (place in there)
        assert all((one in there) == is_in for one in range(place, min(last, end + 5) + 1))
        assert last > end or (last + 1 in there) != is_in


async def test_what_waits_becomes_the_backfill_and_what_comes_then_is_live(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(10))
        handed_out = await live.fetch_now(3)
        assert await hand_over(log, live, backfill)
        await append_all(log, some(5))
        assert [one.position for one in handed_out] == [1, 2, 3]
        assert await positions_of(live) == [11, 12, 13, 14, 15]
        assert await positions_of(backfill) == [4, 5, 6, 7, 8, 9, 10]
        assert not await hand_over(log, live, backfill), "nothing waits"


async def test_the_backlogs_of_both_lanes_are_counted_over_hand_overs_without_a_walk(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(10))
        deliveries = await live.fetch_now(3)
        await hand_over(log, live, backfill)
        await append_all(log, some(2))
        assert [cursor.backlog and cursor.backlog.messages for cursor in (live, backfill)] == [5, 7]
        live.acknowledge_all([one.packet_identifier for one in deliveries])
        await positions_of(backfill)
        await hand_over(log, live, backfill)
        assert [cursor.backlog and cursor.backlog.messages for cursor in (live, backfill)] == [0, 2]
        await positions_of(backfill)
        assert [cursor.backlog and (cursor.backlog.messages, cursor.backlog.bytes) for cursor in (live, backfill)] == [
            (0, 0),
            (0, 0),
        ]


async def test_a_walk_counts_what_waits_in_each_lane_after_a_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(10))
        await hand_over(log, live, backfill)
        await append_all(log, some(4))
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await asyncio.gather(log.backlogs.count(live), log.backlogs.count(backfill))
        assert [cursor.backlog and cursor.backlog.messages for cursor in (live, backfill)] == [4, 10]


async def test_a_backfill_without_messages_keeps_none_in_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(10))
        await hand_over(log, live, backfill)
        await positions_of(backfill)
        await append_all(log, some(10))
        await positions_of(live)
        assert log.space.needed_from == 20


async def test_a_flow_of_the_backfill_begins_once_over_a_restart_though_the_live_lane_is_far_ahead(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, [Message("a", b"", 1), Message("a", b"", 2)])
        await hand_over(log, live, backfill)
        _, second = await backfill.fetch_now(2)
        await Outgoing(log, f"{CONSUMER}{ROUTE_END}").begin(backfill, [second], ())
        await append_all(log, some(2))
        assert await positions_of(live) == [3, 4]
    assert {("backfill/" + CONSUMER, 0), (CONSUMER, 4)} <= {*stored(tmp_path, "SELECT consumer, position FROM cursor")}
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        assert await positions_of(backfill) == [1]


async def test_what_waits_stays_live_if_the_hand_over_cannot_be_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(10))
        with disk_full(), pytest.raises(sqlite3.Error):
            await hand_over(log, live, backfill)
        await append_all(log, some(2))
        assert await positions_of(backfill) == []
        assert await positions_of(live) == [*range(1, 13)]


async def test_a_full_store_evicts_the_oldest_of_the_backfill_which_leaves_ranges_of_the_route(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(10))
        await hand_over(log, live, backfill)
        await append_all(log, some(3))
        await log.eviction.evict(4, 0)
        assert await positions_of(live) == [11, 12, 13]
        found = await positions_of(backfill)
        assert found == [*range(11 - len(found), 11)] and len(found) <= 6
        assert log.counters.messages_dropped["evicted"] == 10 - len(found)
        assert [cursor.backlog and cursor.backlog.messages for cursor in (live, backfill)] == [0, 0]
    assert stored(tmp_path, "SELECT DISTINCT consumer FROM dropped") == [(CONSUMER,)]


async def test_a_sweep_keeps_what_was_handed_over_and_takes_out_what_the_live_lane_has_done(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        live, backfill = lanes_on(log)
        await append_all(log, some(20))
        await hand_over(log, live, backfill)
        for _ in range(20):
            await append_all(log, [Message("a", bytes(5000), 1) for _ in range(200)])
            await positions_of(live)
            log.space.make_room()
        await append_all(log, some(1))
        async with asyncio.timeout(20):
            while log.space.needed_count > 2000:
                log.space.make_room()
                await asyncio.sleep(0.01)
        assert await positions_of(backfill) == [*range(1, 21)]
        assert len(await positions_of(live)) == 1


class Walk:
    """Random steps on a store, until it is drained; what must hold is asserted on the way.

    Messages of QoS 1 are acknowledged in the order of their lane, those of QoS 2 become flows.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.lives = 0
        self.stored: dict[int, Message] = {}
        self.came: Counter[int] = Counter()
        self.begun: Counter[int] = Counter()
        self.acknowledged: set[int] = set()  # durably, as the store was closed

    async def run(self) -> None:
        for _ in range(6):
            is_killed = self.dice.random() < 0.6
            async with opened(self.folder / str(self.lives)) as log:
                await self._live(log, steps=40)
                if is_killed:
                    await log.submit([])
                    leave_as_killed(self.folder / str(self.lives), self.folder / str(self.lives + 1))
            if not is_killed:
                (self.folder / str(self.lives)).rename(self.folder / str(self.lives + 1))
                self.acknowledged |= self.done
            self.lives += 1
        async with opened(self.folder / str(self.lives)) as log:
            await self._live(log, steps=40)
            for cursor in self.lanes:
                await self._acknowledge(cursor, all_of_it=True)
                while await self._fetch(cursor):
                    await self._acknowledge(cursor, all_of_it=True)
            assert {*self.came, *self.begun} == self.stored.keys()
            assert set(self.begun.values()) <= {1}, "a message of QoS 2 was begun twice"

    async def _live(self, log: MessageLog, steps: int) -> None:
        """One life of the process, with a new cursor for each lane."""
        self.log, self.lanes = log, lanes_on(log, window=self.dice.choice((3, 1000)))
        flows = (flow for flow in log.found.flows if flow.state != ENDED)
        self.outgoing = Outgoing(log, f"{CONSUMER}{ROUTE_END}", flows)
        self.held: dict[LaneCursor, list[Delivery]] = {cursor: [] for cursor in self.lanes}
        self.last = dict.fromkeys(((cursor, origin) for cursor in self.lanes for origin in ORIGINS), 0)
        self.once: Counter[int] = Counter()
        self.done: set[int] = set()
        actions = [
            self._store,
            self._take,
            self._take,
            self._acknowledge_some,
            self._hand_over,
            self._reconnect,
            self._end,
        ]
        for _ in range(steps):
            await self.dice.choice(actions)()

    async def _store(self) -> None:
        messages = [
            Message("t", b"", self.dice.choice((1, 1, 2)), origin=self.dice.choice(ORIGINS), epoch=7, seq=1)
            for _ in range(self.dice.choice((1, 3, 30)))
        ]
        for position, message in zip(await append_all(self.log, messages), messages, strict=True):
            self.stored[position] = message

    async def _take(self) -> None:
        await self._fetch(self.dice.choice(self.lanes))

    async def _fetch(self, cursor: LaneCursor) -> bool:
        deliveries = await cursor.fetch_now(self.dice.choice((1, 5, 50)))
        for delivery in deliveries:
            if delivery.packet_identifier in {one.packet_identifier for one in self.held[cursor]}:
                continue
            origin, position = delivery.message.origin, delivery.position
            assert position > self.last[cursor, origin], "out of order in its lane"
            assert position not in self.acknowledged, "acknowledged before the store was closed"
            self.last[cursor, origin] = position
            self.once[position] += 1
            assert self.once[position] == 1, "handed out twice in one life"
            self.held[cursor].append(delivery)
        chosen = [one for one in self.held[cursor] if one.qos == 2]
        if chosen:
            await self.outgoing.begin(cursor, chosen, ())
            self.begun.update(one.position for one in chosen)
            self.held[cursor] = [one for one in self.held[cursor] if one.qos == 1]
        self.came.update(one.position for one in deliveries if one.qos == 1)
        return bool(deliveries)

    async def _acknowledge_some(self) -> None:
        await self._acknowledge(self.dice.choice(self.lanes))

    async def _acknowledge(self, cursor: LaneCursor, *, all_of_it: bool = False) -> None:
        held = self.held[cursor]
        count = len(held) if all_of_it else self.dice.randint(0, len(held))
        cursor.acknowledge_all([one.packet_identifier for one in held[:count]])
        self.done.update(one.position for one in held[:count])
        self.held[cursor] = held[count:]

    async def _hand_over(self) -> None:
        await hand_over(self.log, *self.lanes)

    async def _reconnect(self) -> None:
        for cursor in self.lanes:
            cursor.redeliver([one.packet_identifier for one in self.held[cursor]])

    async def _end(self) -> None:
        """Ends some flows, and saves the places."""
        flows = list(self.outgoing.flows)
        chosen = self.dice.sample(flows, self.dice.randint(0, len(flows)))
        for note in self.outgoing.note_received(chosen):
            self.log.defer(note)
        self.outgoing.release(chosen)
        self.outgoing.complete(chosen)
        await self.log.submit([])


async def test_each_message_comes_in_one_lane_in_order_and_at_qos_2_once_over_restarts_and_kills(
    tmp_path: Path, seed: int
) -> None:
    await Walk(tmp_path, seed).run()


async def test_runs_of_the_live_lane_between_hand_overs_are_counted_and_none_comes_in_both_lanes(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    arrived: list[int] = []
    async with opened(tmp_path) as log:
        lanes = live, backfill = lanes_on(log)
        held: dict[LaneCursor, list[Piece]] = {live: [], backfill: []}

        def acknowledge(cursor: LaneCursor, count: int) -> None:
            done, held[cursor] = held[cursor][:count], held[cursor][count:]
            cursor.acknowledge_pieces(done)
            arrived.extend(position for piece in done for position in positions_in(piece))

        await log.submit([random_batch(dice, 30)])
        held[live] += await live.fetch_pieces(20, 20)
        assert isinstance(held[live][0], DeliveryRun)
        for _ in range(300):
            cursor = dice.choice(lanes)
            step = dice.randrange(10)
            if step < 3:
                await log.submit([random_batch(dice, dice.randint(1, 30))])
            elif step < 6:
                held[cursor] += await cursor.fetch_pieces(dice.randint(1, 40), dice.randint(1, 40))
            elif step < 8:
                acknowledge(cursor, dice.randint(0, 3))
            elif step < 9:
                cursor.redeliver_pieces(held[cursor])
                held[cursor].clear()
            else:
                await hand_over(log, live, backfill)
            live.backfill.trim(min(log.saved_position(lane.place) for lane in lanes))
            counts = [lane.backlog for lane in lanes]
            assert sum(one.messages for one in counts if one is not None) == log.head - len(arrived)
        for cursor in lanes:
            acknowledge(cursor, len(held[cursor]))
            while more := await cursor.fetch_pieces(100, 100):
                held[cursor] += more
                acknowledge(cursor, len(held[cursor]))
        assert sorted(arrived) == [*range(1, log.head + 1)]


def positions_in(piece: Piece) -> range:
    return range(piece.position, (piece.last if isinstance(piece, DeliveryRun) else piece.position) + 1)
