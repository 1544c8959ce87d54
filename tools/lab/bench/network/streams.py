"""Streams: what one that is stuck costs another, and how two of them share the processor, in one process or in two."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tools.lab.bench.broker.client import Client, Poller, Publisher
from tools.lab.bench.broker.load import keep
from tools.lab.bench.broker.packets import Publishes
from tools.lab.bench.broker.processes import gateway
from tools.lab.bench.network.chain import made
from tools.lab.bench.network.rates import DRAIN_S, SIZE, WARM_UP_S, WINDOW, Way, in_turns
from tools.lab.figure import Figure
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
    with ExitStack() as stack:
        stuck, free = _ports(stack, made(folder / "stuck"), STREAMS, STUCK)
        _, alone = _ports(stack, made(folder / "alone"), STREAMS, STUCK)
        publishers = [_filled(stack, stuck)]
        mine, other = in_turns(seconds, _way(stack, [free], publishers), _way(stack, [alone]))
    name = "a stream beside one that is stuck at its limit, beside the same alone, durable"
    yield Figure(name, "messages/s", mine, other, LEAST_BESIDE_STUCK * other)
    with ExitStack() as stack:
        both = _ports(stack, made(folder / "both"), STREAMS)
        one = _ports(stack, made(folder / "one"), STREAMS[:1])
        each = [_ports(stack, made(folder / f"process-{name}"), (name,))[0] for name in STREAMS]
        ways = [_way(stack, ports) for ports in (both, one, each)]
        of_both, of_one, of_each = in_turns(seconds, *ways)
    yield Figure("two streams in one process on two cores, beside one stream, durable", "messages/s", of_both, of_one)
    name = "two streams in two processes on two cores, beside one stream, durable"
    yield Figure(name, "messages/s", of_each, of_one, LEAST_OF_TWO_PROCESSES * of_one)


def _ports(stack: ExitStack, folder: Path, names: Sequence[str], limit: str = "") -> list[int]:
    """Runs a gateway with these streams, the first of them with a limit; returns the ports of their listeners."""
    ports = [free_port() for _ in names]
    limits = [limit, *[""] * len(names)]
    more = "".join(
        STREAM.format(name=name, port=port, limit=its) for name, port, its in zip(names, ports, limits, strict=False)
    )
    stack.enter_context(gateway(folder, more=more, core=None))
    return ports


def _publisher(stack: ExitStack, port: int) -> Publisher:
    publisher = Publisher(port, "bench-publisher", Publishes(TOPIC, 1, SIZE, MQTT_5), 1, WINDOW, MQTT_5)
    stack.callback(publisher.close)
    return publisher


def _filled(stack: ExitStack, port: int) -> Publisher:
    """Fills a stream, so that what its publisher sends waits."""
    keep(port, MQTT_5)
    publisher = _publisher(stack, port)
    Poller([publisher]).run(DRAIN_S, publisher.fill, lambda: publisher.acknowledged >= LIMIT)
    Poller([publisher]).run(WARM_UP_S, publisher.fill)
    return publisher


def _way(stack: ExitStack, ports: Sequence[int], others: Sequence[Client] = ()) -> Way:
    """Publishes to all ports at once, and counts what was acknowledged."""
    for port in ports:
        keep(port, MQTT_5)
    publishers = [_publisher(stack, port) for port in ports]
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
