"""Routes to NATS and AMQP that keep what was acknowledged until receipts, which come down another route."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.scripted_broker import ScriptedBroker, scripted_broker
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
from tests.uplink.support import serving, until
from uplink.foreign.config import AmqpConfig, NatsConfig
from wire.codec.packets import Publish
from wire.receipt import LANDED_TOPIC, LandedUpTo, Receipt, Settled, encode_landed, encode_receipt, receipt_topic

EPOCH, TABLES = 7, "0000abcd"
KEEPING = {"filters": ["telemetry/#"], "until": "receipt", "resend_after_s": 100}


class Clock:
    """Seconds that pass as a test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def settle(central: ScriptedBroker, batch: int, high: int, *runs: tuple[int, int]) -> None:
    """The job gives the broker of the other route its receipts, and that route takes them."""
    receipt = encode_receipt(Receipt(TABLES, batch, [Settled(EPOCH, high, list(runs))]))
    landed = encode_landed(LandedUpTo(TABLES, batch, 0))
    central.command(Publish(receipt_topic("a"), receipt, 1, True, False, 2 * batch))
    central.command(Publish(LANDED_TOPIC, landed, 1, True, False, 2 * batch + 1))
    await until(lambda: 2 * batch + 1 in central.pubacks)


Numbers = Callable[[int], Awaitable[list[int]]]
"""Returns the payloads of the next messages that a broker has."""


async def loses_two_of_five(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: NatsConfig | AmqpConfig, numbers: Numbers
) -> None:
    """A route hands on five messages, and the tables pass over two of them: these two go again."""
    clock, now_ms = Clock(), int(time.time() * 1000)
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    async with (
        scripted_broker() as central,
        routed(folder / "gateway", config) as (broker, route),
        serving(route_of(broker, central.port, direction="in", subscribe=("hf/receipt/#",))),
    ):
        keeping = route.queue.keeping
        assert keeping is not None
        for number in range(1, 5):
            await put(broker.log, "telemetry/a", b"%d" % number, number, received_ms=now_ms)
        await drained(route)
        await keeping.look()
        clock.now_s += 100
        await keeping.look()
        await put(broker.log, "telemetry/a", b"5", 5, received_ms=now_ms)
        await drained(route)
        clock.now_s += 20
        await until(lambda: bool(central.subscribes))
        await settle(central, 1, 1, (3, 3), (5, 5))
        await keeping.look()
        assert await numbers(7) == [1, 2, 3, 4, 5, 2, 4]
        assert route.queue.state.unproven_sent == 2
        assert keeping.kept.position == 1
        await settle(central, 2, 5)
        await keeping.look()
        assert keeping.kept.position >= 5


async def test_what_the_tables_have_passed_over_goes_to_nats_again_and_the_rest_is_kept_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            subscription = await client.subscribe("telemetry.>")
            await client.flush()

            async def numbers(count: int) -> list[int]:
                async with asyncio.timeout(DEADLINE_S):
                    return [int((await subscription.next_msg(DEADLINE_S)).data) for _ in range(count)]

            config = nats_config(server, delivery_mode="ordered", **KEEPING)
            await loses_two_of_five(tmp_path, monkeypatch, config, numbers)


async def test_what_the_tables_have_passed_over_goes_to_rabbitmq_again_and_the_rest_is_kept_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rabbitmq(tmp_path) as server:
        from tests.uplink.foreign.amqp_peer import with_peer  # few have its library

        async def numbers(count: int) -> list[int]:
            found = await with_peer(server, "get", "/queue/telemetry", count)
            return [int(bytes(one.body)) for one in found]

        await loses_two_of_five(tmp_path, monkeypatch, amqp_config(server, tmp_path, **KEEPING), numbers)
