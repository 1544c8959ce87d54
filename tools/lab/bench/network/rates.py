"""How fast messages go over a link, all or the tenth that passes a selector, beside a route and mosquitto's bridge."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tools.lab.bench.broker.client import Counter, Poller, Publisher, Subscriber
from tools.lab.bench.broker.packets import IDENTIFIERS, Publishes, payload
from tools.lab.bench.broker.processes import GENERATOR_CORE, BenchUnavailable, mosquitto, on_core
from tools.lab.bench.network.nodes import link, node, start_together
from tools.lab.figure import Figure
from tools.lab.testing.client import Client
from tools.lab.testing.ports import free_port
from wire.codec.packets import MQTT_5, Publish
from wire.properties import USER_PROPERTY

TURNS = 4  # how often the compared brokers take turns, because the machine's speed changes
WARM_UP_S, DRAIN_S, QUIET_S = 0.5, 5.0, 0.2
PROBES_S, PROBE_EVERY_S = 60.0, 0.01
JUDGED_S = 4.0  # a rate that is measured for less time has no goal
LEAST_TIMES_BRIDGE = {"property": 1.5, "json": 1.0}
LEAST_TIMES_FILTERS = 0.95
WINDOW = 2000
AHEAD_MAX = 4000  # messages that a publisher may be ahead of the subscriber
SHORT_S, AHEAD_SHORT = 0.5, 1000  # with a shorter measurement, as all of them are waited for behind it
SIZE = 100
PASSES_EVERY = 10
WANTED, OTHERS = "EU", "US"
SELECTORS = {"property": f"region = '{WANTED}'", "json": f"json.region = '{WANTED}'"}
OUTGOING = '[[route.outgoing]]\ntopic = "{kind}/orders/#"\nselect = "{selector}"\n'
BRIDGE = "connection next\naddress 127.0.0.1:{port}\ntopic # out 2\ncleansession false\nnotifications false\n"
FILTERS = '[[route]]\nname = "next"\nbroker = "mqtt://127.0.0.1:{port}"\nfilters = ["route/#"]\n'

Way = Callable[[float], tuple[int, float]]
"""Publishes for some seconds; returns how many messages were published and came or were held back, and the time."""


class Orders(Publishes):
    """PUBLISHes of QoS 1, one for each packet identifier, all of them twice. Of ten one passes the selector.

    Args:
        kind: where their region is: "property", a user property, or "json", a field of the payload.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(_topic(kind), 1, SIZE, MQTT_5)
        packets = [self.order(kind, number).encode(MQTT_5) for number in range(1, IDENTIFIERS + 1)]
        self.length = len(packets[0])
        self._packets = memoryview(b"".join(packets) * 2)

    @staticmethod
    def order(kind: str, number: int) -> Publish:
        """Returns the PUBLISH with a packet identifier."""
        region = OTHERS if number % PASSES_EVERY else WANTED
        if kind == "json":
            content = b'{"region":"%b",' % region.encode() + payload(number, SIZE - 14)[1:]
            return Publish(_topic(kind), content, 1, packet_identifier=number)
        properties = {USER_PROPERTY: [("region", region)]}
        return Publish(_topic(kind), payload(number, SIZE), 1, packet_identifier=number, properties=properties)


def selectors(folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures a link whose selectors pass a tenth of the messages, beside a bridge that carries all, unpersisted."""
    with ExitStack() as stack:
        tables = "".join(OUTGOING.format(kind=kind, selector=selector) for kind, selector in SELECTORS.items())
        at = free_port()
        ends = node(folder, "A", link("B", at) + tables), node(folder, "B", port=at, core=GENERATOR_CORE)
        ours, _ = start_together(stack, *ends)
        bridge, beyond = bridged(stack, folder)
        for kind in SELECTORS:
            orders = Orders(kind)
            mine = _way(stack, ours.port, at, kind, orders, subscriber_qos=1, passes_every=PASSES_EVERY)
            rate, other = in_turns(seconds, mine, _way(stack, bridge, beyond, kind, orders, subscriber_qos=0))
            name = f"10 % pass a selector on a {'user property' if kind == 'property' else 'JSON field'}, durable"
            what = f"{name}: published, beside mosquitto's bridge with all, unpersisted"
            yield Figure(what, "messages/s", rate, other, goal(seconds, LEAST_TIMES_BRIDGE[kind] * other))


def follow(folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures a link that follows interest, where all is wanted, beside a route with `filters` to the same gateway."""
    at = free_port()
    with ExitStack() as stack:
        linked, routed, _ = start_together(
            stack,
            node(folder, "A", link("B", at)),
            node(folder, "C", FILTERS.format(port=at)),
            node(folder, "B", port=at, core=GENERATOR_CORE),
        )
        ways = [
            _way(stack, broker.port, at, kind, Publishes(_topic(kind), 1, SIZE, MQTT_5), subscriber_qos=1)
            for kind, broker in (("link", linked), ("route", routed))
        ]
        mine, other = in_turns(seconds, *ways)
    name = "a link that follows interest, all wanted, beside a route with filters"
    yield Figure(name, "messages/s", mine, other, goal(seconds, LEAST_TIMES_FILTERS * other))


def goal(seconds: float, bar: float) -> float | None:
    """Returns the goal of a rate, None if that is measured for too short a time to be judged."""
    return bar if seconds >= JUDGED_S else None


def in_turns(seconds: float, *ways: Way) -> list[float]:
    """Returns the rate of each way, in messages/s."""
    counts, times_s = [0] * len(ways), [0.0] * len(ways)
    for _ in range(TURNS):
        for place, way in enumerate(ways):
            count, took_s = way(seconds / TURNS)
            counts[place] += count
            times_s[place] += took_s
    return [count / took_s for count, took_s in zip(counts, times_s, strict=True)]


def bridged(stack: ExitStack, folder: Path) -> tuple[int, int]:
    """Runs a mosquitto with a bridge to another one, both of which keep all in memory; returns the ports of both."""
    beyond = stack.enter_context(mosquitto(folder / "beyond", core=GENERATOR_CORE))
    bridge = stack.enter_context(mosquitto(folder / "bridge", more=BRIDGE.format(port=beyond.port)))
    return bridge.port, beyond.port


def _topic(kind: str) -> str:
    return f"{kind}/orders/1"


def _way(
    stack: ExitStack,
    port: int,
    behind: int,
    kind: str,
    publishes: Publishes,
    *,
    subscriber_qos: int,
    passes_every: int = 1,
) -> Way:
    """From a publisher of QoS 1 to a subscriber at another broker's port, by topics of this kind."""
    asyncio.run(_linked(port, behind, f"{kind}/probe"))
    subscriber = (Subscriber if subscriber_qos else Counter)(behind, f"bench-to-{kind}", MQTT_5)
    stack.callback(subscriber.close)
    subscriber.subscribe(f"{kind}/#", qos=subscriber_qos)
    publisher = Publisher(port, f"bench-{kind}", publishes, 1, WINDOW, MQTT_5)
    stack.callback(publisher.close)
    poller = Poller([publisher, subscriber])

    def way(seconds: float) -> tuple[int, float]:
        ahead_max = AHEAD_MAX if seconds >= SHORT_S else AHEAD_SHORT
        begun = publisher.sent - subscriber.received * passes_every  # what QoS 0 lost before is not waited for again

        def is_ahead_by() -> int:
            return publisher.sent - subscriber.received * passes_every - begun

        with on_core(GENERATOR_CORE):
            publisher.may_send = lambda: ahead_max - is_ahead_by()
            publisher.fill()
            poller.run(min(WARM_UP_S, seconds), publisher.fill)
            before = subscriber.received
            took_s = poller.run(seconds, publisher.fill)
            counted = subscriber.received - before
            # The next one has the machine for itself. Fewer messages than one that passes follows are none on the way.
            poller.run(DRAIN_S, lambda: None, _quiet(subscriber, lambda: is_ahead_by() < passes_every))
        return counted * passes_every, took_s

    return way


def _quiet(subscriber: Subscriber, has_all: Callable[[], bool]) -> Callable[[], bool]:
    """Returns what says that a subscriber has all, or got nothing for a while: what QoS 0 has lost never comes."""
    last, since_s = subscriber.received, time.perf_counter()

    def is_quiet() -> bool:
        nonlocal last, since_s
        if subscriber.received != last:
            last, since_s = subscriber.received, time.perf_counter()
        return has_all() or time.perf_counter() - since_s > QUIET_S

    return is_quiet


async def _linked(port: int, behind: int, topic: str) -> None:
    """Returns when what is published at one port comes to a subscriber at the other one, and nothing is on its way.
    Raises BenchUnavailable."""
    options = {"clean_start": True, "session_expiry_s": 0, "keep_alive_s": 0}
    probed = await Client("bench-probed", **options).connect(behind)
    probing = await Client("bench-probing", **options).connect(port)
    await probed.subscribe(topic, options=0)
    coming, number = asyncio.create_task(probed.receive()), 0
    try:
        async with asyncio.timeout(PROBES_S):
            while not coming.done():
                number += 1
                await probing.publish(topic, b"%d" % number)
                await asyncio.wait([coming], timeout=PROBE_EVERY_S)
            while bytes((await coming).payload) != b"%d" % number:
                coming = asyncio.create_task(probed.receive())
    except TimeoutError:
        raise BenchUnavailable(f"no message came through in {PROBES_S:g} s") from None
    finally:
        coming.cancel()
        probed.cut()
        probing.cut()
