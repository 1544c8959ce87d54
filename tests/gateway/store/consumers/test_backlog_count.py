"""The log looked through for many consumers at once: what is not for them is passed, what waits is counted."""

import asyncio
import random
import sqlite3
import threading
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store.cursor import Cursor
from gateway.store.survey import count_backlogs, settle
from gateway.store.tail import Tail
from tests.gateway.store.support import append_all, hold_up, numbered, opened, payloads
from tests.gateway.support import until


async def test_news_that_come_while_others_are_looked_through_are_not_passed_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        ends, stays = Cursor(log, "ends", ["x"]), Cursor(log, "stays", ["y"])
        await log.append(Message("x", b"0"))
        for _ in range(4):  # more than one reading brings
            await log.submit([Message("z", bytes(1000)) for _ in range(1000)])
        log._tail = Tail()  # as behind a flood: the file has to be read
        settling = asyncio.create_task(settle(log, [ends, stays]))
        await asyncio.sleep(0)
        is_slow, is_free = threading.Event(), threading.Event()
        log._reader._thread.submit(hold_up, is_slow, is_free)  # the disk
        await until(lambda: is_slow.is_set(), "the first reading is done")
        waiting = log._reader._thread._work_queue
        await until(lambda: settling.done() or waiting.qsize() == 1, "the next one waits, if there is one")
        ends.drop()
        position = await log.append(Message("y", b"7"))
        await until(lambda: log._housekeeper.trimmed >= position - 1, "what nobody waits for is trimmed")
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
        await settle(log, [cursor])
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
        await settle(log, cursors)
        assert {cursor.consumer: cursor.position for cursor in cursors} == expected
        await count_backlogs(log, cursors)
        counts = {cursor.consumer: cursor.backlog.messages for cursor in cursors if cursor.backlog is not None}
        assert counts == {name: topics.count(f"{name}/a") for name in names}


async def test_what_comes_while_it_is_counted_is_counted_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["mine"])
        log.counts_backlogs = True
        for _ in range(150):  # more than it knows places of
            await append_all(log, [*numbered(5, "mine"), *numbered(10, "others")])
        log._tail = Tail()  # the file has to be read
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
        fetching = asyncio.create_task(cursor.fetch(10))
        await counting
        assert payloads(await fetching) == list(range(10))
        assert cursor.backlog is not None
        assert cursor.backlog.messages == 2000


async def test_nothing_is_passed_over_where_the_file_does_not_show_the_newest_yet(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["#"])
        cursor = Cursor(log, "c", ["#"])
        for message in numbered(3):
            await log.append(message)
        assert payloads(await cursor.fetch(3)) == [0, 1, 2]
        before = log._database._reading.execute("SELECT * FROM message_group")
        before.fetchone()  # and as long as that is open its connection sees nothing else
        await append_all(log, numbered(3))
        log._tail = Tail()
        with pytest.raises(sqlite3.Error, match="no message is there from 4 to 6"):
            await cursor.fetch(3)
        before.close()
        assert payloads(await cursor.fetch(3)) == [0, 1, 2]


class Referring:
    """A connection that somebody looks at: its cursors live on."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.cursors: list[sqlite3.Cursor] = []

    def execute(self, query: str, values: tuple[int, ...]) -> sqlite3.Cursor:
        self.cursors.append(cursor := self.connection.execute(query, values))
        return cursor


async def test_what_was_read_leaves_no_statement_open_whoever_refers_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "c", ["#"])
        referring = Referring(log._database._reading)
        for count in (2, 4, 6):
            await append_all(log, [Message("a", bytes(2_000_000)) for _ in range(2)])  # more than one reading brings
            log._tail = Tail()
            log._database._reading = referring  # type: ignore[assignment]
            deliveries = await cursor.fetch(1) + await cursor.fetch(1)
            log._database._reading = referring.connection
            assert [delivery.position for delivery in deliveries] == [count - 1, count]
        assert referring.cursors
