"""What 100,000 filters cost on the lines of a chain, in time and in memory, and what a reconnect costs with them."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tools.lab.bench.broker.processes import Broker, nats
from tools.lab.bench.network.chain import MqttParty, NatsParty, link, made, node, until_it_comes
from tools.lab.figure import Figure
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.ports import free_port

SUBSCRIBED_MAX, ANNOUNCED_MAX = 42, 6  # bytes for a filter, on the line
RECONNECT_MAX = 1000  # bytes
TIMES_LOCAL = 2
MEMORY_MAX = 800  # bytes for a filter
OF_A_CLIENT, OF_A_SUBSCRIBE = 10_000, 1000  # filters; a session may have no more
READY, MARKER = "ready/first", "ready/then"
NUMBERS = itertools.count()


class Meter:
    """A line whose bytes are counted, in both directions together."""

    def __init__(self, port: int) -> None:
        self.line = NetworkLink("127.0.0.1", port, self._count)
        self._bytes = 0

    def reset(self) -> int:
        """Returns how many bytes went through since the last reset."""
        found, self._bytes = self._bytes, 0
        return found

    def _count(self, _connection: object, _is_near: bool, data: bytes) -> None:
        self._bytes += len(data)


def filters_of_37(count: int) -> list[str]:
    """Returns topic filters of 37 bytes each."""
    return [f"plant-{n // 1000:03}/line-{n // 50 % 20:02}/sensor-{n:05}/values" for n in range(count)]


def interest(folder: Path, count: int) -> Iterator[Figure]:
    """Measures filters that come up at B of the chain A–M–B, where A and B dial M."""
    filters = filters_of_37(count)
    their_bytes = asyncio.run(bytes_from_leaf(folder / "leaves", filters)) / count
    yield from asyncio.run(_told(folder, filters, their_bytes))


async def _told(folder: Path, filters: list[str], their_bytes: float) -> list[Figure]:
    of = f"{len(filters):,} filters of {len(filters[0])} B"
    with contextlib.ExitStack() as stack:
        middle = stack.enter_context(node(folder, "M"))
        async with _metered(middle) as up, _metered(middle) as down, _metered(middle) as late:
            last = stack.enter_context(node(folder, "B", link("M", up.line.port)))
            first = stack.enter_context(node(folder, "A", link("M", down.line.port)))
            subscriber, publisher = await _ready(last, first)
            before_kb = middle.status("VmRSS")
            up.reset(), down.reset()
            local_s, third_s = await _spread(last, subscriber, publisher, filters)
            subscribed, announced = up.reset() / len(filters), down.reset() / len(filters)
            memory = 1024 * (middle.status("VmRSS") - before_kb) / len(filters)
            again = []
            for meter in (up, down):
                meter.reset()
                await meter.line.cut()
                await meter.line.open()
                await _through(publisher, subscriber)
                again.append(meter.reset())
            with node(folder, "C", link("M", late.line.port)) as newcomer:
                fourth = await MqttParty("newcomer", 0).connect(newcomer.port)
                await _through(fourth, subscriber)
                whole = late.reset() / len(filters)
                await fourth.close()
            await subscriber.close()
            await publisher.close()
    return [
        _at_most(f"{of}, SUBSCRIBEd: bytes for each, beside a NATS leaf", "B", subscribed, SUBSCRIBED_MAX, their_bytes),
        _at_most(f"{of}, announced as they come: bytes for each", "B", announced, ANNOUNCED_MAX, their_bytes),
        _at_most(f"{of}, announced to a new neighbour: bytes for each", "B", whole, ANNOUNCED_MAX, their_bytes),
        _at_most(f"{of}, SUBSCRIBEd before: bytes of a reconnect", "B", again[0], RECONNECT_MAX),
        _at_most(f"{of}, announced before: bytes of a reconnect", "B", again[1], RECONNECT_MAX),
        _at_most(
            f"{of}: time to the third gateway, beside the local SUBACKs", "s", third_s, TIMES_LOCAL * local_s, local_s
        ),
        _at_most(f"{of}: memory of the middle gateway for each", "B", memory, MEMORY_MAX),
    ]


async def _ready(last: Broker, first: Broker) -> tuple[MqttParty, MqttParty]:
    """Connects a subscriber and a publisher at the ends of a chain, and returns when its links are up."""
    subscriber = await MqttParty("subscriber", 0).connect(last.port)
    publisher = await MqttParty("publisher", 0).connect(first.port)
    await subscriber.subscribe(READY)
    await until_it_comes(subscriber, lambda: publisher.publish(READY))
    return subscriber, publisher


async def _spread(last: Broker, subscriber: MqttParty, publisher: MqttParty, filters: list[str]) -> tuple[float, float]:
    """Subscribes to the filters; returns when all are acknowledged, and when a message of one behind them comes
    through, in seconds from the first SUBSCRIBE on."""
    parties = [
        (await MqttParty(f"many-{place}", 0).connect(last.port), filters[place : place + OF_A_CLIENT])
        for place in range(0, len(filters), OF_A_CLIENT)
    ]
    started = time.perf_counter()
    for party, its_own in parties:
        for place in range(0, len(its_own), OF_A_SUBSCRIBE):
            await party.subscribe(*its_own[place : place + OF_A_SUBSCRIBE])
    local_s = time.perf_counter() - started
    await _through(publisher, subscriber)
    return local_s, time.perf_counter() - started


async def _through(publisher: MqttParty, subscriber: MqttParty) -> None:
    """Returns when a message to a filter that comes up now has come through, behind all that was under way."""
    topic = f"{MARKER}/{next(NUMBERS)}"
    await subscriber.subscribe(topic)
    while (await until_it_comes(subscriber, lambda: publisher.publish(topic))).subject != topic:
        pass


@contextlib.asynccontextmanager
async def _metered(broker: Broker) -> AsyncIterator[Meter]:
    meter = Meter(broker.port)
    await meter.line.open()
    try:
        yield meter
    finally:
        await meter.line.cut()


async def bytes_from_leaf(folder: Path, filters: list[str]) -> float:
    """Returns the bytes between a NATS leaf node and its hub, for subscriptions at the leaf node."""
    hub = free_port()
    with contextlib.ExitStack() as stack:
        middle = stack.enter_context(nats(made(folder / "M"), hub))
        meter = Meter(hub)
        await meter.line.open()
        leaf = stack.enter_context(nats(made(folder / "B"), free_port(), meter.line.port))
        subscriber, publisher = await NatsParty().connect(leaf.port), await NatsParty().connect(middle.port)
        await subscriber.subscribe(READY)
        await until_it_comes(subscriber, lambda: publisher.publish(READY))
        meter.reset()
        await subscriber.subscribe(*filters)
        await subscriber.subscribe(MARKER)
        while (await until_it_comes(subscriber, lambda: publisher.publish(MARKER))).subject != MARKER:
            pass
        found = meter.reset()
        await subscriber.close()
        await publisher.close()
        await meter.line.cut()
    return found


def _at_most(name: str, unit: str, ours: float, bar: float, theirs: float | None = None) -> Figure:
    return Figure(name, unit, ours, theirs, bar, at_most=True)
