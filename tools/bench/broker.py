"""``holdfast bench broker``: publishes acknowledged by the gateway and by mosquitto, in one run."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tools.bench.broker_figures import Figure, print_figures
from tools.bench.broker_processes import BenchUnavailable, Broker, bare_server, gateway, load, mosquitto

PUBLISHERS = (1, 4)
WINDOWS = (200, 2000)
SMALL_WINDOWS = (1, 20)
LEAST_TIMES_MEMORY = 2
LEAST_TIMES_AUTOSAVE = 8
LEAST_OF_SYNC = 0.9
SYNCS = 100
TITLE = "QoS 1 and 2 publishes of 100 B acknowledged, broker on one core, generator on another"


def broker(
    seconds: Annotated[float, typer.Option(min=0.2, help="How long each measurement takes.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Measure how many publishes the gateway acknowledges, beside mosquitto. Ends with 0 also where a bar is missed."""
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, ExitStack() as stack:
            print_figures(TITLE, list(_figures(Path(folder), stack, seconds)), as_json)
    except BenchUnavailable as error:
        print(f"holdfast bench broker: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


def _figures(folder: Path, stack: ExitStack, seconds: float) -> Iterator[Figure]:
    for name in ("ours", "memory", "autosave", "bare"):
        (folder / name).mkdir()
    ours = stack.enter_context(gateway(folder / "ours"))
    memory = stack.enter_context(mosquitto(folder / "memory"))
    autosave = stack.enter_context(mosquitto(folder / "autosave", autosave=True))
    bare = stack.enter_context(bare_server(folder / "bare"))
    for window in WINDOWS:
        rate = load(bare, window=window, seconds=seconds)["rate"]
        yield Figure(f"what the generator can do, window {window:,}", "messages/s", rate)
    for qos in (1, 2):
        for publishers in PUBLISHERS:
            for window in WINDOWS:
                yield _full_speed(ours, memory, folder, qos, publishers, window, seconds)
    yield from _small_windows(ours, folder, seconds)
    yield from _latency(ours, autosave, seconds)
    for publishers in PUBLISHERS:
        for window in WINDOWS:
            yield _beside_autosave(ours, autosave, publishers, window, seconds)


def _full_speed(
    ours: Broker, memory: Broker, folder: Path, qos: int, publishers: int, window: int, seconds: float
) -> Figure:
    """Where the disk does not allow the bar, the bar is what the disk allows."""
    task = {"qos": qos, "publishers": publishers, "window": window, "seconds": seconds}
    theirs, rate = load(memory, **task)["rate"], load(ours, **task)["rate"]
    allowed = LEAST_OF_SYNC * publishers * window / (qos * sync_s(folder))
    bar = min(LEAST_TIMES_MEMORY * theirs, allowed)
    name = f"QoS {qos}, publishers {publishers}, window {window:,}, beside mosquitto in memory"
    return Figure(name, "messages/s", rate, theirs, bar)


def _beside_autosave(ours: Broker, autosave: Broker, publishers: int, window: int, seconds: float) -> Figure:
    """Both keep the messages for a subscriber that is away: else mosquitto has nothing to write."""
    task = {"publishers": publishers, "window": window, "seconds": seconds, "is_kept": True}
    theirs, rate = load(autosave, **task)["rate"], load(ours, **task)["rate"]
    name = f"QoS 1, publishers {publishers}, window {window:,}, kept, beside mosquitto with autosave on every change"
    return Figure(name, "messages/s", rate, theirs, LEAST_TIMES_AUTOSAVE * theirs)


def _small_windows(ours: Broker, folder: Path, seconds: float) -> Iterator[Figure]:
    for window in SMALL_WINDOWS:
        before = sync_s(folder)
        rate = load(ours, window=window, seconds=seconds)["rate"]
        allowed = window / ((before + sync_s(folder)) / 2)
        yield Figure(f"QoS 1, window {window}, of window / sync time", "share", rate / allowed, None, LEAST_OF_SYNC)
    yield Figure("the disk's own sync time", "ms", sync_s(folder) * 1000)


def _latency(ours: Broker, autosave: Broker, seconds: float) -> Iterator[Figure]:
    """Each at half of its own peak, with messages that are kept, or mosquitto would have nothing to write."""
    found = []
    for one in (ours, autosave):
        peak = load(one, window=2000, seconds=seconds, is_kept=True)["rate"]
        found.append(load(one, window=30_000, seconds=seconds, rate=peak / 2, is_kept=True))
    mine, theirs = found
    name = "QoS 1 at half of the peak rate, kept, beside mosquitto with autosave on every change"
    yield Figure(f"{name}, p50", "ms", mine["p50_ms"], theirs["p50_ms"])
    yield Figure(f"{name}, p99", "ms", mine["p99_ms"], theirs["p99_ms"], theirs["p99_ms"], at_most=True)


def sync_s(folder: Path) -> float:
    """How long the disk below a folder takes on average to take 4 KiB into a file that is there already."""
    path = folder / "sync"
    number = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(number, bytes(4096 * SYNCS), 0)
        os.fsync(number)
        started = time.perf_counter()
        for index in range(SYNCS):
            os.pwrite(number, b"x" * 4096, index * 4096)
            os.fdatasync(number)
        return (time.perf_counter() - started) / SYNCS
    finally:
        os.close(number)
        path.unlink()
