"""``holdfast bench storage``: bytes that the gateway writes for each message, and keeps behind one that waits."""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tools.bench.broker_client import Client
from tools.bench.broker_load import forget_kept
from tools.bench.broker_processes import BenchUnavailable, Broker, gateway, load
from tools.bench.disk import bytes_written
from tools.bench.figure import Figure
from tools.failure import failing_on
from tools.result import JSON_OPTION, end_bench, quick_option
from wire.packets import MQTT_3_1_1

GATHERING_MS = 1000
# messages/s: commit_interval_ms, most bytes a message (4.2 KB, 300, 200)
RATES = {1: (0, 4300), 100: (GATHERING_MS, 300), 10_000: (GATHERING_MS, 200)}
ACKNOWLEDGEMENT = 4  # bytes to the client, which the kernel counts as written too
SHORT_S = 1.0
QUIET_S = 3.0  # longer than between two looks of the housekeeping
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
    with failing_on(BenchUnavailable, command="bench storage"):
        figures = [figure for rate in RATES for figure in _figures(rate, seconds)]
        figures.append(_behind_one_that_waits(behind))
    end_bench("storage", figures, time.monotonic() - started, as_json, about={"title": TITLE})


def _figures(rate: int, seconds: float) -> Iterator[Figure]:
    interval_ms, bar = RATES[rate]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, gateway(Path(folder), interval_ms) as ours:
        load(ours, seconds=1, window=2000)  # so that all files have the size that they keep
        short, long = (_written(ours, Path(folder), rate, some) for some in (SHORT_S, SHORT_S + seconds))
    # What a long load takes more than a short one: it costs nothing to connect.
    messages = long["messages"] - short["messages"]
    name = f"at {rate:,}/s, commit_interval_ms = {interval_ms}"
    for key, what in KINDS.items():
        yield Figure(f"{name}, {what}", "bytes", (long[key] - short[key]) / messages, None, bar, at_most=True)
    if DEVICE in long:
        yield Figure(f"{name}, to the whole disk, whoever wrote it", "bytes", long[DEVICE] / long["messages"])


def _behind_one_that_waits(count: int) -> Figure:
    """One message waits for a session that is away; then many come that another subscriber takes."""
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


def _written(broker: Broker, folder: Path, rate: int, seconds: float) -> dict[str, int]:
    _settle(broker, folder)
    before = _counters(broker, folder)
    messages = load(broker, seconds=seconds, rate=rate, window=30_000, is_kept=True)["acknowledged"]
    found = {key: value - before[key] for key, value in _counters(broker, folder).items()}
    found[STORE] -= ACKNOWLEDGEMENT * messages
    return {"messages": messages, **found}


def _settle(broker: Broker, folder: Path) -> None:
    """Waits until the gateway has nothing left to do of earlier loads and what they left in the store."""
    forget_kept(broker.port)
    before = -1
    while (written := broker.io(STORE)) != before:
        before = written
        time.sleep(QUIET_S)
    with contextlib.closing(sqlite3.connect(folder / "store" / "messages.sqlite")) as store:
        store.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _counters(broker: Broker, folder: Path) -> dict[str, int]:
    found = {STORE: broker.io(STORE), KERNEL: broker.io(KERNEL)}
    if (on_device := bytes_written(folder)) is not None:
        found[DEVICE] = on_device
    return found
