"""Streams: what one that is stuck costs another, and how two of them share the processor, in one process or in two."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tools.lab.bench.broker.client import Poller, Publisher
from tools.lab.bench.broker.load import keep
from tools.lab.bench.broker.packets import Publishes
from tools.lab.bench.broker.processes import gateway
from tools.lab.bench.network.nodes import made, start_together
from tools.lab.bench.network.rates import DRAIN_S, SIZE, WARM_UP_S, WINDOW, Way, goal, in_turns
from tools.lab.figure import Figure
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.ports import free_port
from wire.codec.packets import MQTT_5

STREAMS = ("one", "two")
LIMIT = 1000  # messages, in the store of the stream that is stuck
LEAST_BESIDE_STUCK, LEAST_OF_TWO_PROCESSES = 0.9, 1.6
TOPIC = "bench/plant/reading"
STREAM = """\
[[stream]]
name = "{name}"
{limit}
[[listener]]
kind = "tcp"
port = {port}
stream = "{name}"
"""
STUCK = f'max_messages = {LIMIT}\nwhen_full = "flow_control"\n'


def streams(folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures messages of QoS 1 that are stored for a session that is away."""
    ports = [free_port() for _ in range(6)]
    (full, beside), both, (one, other) = ports[:2], ports[2:4], ports[4:]
    with ExitStack() as stack:
        start_together(
            stack,
            _streams(folder / "stuck", [full, beside], STUCK),
            _streams(folder / "both", both),
            _streams(folder / "one", [one]),
            _streams(folder / "other", [other]),
        )
        publishes = Publishes(TOPIC, 1, SIZE, MQTT_5)
        publishers = {port: _publisher(stack, port, publishes) for port in ports}
        filling = publishers.pop(full)
        Poller([filling]).run(DRAIN_S, filling.fill, lambda: filling.acknowledged >= LIMIT)
        Poller([filling]).run(WARM_UP_S, filling.fill)

        def way(*ports: int, beside: Sequence[Publisher] = ()) -> Way:
            return _way([publishers[port] for port in ports], beside)

        mine, alone = in_turns(seconds, way(beside, beside=[filling]), way(both[1]))
        of_both, of_one, of_each = in_turns(seconds, way(*both), way(one), way(one, other))
    name = "a stream beside one that is stuck at its limit, beside the same alone, durable"
    yield Figure(name, "messages/s", mine, alone, goal(seconds, LEAST_BESIDE_STUCK * alone))
    yield Figure("two streams in one process on two cores, beside one stream, durable", "messages/s", of_both, of_one)
    name = "two streams in two processes on two cores, beside one stream, durable"
    yield Figure(name, "messages/s", of_each, of_one, goal(seconds, LEAST_OF_TWO_PROCESSES * of_one))


def _streams(folder: Path, ports: Sequence[int], limit: str = "") -> AbstractContextManager[Gateway]:
    """Runs a gateway with a stream for each port, the first of them with a limit."""
    limits = [limit, *[""] * len(ports)]
    more = "".join(
        STREAM.format(name=name, port=port, limit=its) for name, port, its in zip(STREAMS, ports, limits, strict=False)
    )
    return gateway(made(folder), more=more, core=None)


def _publisher(stack: ExitStack, port: int, publishes: Publishes) -> Publisher:
    keep(port, MQTT_5)
    publisher = Publisher(port, "bench-publisher", publishes, 1, WINDOW, MQTT_5)
    stack.callback(publisher.close)
    return publisher


def _way(publishers: Sequence[Publisher], others: Sequence[Publisher]) -> Way:
    """Publishes in all streams at once, and counts what was acknowledged; the others stay connected."""
    poller = Poller([*publishers, *others])

    def fill() -> None:
        for publisher in publishers:
            publisher.fill()

    def acknowledged() -> int:
        return sum(publisher.acknowledged for publisher in publishers)

    def way(seconds: float) -> tuple[int, float]:
        fill()
        poller.run(min(WARM_UP_S, seconds), fill)
        before = acknowledged()
        took_s = poller.run(seconds, fill)
        counted = acknowledged() - before
        poller.run(DRAIN_S, lambda: None, lambda: acknowledged() >= sum(one.sent for one in publishers))
        return counted, took_s

    return way
