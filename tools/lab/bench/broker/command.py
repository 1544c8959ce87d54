"""``holdfast lab bench broker``: publishes acknowledged by the gateway and by mosquitto, in one run."""

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.lab import strace
from tools.lab.bench.broker.disk import paced_syncs_s, sync_s
from tools.lab.bench.broker.processes import (
    Generator,
    bare_server,
    bench_folder,
    gateway,
    load,
    mosquitto,
    slow_sync_s,
)
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.process import Server
from wire.codec.packets import MQTT_5

PUBLISHERS = (1, 4)
WINDOWS = (200, 2000)
SMALL_WINDOWS = (1, 20)
PIECES, PIECE_S = 4, 0.1  # a small window is measured in pieces of at least this time, and the disk between them
LEAST_TIMES_MEMORY = 2
LEAST_TIMES_AUTOSAVE = 8
LEAST_OF_SYNC = 0.9
MOST_TIMES_BARE = 3  # one message and its PUBACK, of a sync and a bare round trip
TITLE = "QoS 1 and 2 publishes of 100 B acknowledged, broker on one core, generator on another"


def broker(
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds that each measurement takes.")] = 2.0,
    quick: Annotated[bool, quick_option(seconds=0.2)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure publishes per second that the gateway and mosquitto acknowledge. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    with bench_folder("lab bench broker") as folder, ExitStack() as stack:
        figures = list(_figures(folder, stack, seconds))
    end_bench("broker", figures, time.monotonic() - started, as_json, about={"title": TITLE})


def _figures(folder: Path, stack: ExitStack, seconds: float) -> Iterator[Figure]:
    ours = stack.enter_context(gateway(folder / "ours"))
    memory = stack.enter_context(mosquitto(folder / "memory"))
    autosave = stack.enter_context(mosquitto(folder / "autosave", autosave=True))
    bare = stack.enter_context(bare_server())
    generator = Generator(ours)
    for qos in (1, 2):
        for publishers in PUBLISHERS:
            for window in WINDOWS:
                task = {"qos": qos, "publishers": publishers, "window": window, "seconds": seconds}
                name = f"QoS {qos}, publishers {publishers}, window {window:,}"
                yield _full_speed(ours, memory, generator, folder, name, **task)
    # Kept, because mosquitto answers a message without subscribers with another reason code over MQTT 5.
    device = {"window": 2000, "seconds": seconds, "level": MQTT_5, "from_device": True, "is_kept": True}
    name = "QoS 1, window 2,000, MQTT 5 with a device's properties, kept"
    yield _full_speed(ours, memory, generator, folder, name, **device)
    for window in WINDOWS:
        name = f"what the generator can do, window {window:,}"
        yield Figure(name, "messages/s", generator.load(bare, window=window, seconds=seconds)["rate"])
    yield generator.figure()
    yield from _small_windows(ours, bare, generator, lambda: sync_s(folder), "this disk", seconds)
    yield from _on_a_slow_disk(bare, generator, folder, seconds)
    yield from _latency(generator, folder, seconds)
    for publishers in PUBLISHERS:
        for window in WINDOWS:
            yield _beside_autosave(ours, autosave, generator, publishers, window, seconds)


def _full_speed(ours: Server, memory: Server, generator: Generator, folder: Path, name: str, **task: float) -> Figure:
    """Lowers the goal to the rate that the disk allows."""
    theirs, rate = generator.load(memory, **task)["rate"], generator.load(ours, **task)["rate"]
    on_the_way = task.get("publishers", 1) * task["window"]
    allowed = LEAST_OF_SYNC * on_the_way / (task.get("qos", 1) * sync_s(folder))
    bar = LEAST_TIMES_MEMORY * theirs
    name += ", beside mosquitto in memory" + (", as the disk allows" if allowed < bar else "")
    return Figure(name, "messages/s", rate, theirs, min(bar, allowed))


def _beside_autosave(
    ours: Server, autosave: Server, generator: Generator, publishers: int, window: int, seconds: float
) -> Figure:
    """Measures with an offline subscriber, for which both store the messages; mosquitto writes nothing without it."""
    task = {"publishers": publishers, "window": window, "seconds": seconds, "is_kept": True}
    theirs, rate = generator.load(autosave, **task)["rate"], generator.load(ours, **task)["rate"]
    name = f"QoS 1, publishers {publishers}, window {window:,}, kept, beside mosquitto with autosave on every change"
    return Figure(name, "messages/s", rate, theirs, LEAST_TIMES_AUTOSAVE * theirs)


def _small_windows(
    ours: Server, bare: Server, generator: Generator, sync: Callable[[], float], disk: str, seconds: float
) -> Iterator[Figure]:
    """Measures small windows, and the disk between them, because its speed changes. The round trip to a server that
    stores nothing shows the time that is not the disk's."""
    pieces = min(PIECES, max(1, round(seconds / PIECE_S)))
    for window in SMALL_WINDOWS:
        syncs, rates = [], []
        for _ in range(pieces):
            syncs.append(sync())
            rates.append(generator.load(ours, window=window, seconds=seconds / pieces)["rate"])
        sync_s, took = sum(syncs) / pieces, pieces * window / sum(rates)
        trip = window / generator.load(bare, window=window, seconds=seconds / pieces)["rate"]
        name = f"QoS 1, window {window}, {disk}"
        yield Figure(f"{name}, of window / sync time", "share", sync_s / took, None, LEAST_OF_SYNC)
        times, most = took / (sync_s + trip), MOST_TIMES_BARE if window == 1 else None
        yield Figure(f"{name}, round trip / (sync time + bare round trip)", "times", times, None, most, at_most=True)
        yield Figure(f"{name}, sync time", "ms", sync_s * 1000)
        yield Figure(f"{name}, bare round trip", "ms", trip * 1000)
        yield Figure(f"{name}, round trip", "ms", took * 1000)


def _on_a_slow_disk(bare: Server, generator: Generator, folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures the small windows on a disk that is as slow as an SD card."""
    try:
        strace.check()
    except strace.StraceUnavailable as error:
        print(f"holdfast lab bench broker: no figures of a slow disk: {error}", file=sys.stderr)
        return
    with gateway(folder / "slow", disk_is_slow=True) as ours:
        load(ours, window=2000, seconds=1)  # so that its files have the size that they keep
        disk = f"a disk {strace.SLOW_SYNC_MS} ms slower"
        yield from _small_windows(ours, bare, generator, lambda: slow_sync_s(folder), disk, seconds)


def _latency(generator: Generator, folder: Path, seconds: float) -> Iterator[Figure]:
    """Measures latencies: each broker at half of its peak, and the gateway at mosquitto's rate too. The messages are
    for an offline subscriber, or mosquitto would write nothing. Each measurement has a new broker."""
    numbers = itertools.count()

    def measured(kind: Callable[[Path], AbstractContextManager[Server]], **task: float) -> dict[str, Any]:
        with kind(folder / f"latency-{next(numbers)}") as broker:
            return generator.load(broker, seconds=seconds, is_kept=True, **task)

    def at(kind: Callable[[Path], AbstractContextManager[Server]], rate: float) -> dict[str, Any]:
        return measured(kind, window=30_000, rate=rate)

    mine = at(gateway, measured(gateway, window=2000)["rate"] / 2)
    autosave = functools.partial(mosquitto, autosave=True)
    theirs = at(autosave, rate := measured(autosave, window=2000)["rate"] / 2)
    beside = "kept, beside mosquitto with autosave on every change"
    for name, found in (("half of its own peak rate", mine), ("half of mosquitto's peak rate", at(gateway, rate))):
        name = f"QoS 1 at {name}, {beside}"
        yield Figure(f"{name}, rate", "messages/s", found["rate"], theirs["rate"])
        yield Figure(f"{name}, p50", "ms", found["p50_ms"], theirs["p50_ms"])
        yield Figure(f"{name}, p99", "ms", found["p99_ms"], theirs["p99_ms"], theirs["p99_ms"], at_most=True)
    syncs = paced_syncs_s(folder, rate, seconds)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        yield Figure(f"this disk's own sync at that rate, {name}", "ms", 1000 * syncs[int(share * len(syncs))])
