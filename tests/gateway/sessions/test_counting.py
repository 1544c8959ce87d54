"""Queues counted anew: who takes something else meanwhile, and who has gone."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from threading import Event

import pytest

from gateway import limits as limits_module
from gateway.config import GatewayConfig, QueueConfig, StoreConfig
from gateway.limits import Limits
from gateway.store.cursor import Cursor
from gateway.store.log import MessageLog
from gateway.store.survey import count_backlogs
from gateway.store.tail import Tail
from tests.gateway.store.support import append_all, hold_up, numbered, opened
from tests.gateway.support import until


def limits_of(log: MessageLog) -> Limits:
    config = GatewayConfig(name="gw", store=StoreConfig(path=""), queue=QueueConfig(when_full="reject_incoming"))
    return Limits(config, log, list, lambda _: [])


async def test_who_unsubscribes_while_it_is_counted_is_not_said_to_have_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        limits, cursor = limits_of(log), Cursor(log, "c", ["a", "b"])
        await append_all(log, [*numbered(20), *numbered(3, "b")])
        monkeypatch.setattr(Tail, "behind", lambda *_: iter(()))  # the file has to be read
        begun, free = (Event(), Event()), (Event(), Event())
        disk = log._reader._thread
        try:
            disk.submit(hold_up, begun[0], free[0])
            limits.count_again([cursor])
            await until(lambda: disk._work_queue.qsize() == 1, "it is being counted")
            disk.submit(hold_up, begun[1], free[1])
            cursor.unsubscribe("a")
            limits.count_again([cursor])
            free[0].set()
            await until(begun[1].is_set, "it was counted")
            await until(lambda: disk._work_queue.qsize() == 1, "and is counted anew")
            assert cursor.backlog is None
        finally:
            for event in free:
                event.set()
        await until(lambda: cursor.backlog is not None and cursor.backlog.messages == 3, "and has what it takes now")
        await limits.close()


async def test_who_has_gone_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Cursor] = []

    async def noted(log: MessageLog, cursors: Iterable[Cursor]) -> None:
        counted.extend(cursors)
        await count_backlogs(log, cursors)

    monkeypatch.setattr(limits_module, "count_backlogs", noted)
    async with opened(tmp_path) as log:
        limits, here, gone = limits_of(log), Cursor(log, "here", ["a"]), Cursor(log, "gone", ["a"])
        await append_all(log, numbered(3))
        limits.count_again([here, gone])
        gone.drop()
        await until(lambda: here.backlog is not None, "counted")
        await asyncio.sleep(0)
        assert counted == [here]
        await limits.close()
