"""Queues that are counted again: sessions that change their subscriptions meanwhile, and sessions that end."""

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from threading import Semaphore

import pytest

from gateway import limits as limits_module
from gateway.config.schema import GatewayConfig, QueueConfig, StoreConfig
from gateway.limits import Limits
from gateway.store import Cursor, MessageLog, count_backlogs, reader
from gateway.store.reader import RowCache
from gateway.store.tables.log_rows import LogRow
from tests.gateway.store.support import append_all, numbered, opened
from tests.gateway.support import until


def limits_of(log: MessageLog) -> Limits:
    config = GatewayConfig(name="gw", store=StoreConfig(path=""), queue=QueueConfig(when_full="reject_incoming"))
    return Limits(config, log, list, lambda _: [])


async def test_a_session_that_unsubscribes_while_it_is_counted_has_none_of_that_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        limits, cursor = limits_of(log), Cursor(log, "c", ["a", "b"])
        await append_all(log, [*numbered(20), *numbered(3, "b")])
        monkeypatch.setattr(RowCache, "behind", lambda *_: iter(()))  # the file has to be read
        begun, allowed, read = [], Semaphore(0), reader.read_rows

        def read_once_allowed(connection: sqlite3.Connection, after: int, up_to: int) -> list[LogRow]:
            begun.append(after)
            allowed.acquire()
            return read(connection, after, up_to)

        monkeypatch.setattr(reader, "read_rows", read_once_allowed)
        try:
            limits.discarding.count_again([cursor])
            await until(lambda: len(begun) == 1, "it is being counted")
            cursor.unsubscribe("a")
            limits.discarding.count_again([cursor])
            allowed.release()
            await until(lambda: len(begun) == 2, "and is counted anew")
            assert cursor.backlog is None
        finally:
            allowed.release(100)
        await until(lambda: cursor.backlog is not None and cursor.backlog.messages == 3, "and has what it takes now")
        await limits.close()


async def test_messages_that_come_while_a_session_is_counted_do_not_begin_the_count_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "DISCARD_PAUSE_S", 0)
    counts = 0

    async def noted(log: MessageLog, cursors: Iterable[Cursor]) -> None:
        nonlocal counts
        counts += 1
        await count_backlogs(log, cursors)

    monkeypatch.setattr(limits_module, "count_backlogs", noted)
    async with opened(tmp_path) as log:
        cursors: list[Cursor] = []
        config = GatewayConfig(name="gw", store=StoreConfig(path=""), queue=QueueConfig(max_messages=10))
        limits = Limits(config, log, lambda: cursors, lambda _: [])
        await limits.open()
        may_go_on, read_rows = asyncio.Event(), log.read_rows

        async def slowly(after: int) -> list[LogRow]:
            await may_go_on.wait()
            return await read_rows(after)

        monkeypatch.setattr(log, "read_rows", slowly)
        cursors.append(Cursor(log, "c", ["a"]))
        await append_all(log, numbered(20))
        await until(lambda: counts == 1, "it is being counted")
        for _ in range(5):
            await append_all(log, numbered(20))
            for _ in range(10):
                await asyncio.sleep(0)
        may_go_on.set()
        [cursor] = cursors
        await until(lambda: cursor.backlog is not None and cursor.backlog.messages == 10, "counted, and dropped")
        assert counts == 1
        await limits.close()


async def test_a_session_that_has_ended_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Cursor] = []

    async def noted(log: MessageLog, cursors: Iterable[Cursor]) -> None:
        counted.extend(cursors)
        await count_backlogs(log, cursors)

    monkeypatch.setattr(limits_module, "count_backlogs", noted)
    async with opened(tmp_path) as log:
        limits, here, gone = limits_of(log), Cursor(log, "here", ["a"]), Cursor(log, "gone", ["a"])
        await append_all(log, numbered(3))
        limits.discarding.count_again([here, gone])
        gone.drop()
        await until(lambda: here.backlog is not None, "counted")
        await asyncio.sleep(0)
        assert counted == [here]
        await limits.close()
