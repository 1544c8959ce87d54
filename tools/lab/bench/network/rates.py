"""How fast messages go over a link, all or the tenth that passes a selector, beside bridges and NATS leaves."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tools.lab.bench.broker.client import Counter, Poller, Publisher, Subscriber
from tools.lab.bench.broker.packets import IDENTIFIERS, Publishes, payload
from tools.lab.bench.broker.processes import (
    GENERATOR_CORE,
    Broker,
    mosquitto,
    nats,
    on_core,
)
from tools.lab.bench.network.chain import (
    Connect,
    link,
    made,
    node,
    over_mqtt,
    over_nats,
    start_together,
    until_it_comes,
)
from tools.lab.bench.network.nats_load import NatsCounter, NatsPublisher
from tools.lab.figure import Figure
from tools.lab.testing.ports import free_port
from wire.codec.packets import MQTT_5, Publish
from wire.properties import USER_PROPERTY

TURNS = 4  # how often the compared brokers take turns, because the machine's speed changes
LAST = b"last"
WARM_UP_S, DRAIN_S = 0.5, 5.0
LEAST_TIMES_BRIDGE = {"property": 1.5, "json": 1.0}
LEAST_TIMES_FILTERS = 0.95
LEAST_TIMES_ASKED = 0.9
HOPS = 3
UNLIMITED = 1 << 60
WINDOW = 2000
AHEAD_MAX = 4000  # messages that a publisher may be ahead of the subscriber
SHORT_S, AHEAD_SHORT = 0.5, 1000  # with a shorter measurement, as all of them are waited for behind it
SIZE = 100
TOPIC, PROBE, FILTER = "bench/orders/1", "bench/probe", "bench/#"
Reader = TypeVar("Reader")
PASSES_EVERY = 10
WANTED, OTHERS = "EU", "US"
SELECTORS = {"property": f"region = '{WANTED}'", "json": f"json.region = '{WANTED}'"}
OUTGOING = '[[route.outgoing]]\ntopic = "bench/orders/#"\nselect = "{selector}"\n'
BRIDGE = "connection next\naddress 127.0.0.1:{port}\ntopic # out 2\ncleansession false\nnotifications false\n"
FILTERS = """\
[[route]]
name = "next"
broker = "mqtt://127.0.0.1:{port}"
filters = ["bench/#"]
"""
REALTIME = '[[listener]]\nkind = "tcp"\nport = {port}\nrealtime = true\n'

Way = Callable[[float], tuple[int, float]]
"""Publishes for some seconds; returns how many messages were published and came or were held back, and the time."""


class Orders(Publishes):
    """PUBLISHes of QoS 1, one for each packet identifier, all of them twice. Of ten one passes the selector.

    Args:
        kind: where their region is: "property", a user property, or "json", a field of the payload.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(TOPIC, 1, SIZE, MQTT_5)
        packets = [self.order(kind, number).encode(MQTT_5) for number in range(1, IDENTIFIERS + 1)]
        self.length = len(packets[0])
        self._packets = memoryview(b"".join(packets) * 2)

    @staticmethod
    def order(kind: str, number: int) -> Publish:
        """Returns the PUBLISH with a packet identifier."""
        region = OTHERS if number % PASSES_EVERY else WANTED
        if kind == "json":
            content = b'{"region":"%b",' % region.encode() + payload(number, SIZE - 14)[1:]
            return Publish(TOPIC, content, 1, packet_identifier=number)
        properties = {USER_PROPERTY: [("region", region)]}
        return Publish(TOPIC, payload(number, SIZE), 1, packet_identifier=number, properties=properties)


def selectors(folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures a link whose selector passes a tenth of the messages, beside a link that carries all."""
    for kind, selector in SELECTORS.items():
        with ExitStack() as stack:
            below = made(folder / kind)
            orders = Orders(kind)
            ours = by_link(stack, below, orders, PASSES_EVERY, OUTGOING.format(selector=selector))
            bridge = by_bridge(stack, below, orders)
            leaf = by_leaf(stack, below)
            mine, other, third = in_turns(seconds, ours, bridge, leaf)
        name = f"10 % pass a selector on a {'user property' if kind == 'property' else 'JSON field'}, durable"
        bar = LEAST_TIMES_BRIDGE[kind] * other
        yield Figure(
            f"{name}: published, beside mosquitto's bridge with all, unpersisted", "messages/s", mine, other, bar
        )
        yield Figure(f"{name}: published, beside a NATS leaf with all", "messages/s", mine, third)


def follow(folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures a link that follows interest, where all is wanted, beside a route with `filters`."""
    with ExitStack() as stack:
        orders = Orders("json")
        link_way = by_link(stack, made(folder / "link"), orders, 1)
        route_way = by_route(stack, made(folder / "route"), orders)
        mine, other = in_turns(seconds, link_way, route_way)
    name = "a link that follows interest, all wanted, beside a route with filters"
    yield Figure(name, "messages/s", mine, other, LEAST_TIMES_FILTERS * other)


def realtime(folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures real-time messages over three hops, beside messages of QoS 0 for which subscriptions ask."""
    with ExitStack() as stack:
        flooded = by_row(stack, made(folder / "flooded"), is_realtime=True)
        asked = by_row(stack, made(folder / "asked"), is_realtime=False)
        mine, other = in_turns(seconds, flooded, asked)
    name = f"real-time messages over {HOPS} hops, beside the same of QoS 0 with subscriptions"
    yield Figure(name, "messages/s", mine, other, LEAST_TIMES_ASKED * other)


def in_turns(seconds: float, *ways: Way) -> list[float]:
    """Returns the rate of each way, in messages/s."""
    counts, times_s = [0] * len(ways), [0.0] * len(ways)
    for _ in range(TURNS):
        for place, way in enumerate(ways):
            count, took_s = way(seconds / TURNS)
            counts[place] += count
            times_s[place] += took_s
    return [count / took_s for count, took_s in zip(counts, times_s, strict=True)]


def by_link(stack: ExitStack, folder: Path, orders: Publishes, passes_every: int, more: str = "") -> Way:
    """A gateway whose neighbour has a subscriber with QoS 1."""
    ours, behind = _pair(stack, folder, lambda port: link("B", port) + more)
    return _way(stack, ours, behind, orders, 1, passes_every)


def by_route(stack: ExitStack, folder: Path, orders: Publishes) -> Way:
    """A gateway with a plain route to the same."""
    ours, behind = _pair(stack, folder, lambda port: FILTERS.format(port=port))
    return _way(stack, ours, behind, orders, 1)


def _pair(stack: ExitStack, folder: Path, route_to: Callable[[int], str]) -> list[Broker]:
    """Runs gateways A and B; ``route_to`` returns the table of A's route to B's port."""
    port = free_port()
    behind = node(folder, "B", port=port, core=GENERATOR_CORE)
    return start_together(stack, node(folder, "A", route_to(port)), behind)


def by_row(stack: ExitStack, folder: Path, *, is_realtime: bool) -> Way:
    """Gateways in a row: the publisher is at one end, and the subscriber at the other."""
    ports, at = [free_port() for _ in range(HOPS + 1)], [free_port() for _ in range(HOPS + 1)]
    nodes = []
    for number, port in enumerate(ports):
        tables = [link(f"G{number - 1}", at[number - 1])] if number else []
        tables += [REALTIME.format(port=port)] if is_realtime else []
        nodes.append(node(folder, f"G{number}", *tables, port=at[number], core=number % 2))
    row = start_together(stack, *nodes)
    if is_realtime:
        row = [Broker(port, broker.pid) for port, broker in zip(ports, row, strict=True)]
    return _way(stack, row[0], row[-1], Publishes(TOPIC, 0, SIZE), 0, publisher_qos=0)


def by_bridge(stack: ExitStack, folder: Path, orders: Publishes) -> Way:
    """A mosquitto with a bridge, both of which keep all in memory; its subscriber has QoS 0."""
    behind = stack.enter_context(mosquitto(made(folder / "beyond"), core=GENERATOR_CORE))
    theirs = stack.enter_context(mosquitto(made(folder / "bridge"), more=BRIDGE.format(port=behind.port)))
    return _way(stack, theirs, behind, orders, 0)


def _way(
    stack: ExitStack,
    broker: Broker,
    behind: Broker,
    orders: Publishes,
    qos: int,
    passes_every: int = 1,
    publisher_qos: int = 1,
) -> Way:
    """From a publisher to a subscriber at another broker, with this QoS."""

    def subscribe() -> Subscriber:
        subscriber = (Subscriber if qos else Counter)(behind.port, "bench-subscriber", MQTT_5)
        subscriber.subscribe(FILTER, qos=qos)
        return subscriber

    subscriber = asyncio.run(_when_connected(over_mqtt(publisher_qos), broker, behind, subscribe))
    window = WINDOW if publisher_qos else UNLIMITED
    publisher = Publisher(broker.port, "bench-publisher", orders, publisher_qos, window, MQTT_5)
    return _measured(stack, publisher, subscriber, passes_every)


def by_leaf(stack: ExitStack, folder: Path) -> Way:
    """A NATS leaf node, whose hub has the subscriber."""
    hub = free_port()
    behind = stack.enter_context(nats(made(folder / "hub"), hub, core=GENERATOR_CORE))
    leaf = stack.enter_context(nats(made(folder / "leaf"), free_port(), hub))
    content = [payload(number, SIZE) for number in range(1, 1001)]
    subject = TOPIC.replace("/", ".")
    subscriber = asyncio.run(_when_connected(over_nats, leaf, behind, lambda: NatsCounter(behind.port, subject, SIZE)))
    return _measured(stack, NatsPublisher(leaf.port, subject, content), subscriber, 1)


async def _when_connected(connect: Connect, broker: Broker, behind: Broker, subscribe: Callable[[], Reader]) -> Reader:
    """Returns a subscriber when its interest is known at the other end. Until then the other end says of each message
    that it has no subscriber. Raises BenchUnavailable."""
    probed, probing = await connect(behind, "bench-probed"), await connect(broker, "bench-probing")
    await probed.subscribe(FILTER)
    await until_it_comes(probed, lambda: probing.publish(PROBE))
    probing.publish(PROBE, LAST)
    while (await probed.receive()).payload != LAST:  # the subscriber gets no probe
        pass
    subscriber = subscribe()
    await probed.close()
    await probing.close()
    return subscriber


def _measured(
    stack: ExitStack, publisher: Publisher | NatsPublisher, subscriber: Subscriber | NatsCounter, passes_every: int
) -> Way:
    """Returns what publishes and measures."""
    stack.callback(publisher.close)
    stack.callback(subscriber.close)
    poller = Poller([publisher, subscriber])

    def is_ahead_by() -> int:
        return publisher.sent - subscriber.received * passes_every

    def way(seconds: float) -> tuple[int, float]:
        with on_core(GENERATOR_CORE):
            ahead_max = AHEAD_MAX if seconds >= SHORT_S else AHEAD_SHORT
            publisher.may_send = lambda: ahead_max - is_ahead_by()
            publisher.fill()
            poller.run(min(WARM_UP_S, seconds), publisher.fill)
            before = subscriber.received
            took_s = poller.run(seconds, publisher.fill)
            counted = subscriber.received - before
            # The next one has the machine for itself. Fewer messages than one that passes follows are none on the way.
            poller.run(DRAIN_S, lambda: None, lambda: is_ahead_by() < passes_every)
        return counted * passes_every, took_s

    return way
