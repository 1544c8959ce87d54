"""``holdfast lab bench storage``: bytes that the gateway writes for each message, and keeps behind one that waits."""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.bench.broker.client import Client
from tools.lab.bench.broker.disk import bytes_written
from tools.lab.bench.broker.load import keep
from tools.lab.bench.broker.processes import BenchUnavailable, gateway, load
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.process import Server
from wire.codec.packets import MQTT_3_1_1

GATHERING_MS = 1000
# messages/s: commit_interval_ms, most bytes a message (4.2 KB, 300, 200)
RATES = {1: (0, 4300), 100: (GATHERING_MS, 300), 10_000: (GATHERING_MS, 200)}
ACKNOWLEDGEMENT = 4  # bytes to the client, which the kernel counts as written
SHORT_S = 1.0
QUIET_S, LOOK_S = 2.5, 0.25  # longer than between two runs of the maintenance, and than a commit's interval
STORE, KERNEL, DEVICE = "wchar", "write_bytes", "sectors"
FORGOTTEN, FORGOTTEN_EXPIRY_S = "bench-forgotten", 3600
FORGOTTEN_BYTES_MAX = 64_000_000  # of all files
KINDS = {STORE: "by the store", KERNEL: "as whole pages of the kernel"}
TITLE = "bytes written for each QoS 1 message of 100 B, kept for a subscriber that is away"


def storage(
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for which each rate is held.")] = 20.0,
    behind: Annotated[
        int, typer.Option(min=1, help="How many messages to store behind one that waits for a session.")
    ] = 500_000,
    quick: Annotated[bool, quick_option(seconds=1.0, behind=20_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Count the bytes that the gateway writes to disk for each message. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    with failing_on(BenchUnavailable, command="lab bench storage"):
        figures = list(_figures(seconds))
        figures.append(_behind_one_that_waits(behind))
    end_bench("storage", figures, time.monotonic() - started, as_json, about={"title": TITLE})


@dataclass(frozen=True)
class Tried:
    """A gateway that receives messages at a rate."""

    rate: int
    ours: Server
    folder: Path


def _figures(seconds: float) -> Iterator[Figure]:
    """Measures each rate with a gateway of its own, one after the other; all gateways become idle at the same time."""
    written = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(RATES)) as threads:
        tried = [stack.enter_context(_trying(rate)) for rate in RATES]
        for some in (SHORT_S, SHORT_S + seconds):
            list(threads.map(_settle, tried))
            written.append([_written(one, some) for one in tried])
    for rate, short, long in zip(RATES, *written, strict=True):
        yield from _of_rate(rate, short, long)


@contextlib.contextmanager
def _trying(rate: int) -> Iterator[Tried]:
    interval_ms, _ = RATES[rate]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, gateway(Path(folder), interval_ms) as ours:
        load(ours, seconds=1, window=2000)  # so that all files have the size that they keep
        yield Tried(rate, ours, Path(folder))


def _of_rate(rate: int, short: dict[str, int], long: dict[str, int]) -> Iterator[Figure]:
    """Returns the difference between a long load and a short one, without the bytes of connecting."""
    interval_ms, bar = RATES[rate]
    messages = long["messages"] - short["messages"]
    name = f"at {rate:,}/s, commit_interval_ms = {interval_ms}"
    for key, what in KINDS.items():
        yield Figure(f"{name}, {what}", "bytes", (long[key] - short[key]) / messages, None, bar, at_most=True)
    if DEVICE in long:
        yield Figure(f"{name}, to the whole disk, by all processes", "bytes", long[DEVICE] / long["messages"])


def _behind_one_that_waits(count: int) -> Figure:
    """Stores a message for an offline session, and then many messages that another subscriber receives."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, gateway(Path(folder)) as ours:
        forgotten = Client(ours.port, FORGOTTEN, MQTT_3_1_1, FORGOTTEN_EXPIRY_S)
        forgotten.subscribe("alarm")
        forgotten.close()
        sender = Client(ours.port, "bench-alarm")
        sender.publish("alarm")
        sender.close()
        load(ours, count=count, subscribers=1, window=2000)
        size = sum(path.stat().st_size for path in (Path(folder) / "store").iterdir())
    name = f"the store with one message that waits, and {count:,} behind it that others took"
    return Figure(name, "bytes", size, None, FORGOTTEN_BYTES_MAX, at_most=True)


def _written(one: Tried, seconds: float) -> dict[str, int]:
    before = _counters(one.ours, one.folder)
    messages = load(one.ours, seconds=seconds, rate=one.rate, window=30_000)["acknowledged"]
    found = {key: value - before[key] for key, value in _counters(one.ours, one.folder).items()}
    found[STORE] -= ACKNOWLEDGEMENT * messages
    return {"messages": messages, **found}


def _settle(one: Tried) -> None:
    """Makes the gateway keep messages from now on, and waits until it has finished the work of earlier loads."""
    keep(one.ours.port)
    before, since = one.ours.io(STORE), time.monotonic()
    while time.monotonic() < since + QUIET_S:
        time.sleep(LOOK_S)
        if (written := one.ours.io(STORE)) != before:
            before, since = written, time.monotonic()
    with contextlib.closing(sqlite3.connect(one.folder / "store" / "messages.sqlite")) as store:
        store.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _counters(broker: Server, folder: Path) -> dict[str, int]:
    found = {STORE: broker.io(STORE), KERNEL: broker.io(KERNEL)}
    if (on_device := bytes_written(folder)) is not None:
        found[DEVICE] = on_device
    return found
