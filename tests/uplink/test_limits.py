"""The limits of a route: what it drops, for which reason, and whose messages it keeps."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog
from gateway.store.tables.log_rows import LogRow
from tests.gateway.store.support import batch_of, stored
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.support import opened, route_config, serving, until
from uplink.route import Route

RANGES = "SELECT reason, consumer, origin, first, last, messages FROM dropped ORDER BY origin, first"


def of(origin: str, numbers: range, received_ms: int = 0) -> list[Message]:
    return [
        Message("t", b"%d" % number, origin=origin, epoch=7, seq=number, received_ms=received_ms) for number in numbers
    ]


async def store(log: MessageLog, *messages: list[Message]) -> None:
    await log.submit([message for some in messages for message in some])


def arrived(broker: ScriptedBroker) -> list[int]:
    return [int(publish.payload) for publish in broker.publishes[-1]] if broker.publishes else []


@contextlib.asynccontextmanager
async def watched(route: Route) -> AsyncIterator[None]:
    """A route whose watch runs, and that connects to no broker."""
    task = asyncio.create_task(route.queue.watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize("limits", [{"max_messages_per_origin": 3}, {"max_bytes_per_origin": 9}])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_origin_beyond_its_limit_loses_its_oldest_messages_and_no_other_loses_any(
    tmp_path: Path, limits: dict[str, int], is_restarted: bool
) -> None:
    async with scripted_broker() as broker:
        config = route_config(broker.port, **limits)
        async with opened(tmp_path) as log:
            route = Route(config, "gateway-1", log)
            await store(log, of("quiet", range(1, 3)), of("noisy", range(10, 20)), of("quiet", range(3, 4)))
            if not is_restarted:
                await route.queue.watch.count()
                async with serving(route):
                    await until(lambda: len(arrived(broker)) == 6)
        if is_restarted:
            async with opened(tmp_path) as log:
                route = Route(config, "gateway-1", log)
                await route.queue.watch.count()
                async with serving(route):
                    await until(lambda: len(arrived(broker)) == 6)
    assert arrived(broker) == [1, 2, 17, 18, 19, 3]
    assert stored(tmp_path / "store", RANGES) == [("evicted", "route/central", "noisy", 10, 16, 7)]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_messages": 20, "max_messages_per_origin": 4},
        {"max_messages": 20, "max_bytes_per_origin": 16},
        {"max_bytes": 80, "max_messages_per_origin": 4},
    ],
)
async def test_a_noisy_origin_pushes_out_no_messages_of_others(tmp_path: Path, limits: dict[str, int]) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port, **limits), "gateway-1", log)
        async with watched(route):
            for begin in range(100, 900, 50):
                await store(log, of("noisy", range(begin, begin + 50)))
                await store(log, of(f"quiet {begin}", range(begin, begin + 1)))
            async with serving(route):
                await until(lambda: len(arrived(broker)) == 20)
    kept = list(range(100, 900, 50))
    assert sorted(arrived(broker)) == sorted([*kept, 896, 897, 898, 899])


async def test_a_limit_holds_as_soon_as_messages_are_stored(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port, max_messages=3), "gateway-1", log)
        async with watched(route):
            for begin in range(100, 200, 10):
                await store(log, of("a", range(begin, begin + 10)))
                await until(lambda: route.queue.state.backlog_messages == 3)
    assert stored(tmp_path / "store", RANGES) == [("evicted", "route/central", "a", 100, 196, 97)]


async def test_messages_older_than_the_limit_are_dropped_as_expired(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port, max_age_s=3600), "gateway-1", log)
        await store(log, of("a", range(1, 5), now_ms - 4_000_000), of("a", range(5, 6), now_ms))
        await store(log, of("b", range(6, 7), now_ms - 4_000_000), of("b", range(7, 8), now_ms - 3_000_000))
        await route.queue.watch.count()
        assert route.queue.state.backlog_messages == 3, (
            "the oldest are dropped at once, others when the route comes to them"
        )
        async with serving(route):
            await until(lambda: len(arrived(broker)) == 2)
        assert arrived(broker) == [5, 7]
    ranges = [("expired", "route/central", "a", 1, 4, 4), ("expired", "route/central", "b", 6, 6, 1)]
    assert stored(tmp_path / "store", RANGES) == ranges


async def test_age_and_its_limit_need_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = int(time.time() * 1000)
    config = route_config(1, max_age_s=3600)
    async with opened(tmp_path) as log:
        Route(config, "gateway-1", log)
        await store(log, of("a", range(1, 5), now_ms - 4_000_000), of("a", range(5, 6), now_ms - 1000))
    async with opened(tmp_path) as log:
        is_held, may_go_on, read_rows = asyncio.Event(), asyncio.Event(), log.read_rows

        async def slowly(after: int) -> list[LogRow]:
            is_held.set()
            await may_go_on.wait()
            return await read_rows(after)

        monkeypatch.setattr(log, "read_rows", slowly)
        route = Route(config, "gateway-1", log)
        async with watched(route):
            await is_held.wait()
            await until(lambda: route.queue.state.oldest_ms == now_ms - 1000)
            may_go_on.set()
            await until(lambda: route.queue.state.backlog_messages == 1)


async def test_each_origin_keeps_its_newest_messages_however_they_are_mixed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "c", "gateway-1"]
    sent: dict[str, list[int]] = {name: [] for name in names}
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port, max_messages_per_origin=25), "gateway-1", log)
        for begin in range(0, 1000, 10):
            name = chance.choice(names)
            numbers = range(begin, begin + chance.randrange(1, 10))
            sent[name] += numbers
            if name == "gateway-1":
                batch = batch_of([("t", b"%d" % number) for number in numbers])
                batch.gateway = name
                await log.submit([batch])
            else:
                await store(log, of(name, numbers))
        kept = sorted(number for numbers in sent.values() for number in numbers[-25:])
        async with serving(route):
            await until(lambda: len(arrived(broker)) == len(kept))
            await until(lambda: route.queue.state.backlog_messages == 0)
        assert arrived(broker) == kept
        assert log.counters.messages_dropped["evicted"] == sum(map(len, sent.values())) - len(kept)
