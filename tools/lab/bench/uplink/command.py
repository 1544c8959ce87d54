"""``holdfast lab bench uplink``: a gateway's route to the next broker, beside mosquitto's bridge in the same run."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.lab.bench.batch.fleet import BME280, DS18B20
from tools.lab.bench.broker.client import Counter, Poller, Publisher
from tools.lab.bench.broker.packets import Publishes
from tools.lab.bench.broker.processes import (
    GENERATOR_CORE,
    BenchUnavailable,
    Generator,
    bench_folder,
    gateway,
    load,
    mosquitto,
)
from tools.lab.bench.uplink.kept import until_receipt, walk
from tools.lab.bench.uplink.landed import landed
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Server
from uplink.outlet.keeper import BEHIND_S
from wire.codec.packets import MQTT_3_1_1

LEAST_TIMES_BRIDGE = {1: 1.2, 2: 1.0}  # by QoS
LEAST_TIMES_INFLOW = 3
WAITING_MB_MAX, START_S_MAX = 100, 2
WINDOW = 2000  # so large that the route limits the rate, and not the sync after each window
TURNS = 4  # how often route and bridge take turns, because the machine's speed changes
LIVE_P99_MS_MAX = 1000
LIVE_PIECE_S = 5.0
LIVE_RATE = 5_000  # messages/s, what ThingsBoard's gateway can take in at most
WAITING_ROUTES = 3
LANDED_SHARE = 2  # half as many messages as those of the backlog go in batches, of each sensor
DEADLINE_S = 900.0
SIZE = 100
BACKLOG = "bench-backlog"
STRICT, LIVE_FIRST = "strict", "live_first"
# A bridge does not wait for a subscriber either; the generator's may come after the first messages.
ROUTE = '[[route]]\nname = "{name}"\nbroker = "mqtt://127.0.0.1:{port}"\nneeds_subscriber = false\n'
BRIDGE = "connection next\naddress 127.0.0.1:{port}\ntopic # out 2\ncleansession false\nnotifications false\n"
TITLE = "messages of 100 B over a route to the next broker, gateway on one core, the others on another"


def uplink(
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds that each rate is measured.")] = 8.0,
    backlog: Annotated[int, typer.Option(min=1000, help="How many messages wait before they drain.")] = 1_000_000,
    messages: Annotated[int, typer.Option(min=1000, help="How many messages wait on three routes.")] = 10_000_000,
    quick: Annotated[bool, quick_option(seconds=1.0, backlog=50_000, messages=100_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure a route's rates, backlog and memory, beside mosquitto's bridge. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    with bench_folder("lab bench uplink") as folder:
        figures = list(_figures(folder, seconds, backlog, messages))
    end_bench("uplink", figures, time.monotonic() - started, as_json, about={"title": TITLE})


def _figures(folder: Path, seconds: float, backlog: int, messages: int) -> Iterator[Figure]:
    for qos in (1, 2):
        yield from beside_bridge(folder / f"qos-{qos}", qos, seconds)
    yield from until_receipt(folder / "kept", seconds, WINDOW)
    yield from walk(folder / "walk", backlog)
    for sensor in (BME280, DS18B20):
        yield from landed(folder / f"landed-{len(sensor)}", sensor, backlog // LANDED_SHARE, WINDOW)
    for order in (STRICT, LIVE_FIRST):
        yield from drain(folder / order, backlog, order)
    yield from waiting(folder / "waiting", messages)


def beside_bridge(folder: Path, qos: int, seconds: float) -> Iterator[Figure]:
    """Measures messages to a next mosquitto, through our route and through a mosquitto's bridge, in turns."""
    with ExitStack() as stack:
        behind_ours = stack.enter_context(mosquitto(folder / "next", core=GENERATOR_CORE))
        more = ROUTE.format(name="next", port=behind_ours.port)
        ours = stack.enter_context(gateway(folder / "ours", more=more))
        behind_theirs = stack.enter_context(mosquitto(folder / "beyond", core=GENERATOR_CORE))
        more = BRIDGE.format(port=behind_theirs.port)
        theirs = stack.enter_context(mosquitto(folder / "theirs", more=more))
        rates, counts, cpu_s = ({ours: 0.0, theirs: 0.0} for _ in range(3))
        for broker, next_broker in ((theirs, behind_theirs), (ours, behind_ours)) * TURNS:
            before_s = broker.cpu_s()
            task = {"qos": qos, "window": WINDOW, "seconds": seconds / TURNS, "next_port": next_broker.port}
            found = Generator(ours).load(broker, subscribers=1, **task)
            cpu_s[broker] += broker.cpu_s() - before_s
            counts[broker] += found["with_warm_up"]
            rates[broker] += found["rate"] / TURNS
    name = f"QoS {qos}, by a route and by mosquitto's bridge, which stores nothing"
    yield Figure(name, "messages/s", rates[ours], rates[theirs], LEAST_TIMES_BRIDGE[qos] * rates[theirs])
    mine, other = (1e6 * cpu_s[broker] / counts[broker] for broker in (ours, theirs))
    yield Figure(f"{name}, processor time for a message", "us", mine, other)


def drain(folder: Path, count: int, order: str) -> Iterator[Figure]:
    """Measures how fast a backlog goes on while other messages come, and with fresh messages first how long these take
    to a subscriber of the next broker. The next broker stands still (SIGSTOP) before."""
    with ExitStack() as stack:
        behind = stack.enter_context(mosquitto(folder / "next", core=GENERATOR_CORE))
        more = ROUTE.format(name="next", port=behind.port) + f'order = "{order}"\n'
        ours = stack.enter_context(gateway(folder / "ours", more=more))
        counter = Counter(behind.port, "bench-counter")
        counter.subscribe(BACKLOG, qos=0)
        behind.signal(signal.SIGSTOP)
        publish(ours, count)
        if order == LIVE_FIRST:
            time.sleep(BEHIND_S + 1.5)  # what waits for so long becomes backfill
        behind.signal(signal.SIGCONT)
        found: list[dict[str, Any]] = []
        has_drained = threading.Event()
        live = threading.Thread(target=_load_live_until, args=(ours, behind, has_drained, found))
        live.start()
        took_s = Poller([counter]).run(DEADLINE_S, lambda: None, lambda: counter.received >= count)
        has_drained.set()
        counter.close()
        live.join()
    if counter.received < count or not found:
        raise BenchUnavailable(f"{count - counter.received} messages of the backlog did not arrive in {DEADLINE_S:g} s")
    name = f"a backlog of {count:,} that drains while {LIVE_RATE:,}/s come"
    if order == LIVE_FIRST:
        name = f"a backlog of {count:,} behind {LIVE_RATE:,} fresh messages/s"
    yield Figure(name, "messages/s", count / took_s, None, LEAST_TIMES_INFLOW * LIVE_RATE)
    if order == LIVE_FIRST:
        slowest_ms = max(one["p99_ms"] or DEADLINE_S * 1000 for one in found)
        name = f"{name}, p99 of fresh ones to a subscriber of the next broker"
        yield Figure(name, "ms", slowest_ms, None, LIVE_P99_MS_MAX, at_most=True)


def waiting(folder: Path, count: int) -> Iterator[Figure]:
    """Measures a gateway with messages that wait on routes whose brokers are away."""
    port = free_port()
    more = "".join(ROUTE.format(name=f"route-{number}", port=port) for number in range(WAITING_ROUTES))
    name = f"with {count:,} messages that wait on {WAITING_ROUTES} routes"
    with gateway(folder, more=more) as ours:
        publish(ours, count)
        yield Figure(f"memory {name}", "MB", ours.status("VmRSS") / 1024, None, WAITING_MB_MAX, at_most=True)
    started = time.perf_counter()
    with gateway(folder, more=more) as ours:
        took_s = time.perf_counter() - started
        yield Figure(f"start-up {name}", "s", took_s, None, START_S_MAX, at_most=True)
        yield Figure(f"memory after it, {name}", "MB", ours.status("VmRSS") / 1024, None, WAITING_MB_MAX, at_most=True)


def publish(broker: Server, count: int) -> None:
    """Returns when ``count`` messages of QoS 1 are acknowledged. Raises BenchUnavailable."""
    publishes = Publishes(BACKLOG, 1, SIZE, MQTT_3_1_1)
    publisher = Publisher(broker.port, "bench-backlog", publishes, 1, WINDOW, MQTT_3_1_1)
    publisher.may_send = lambda: count - publisher.sent
    poller = Poller([publisher])
    publisher.fill()
    poller.run(DEADLINE_S, publisher.fill, lambda: publisher.acknowledged >= count)
    publisher.close()
    if publisher.acknowledged < count:
        raise BenchUnavailable(f"{count} messages were not acknowledged in {DEADLINE_S:g} s")


def _load_live_until(ours: Server, behind: Server, has_ended: threading.Event, found: list[dict[str, Any]]) -> None:
    """Sends fresh messages, piece by piece; notes what each piece measured."""
    with contextlib.suppress(BenchUnavailable):  # without any result the benchmark says so
        while not has_ended.is_set():
            task = {"rate": LIVE_RATE, "window": 30_000, "seconds": LIVE_PIECE_S}
            found.append(load(ours, subscribers=1, next_port=behind.port, **task))
