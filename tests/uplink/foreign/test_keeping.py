"""Routes to NATS and AMQP that keep what was acknowledged until receipts, which come down another route."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.store import MessageLog
from tests.support.scripted_broker import scripted_broker
from tests.uplink.foreign.support import (
    DEADLINE_S,
    amqp_config,
    connected,
    drained,
    nats_config,
    nats_server,
    rabbitmq,
    routed,
)
from tests.uplink.foreign.test_nats_export import put
from tests.uplink.inbound_support import route_of
from tests.uplink.keeping_support import Clock, Job
from tests.uplink.support import serving, until
from tools.lab.testing.nats import NatsServer
from uplink.foreign.config import AmqpConfig, NatsConfig
from uplink.foreign.route import ForeignRoute
from uplink.queue.keeping import Keeping
from wire.receipt import Settled

EPOCH = 7
KEEPING = {"filters": ["telemetry/#"], "until": "receipt", "resend_after_s": 100}


Numbers = Callable[[int], Awaitable[list[int]]]
"""Returns the payloads of the next messages that a broker has."""


class Keeper(NamedTuple):
    """A gateway with a route that keeps, and with another one over which receipts of `job` come down."""

    clock: Clock
    job: Job
    log: MessageLog
    route: ForeignRoute
    keeping: Keeping

    async def hand_on(self, *numbers: int) -> None:
        """Messages with these numbers come, and the route's broker acknowledges what the route hands on of them."""
        for number in numbers:
            await put(self.log, "telemetry/a", b"%d" % number, number, received_ms=int(time.time() * 1000))
        await drained(self.route)

    async def settle(self, high: int, *runs: tuple[int, int]) -> None:
        """The job gives the central broker its receipts, and they come down."""
        await until(lambda: bool(self.job.central.subscribes))
        await self.job.give("a", [Settled(EPOCH, high, list(runs))])
        await self.job.give_landed()
        await self.keeping.look()

    async def look(self, after_s: float) -> None:
        """Time passes, and the route looks after what it keeps."""
        self.clock.now_s += after_s
        await self.keeping.look()


@asynccontextmanager
async def keeper(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: NatsConfig | AmqpConfig
) -> AsyncIterator[Keeper]:
    clock = Clock()
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    async with (
        scripted_broker() as central,
        routed(folder / "gateway", config) as (broker, route),
        serving(route_of(broker, central.port, direction="in", subscribe=("hf/receipt/#",))),
    ):
        assert route.queue.keeping is not None
        yield Keeper(clock, Job(central), broker.log, route, route.queue.keeping)


async def loses_two_of_five(one: Keeper, numbers: Numbers) -> None:
    """A route hands on five messages, and the tables pass over two of them: these two go again."""
    await one.hand_on(1, 2, 3, 4)
    await one.look(0)
    await one.look(100)
    await one.hand_on(5)
    one.clock.now_s += 20
    await one.settle(1, (3, 3), (5, 5))
    assert await numbers(7) == [1, 2, 3, 4, 5, 2, 4]
    assert one.route.queue.state.unproven_sent == 2
    assert one.keeping.kept.position == 1
    await one.settle(5)
    assert one.keeping.kept.position >= 5


@asynccontextmanager
async def numbers_at(server: NatsServer) -> AsyncIterator[Numbers]:
    """What comes to NATS from now on."""
    async with connected(server) as client:
        subscription = await client.subscribe("telemetry.>")
        await client.flush()

        async def numbers(count: int) -> list[int]:
            async with asyncio.timeout(DEADLINE_S):
                return [int((await subscription.next_msg(DEADLINE_S)).data) for _ in range(count)]

        yield numbers


async def test_what_the_tables_have_passed_over_goes_to_nats_again_and_the_rest_is_kept_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, delivery_mode="ordered", **KEEPING)
        async with numbers_at(server) as numbers, keeper(tmp_path, monkeypatch, config) as one:
            await loses_two_of_five(one, numbers)


async def test_what_the_tables_have_passed_over_goes_to_rabbitmq_again_and_the_rest_is_kept_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rabbitmq(tmp_path) as server:
        from tests.uplink.foreign.amqp_peer import with_peer  # few have its library

        async def numbers(count: int) -> list[int]:
            found = await with_peer(server, "get", "/queue/telemetry", count)
            return [int(bytes(one.body)) for one in found]

        async with keeper(tmp_path, monkeypatch, amqp_config(server, tmp_path, **KEEPING)) as one:
            await loses_two_of_five(one, numbers)


async def test_what_rules_leave_out_of_a_route_to_nats_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a route makes no statements, so that no receipt ever settles it."""
    odd = [{"filter": "#", "where": "json IN (1, 3, 5)"}]
    with nats_server(tmp_path) as server:
        config = nats_config(server, delivery_mode="ordered", shape=odd, **KEEPING)
        async with numbers_at(server) as numbers, keeper(tmp_path, monkeypatch, config) as one:
            await one.hand_on(1, 2, 3, 4)
            await one.look(20)
            await one.look(100)
            await one.hand_on(5)
            await one.look(20)
            await one.settle(1, (5, 5))
            assert await numbers(4) == [1, 3, 5, 3]
            await one.settle(1, (3, 3), (5, 5))
            assert one.keeping.kept.position >= 5
            assert one.route.queue.state.unproven_sent == 1
