"""Crowds of clients, each of which does little: what they do or leave at one moment delays no other client."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.sessions.publishing import Publishing
from tests.gateway.support import all_connected, running, until
from wire.codec.packets import Will
from wire.properties import WILL_DELAY_INTERVAL

CROWD = 30


class Turns:
    """``most`` is the largest growth of a count during one turn of the event loop."""

    def __init__(self) -> None:
        self.most = 0


@asynccontextmanager
async def watched(count: Callable[[], int]) -> AsyncIterator[Turns]:
    """Looks at a count in each turn of the event loop."""
    turns = Turns()

    async def watch() -> None:
        before = count()
        while True:
            await asyncio.sleep(0)
            turns.most, before = max(turns.most, count() - before), count()

    watching = asyncio.create_task(watch())
    try:
        yield turns
    finally:
        watching.cancel()


async def test_sessions_that_expire_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.pace.SLICE_S", 0.0)
    async with running(tmp_path) as broker:
        for client in await all_connected(broker, *(f"client-{n}" for n in range(CROWD)), session_expiry_s=1):
            await client.disconnect()
        time.sleep(1.5)  # the event loop stands still, so all of them are due
        async with watched(lambda: broker.counters.sessions_expired) as turns:
            await until(lambda: broker.counters.sessions_expired == CROWD, "all sessions have expired")
        assert turns.most == 1


async def test_wills_whose_delays_end_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.pace.SLICE_S", 0.0)
    published = 0
    publish = Publishing.publish

    def count(*args: object) -> object:
        nonlocal published
        published += 1
        return publish(*args)  # type: ignore[arg-type]

    last = Will("will", b"gone", 1, properties={WILL_DELAY_INTERVAL: 1})
    async with running(tmp_path) as broker:
        for client in await all_connected(broker, *(f"client-{n}" for n in range(CROWD)), will=last):
            client.cut()
        await until(lambda: all(one.connection is None for one in broker.sessions.all()), "all are gone")
        monkeypatch.setattr(Publishing, "publish", count)
        time.sleep(1.5)
        async with watched(lambda: published) as turns:
            await until(lambda: published == CROWD, "all wills are published")
        assert turns.most == 1


async def test_connections_that_end_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.pace.SLICE_S", 0.0)
    async with running(tmp_path) as broker:

        def gone() -> int:
            return sum(one.connection is None for one in broker.sessions.all())

        for client in await all_connected(broker, *(f"client-{n}" for n in range(CROWD))):
            client.cut()
        async with watched(gone) as turns:
            await until(lambda: gone() == CROWD, "all connections have ended")
        assert turns.most == 1
