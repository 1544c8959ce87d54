"""The log looked through for many consumers at once: what is not for them is passed, what waits is counted."""

import asyncio
import itertools
import random
import sqlite3
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.message import Message
from gateway.store import Backlog, Cursor, MessageLog, PublishBatch, count_backlogs, reader, skip_ahead
from gateway.store.tables import log_rows
from gateway.store.tables.log_rows import LogRow
from tests.gateway.store.support import (
    CountsBacklogs,
    append_all,
    append_each,
    batch_of,
    hold_up,
    numbered,
    opened,
    payloads,
)
from tests.gateway.support import until

DEADLINE_S = 20.0


@pytest.mark.usefixtures("from_file")
async def test_news_that_come_while_others_are_looked_through_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        ends, stays = Cursor(log, "ends", ["x"]), Cursor(log, "stays", ["y"])
        await log.submit([Message("x", b"0")])
        for _ in range(4):  # more than one reading brings
            await log.submit([Message("z", bytes(1000)) for _ in range(1000)])
        is_slow, is_free, read, reads = threading.Event(), threading.Event(), reader.read_rows, itertools.count()

        def slow_read(connection: sqlite3.Connection, after: int, up_to: int) -> list[LogRow]:
            if next(reads) == 1:
                hold_up(is_slow, is_free)
            return read(connection, after, up_to)

        monkeypatch.setattr(reader, "read_rows", slow_read)
        settling = asyncio.create_task(skip_ahead(log, [ends, stays]))
        await until(lambda: is_slow.is_set() or settling.done(), "the second read waits, if there is one")
        ends.drop()
        await log.submit([Message("y", b"7")])
        await until(lambda: log.space.stored_count == 1, "messages that no consumer needs are trimmed")
        is_free.set()
        await settling
        assert payloads(await stays.fetch_now(1)) == [7]


async def test_settling_passes_what_is_not_wanted_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "c", ["mine"])
        Cursor(log, "keeper", ["#"])
        await append_all(log, [*numbered(2000, "others"), *numbered(1, "mine"), *numbered(5, "others")])
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["mine"])
        await skip_ahead(log, [cursor])
        assert cursor.position == 2000


async def test_many_settle_together_each_before_what_is_its_own(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = [str(number) for number in range(20)]
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, [f"{name}/#", "all"]) for name in names]
        Cursor(log, "keeper", ["#"])
        topics = [f"{chance.choice(names[:10])}/a" for _ in range(3000)] + ["others"] * 2000
        await append_all(log, [Message(topic, b"") for topic in topics])
    expected = {name: topics.index(f"{name}/a") if f"{name}/a" in topics else len(topics) for name in names}
    async with opened(tmp_path) as log:
        cursors = [Cursor(log, name, [f"{name}/#", "all"]) for name in names]
        await skip_ahead(log, cursors)
        assert {cursor.consumer: cursor.position for cursor in cursors} == expected
        await count_backlogs(log, cursors)
        counts = {cursor.consumer: cursor.backlog.messages for cursor in cursors if cursor.backlog is not None}
        assert counts == {name: topics.count(f"{name}/a") for name in names}


@pytest.mark.usefixtures("from_file")
async def test_what_comes_while_it_is_counted_is_counted_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["mine"])
        log.limit_by(CountsBacklogs())
        for _ in range(150):  # more than it knows places of
            await append_all(log, [*numbered(5, "mine"), *numbered(10, "others")])
        counting = asyncio.create_task(count_backlogs(log, [cursor]))
        meanwhile = 0
        while meanwhile < 10 or not counting.done():
            await append_all(log, [*numbered(1, "others"), *numbered(1, "mine")])
            meanwhile += 1
        await counting
        assert cursor.backlog is not None
        assert cursor.backlog.messages == 150 * 5 + meanwhile


async def test_what_is_fetched_while_it_is_counted_counts_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["a"])
        await append_all(log, numbered(2000))
        counting = asyncio.create_task(count_backlogs(log, [cursor]))
        fetching = asyncio.create_task(cursor.fetch_now(10))
        await counting
        assert payloads(await fetching) == list(range(10))
        assert cursor.backlog is not None
        assert cursor.backlog.messages == 2000


class HeldUp:
    """A log whose reads wait, as on a slow disk: each is let go on by itself, and brings one row."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self.waits, self.may_go_on = asyncio.Event(), asyncio.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, after: int, limit: int) -> list[tuple[int, Message]]:
        await self._hold_up()
        return await self._log.read(after, limit)

    async def read_rows(self, after: int) -> list[LogRow]:
        await self._hold_up()
        return (await self._log.read_rows(after))[:1]

    def let_go_on(self, reads: int) -> None:
        for _ in range(reads):
            self.may_go_on.release()

    async def _hold_up(self) -> None:
        self.waits.set()
        await self.may_go_on.acquire()


async def test_messages_are_handed_out_and_acknowledged_while_a_count_waits_for_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "c", ["a"])
        await append_all(log, numbered(2000))
    async with opened(tmp_path) as log:
        cursor, slow = Cursor(log, "c", ["a"]), HeldUp(log)
        counting = asyncio.create_task(count_backlogs(slow, [cursor]))
        await slow.waits.wait()
        async with asyncio.timeout(DEADLINE_S):
            taken = await cursor.fetch_now(500)
        cursor.acknowledge_all([delivery.packet_identifier for delivery in taken[:100]])
        await append_all(log, numbered(3))
        slow.let_go_on(10_000)
        await counting
        assert cursor.backlog == Backlog(1903, 1903 + sum(len(b"%d" % n) for n in [*range(100, 2000), *range(3)]))


async def test_backlogs_that_are_asked_for_together_are_counted_in_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        for name in "abc":
            Cursor(log, name, [name])
        for _ in range(10):
            await append_all(log, [*numbered(3, "a"), *numbered(2, "b"), *numbered(1, "c")])
    async with opened(tmp_path) as log:
        read, read_rows = [], log.read_rows

        async def noted(after: int) -> list[LogRow]:
            read.append(after)
            return await read_rows(after)

        monkeypatch.setattr(log, "read_rows", noted)
        cursors = [Cursor(log, name, [name], always_counts=True) for name in "abc"]
        await asyncio.gather(*map(log.backlogs.count, cursors))
        assert [cursor.backlog and cursor.backlog.messages for cursor in cursors] == [30, 20, 10]
        assert len(read) == len(set(read))


@pytest.mark.parametrize("topics", [["a/#"], ["a/+", "b"]])
async def test_a_count_is_exact_whatever_comes_and_goes_meanwhile(tmp_path: Path, seed: int, topics: list[str]) -> None:
    chance = random.Random(seed)
    names = ["a/1", "a/2", "b", "c"]

    def some(most: int) -> list[Message]:
        count = chance.randrange(1, most)
        return [Message(chance.choice(names), bytes(chance.randrange(20))) for _ in range(count)]

    def batch() -> PublishBatch:
        wanted = chance.choice([names[:2], names])
        return batch_of([(chance.choice(wanted), bytes(chance.randrange(20))) for _ in range(chance.randrange(1, 30))])

    async with opened(tmp_path) as log:
        Cursor(log, "c", topics)
        for _ in range(60):
            await append_all(log, some(10))
            await log.submit([batch()])
    async with opened(tmp_path) as log:
        cursor, slow = Cursor(log, "c", topics, always_counts=True), HeldUp(log)
        in_flight: dict[int, Message] = {}
        counting = asyncio.create_task(count_backlogs(slow, [cursor]))
        for _ in range(200):
            what = chance.randrange(6)
            if what == 0:
                await append_all(log, some(5))
            elif what == 1:
                await log.submit([batch()])
            elif what == 2:
                for delivery in await cursor.fetch_now(chance.randrange(1, 90)):
                    in_flight[delivery.packet_identifier] = delivery.message
            elif what == 3 and chance.random() < 0.3:
                await log.eviction.evict(chance.randrange(1, 50), 0)
            elif in_flight:
                done = chance.sample(sorted(in_flight), chance.randrange(len(in_flight)))
                cursor.acknowledge_all(done)
                for packet_identifier in done:
                    del in_flight[packet_identifier]
            if chance.random() < 0.02 and counting.done():
                counting = asyncio.create_task(count_backlogs(slow, [cursor]))
            slow.let_go_on(chance.randrange(4))
        slow.let_go_on(10_000)
        await counting
        backlog = cursor.backlog
        assert backlog is not None
        backlog = replace(backlog)
        waiting = [*in_flight.values()]
        while deliveries := await cursor.fetch_now(1000):
            waiting += [delivery.message for delivery in deliveries]
        assert backlog == Backlog(len(waiting), sum(message.content_size for message in waiting))


@pytest.mark.usefixtures("from_file")
async def test_nothing_is_passed_over_where_the_file_does_not_show_the_newest_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["#"])
        cursor = Cursor(log, "c", ["#"])
        await append_each(log, numbered(3))
        assert payloads(await cursor.fetch_now(3)) == [0, 1, 2]
        await append_all(log, numbered(3))
        with monkeypatch.context() as before:
            read = reader.read_rows
            before.setattr(reader, "read_rows", lambda connection, after, _: read(connection, after, 3))
            with pytest.raises(sqlite3.Error, match="no message is there from 4 to 6"):
                await cursor.fetch_now(3)
        assert payloads(await cursor.fetch_now(3)) == [0, 1, 2]


class Referring(sqlite3.Connection):
    """A connection that a debugger holds: its cursors that read the log live on."""

    cursors: ClassVar[list[sqlite3.Cursor]] = []

    def execute(self, query: str, *values: Any) -> sqlite3.Cursor:
        cursor = super().execute(query, *values)
        if query == log_rows.READ:
            self.cursors.append(cursor)
        return cursor


@pytest.mark.usefixtures("from_file")
async def test_a_read_leaves_no_statement_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Referring))
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"])
        for count in (2, 4, 6):
            await append_all(log, [Message("a", bytes(2_000_000)) for _ in range(2)])  # more than one reading brings
            deliveries = await cursor.fetch_now(1) + await cursor.fetch_now(1)
            assert [delivery.position for delivery in deliveries] == [count - 1, count]
        assert Referring.cursors
