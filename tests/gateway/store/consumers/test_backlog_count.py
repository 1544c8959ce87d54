"""The log looked through for many consumers at once: what is not for them is passed, what waits is counted."""

import asyncio
import itertools
import random
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.message import Message
from gateway.store import Cursor, count_backlogs, skip_ahead
from gateway.store.database import Database
from gateway.store.tables import log_rows
from gateway.store.tables.log_rows import LogRow
from tests.gateway.store.support import CountsBacklogs, append_all, append_each, hold_up, numbered, opened, payloads
from tests.gateway.support import until


@pytest.mark.usefixtures("from_file")
async def test_news_that_come_while_others_are_looked_through_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        ends, stays = Cursor(log, "ends", ["x"]), Cursor(log, "stays", ["y"])
        await log.submit([Message("x", b"0")])
        for _ in range(4):  # more than one reading brings
            await log.submit([Message("z", bytes(1000)) for _ in range(1000)])
        is_slow, is_free, read, reads = threading.Event(), threading.Event(), Database.read, itertools.count()

        def slow_read(database: Database, after: int, up_to: int) -> list[LogRow]:
            if next(reads) == 1:
                hold_up(is_slow, is_free)
            return read(database, after, up_to)

        monkeypatch.setattr(Database, "read", slow_read)
        settling = asyncio.create_task(skip_ahead(log, [ends, stays]))
        await until(lambda: is_slow.is_set() or settling.done(), "the second read waits, if there is one")
        ends.drop()
        await log.submit([Message("y", b"7")])
        await until(lambda: log.stored_count == 1, "messages that no consumer needs are trimmed")
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
        fetching = asyncio.create_task(cursor.fetch(10))
        await counting
        assert payloads(await fetching) == list(range(10))
        assert cursor.backlog is not None
        assert cursor.backlog.messages == 2000


@pytest.mark.usefixtures("from_file")
async def test_nothing_is_passed_over_where_the_file_does_not_show_the_newest_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["#"])
        cursor = Cursor(log, "c", ["#"])
        await append_each(log, numbered(3))
        assert payloads(await cursor.fetch(3)) == [0, 1, 2]
        await append_all(log, numbered(3))
        with monkeypatch.context() as before:
            before.setattr(Database, "read", lambda database, after, _, read=Database.read: read(database, after, 3))
            with pytest.raises(sqlite3.Error, match="no message is there from 4 to 6"):
                await cursor.fetch(3)
        assert payloads(await cursor.fetch(3)) == [0, 1, 2]


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
            deliveries = await cursor.fetch(1) + await cursor.fetch(1)
            assert [delivery.position for delivery in deliveries] == [count - 1, count]
        assert Referring.cursors
