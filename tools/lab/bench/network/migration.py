"""How long `holdfast gateway migrate` takes for the stores of many streams, beside a plain copy that is synced."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.store import Cursor, MessageLog, PublishBatch, consumer_names, repair, sessions
from gateway.store.repair import Move
from gateway.subscriptions import Subscription
from tools.lab.bench.broker.packets import Publishes
from tools.lab.figure import Figure
from wire.codec.packets import MQTT_5

OF_STREAM, FOR_SESSION = 10_000, 100  # messages in a stream, and for each session
TOGETHER = 1000  # messages
SIZE = 100
FOR_EVER_S = 0xFFFF_FFFF
TOPIC = "bench/telemetry"
MOST_S = 60.0


def migration(folder: Path, messages: int) -> Iterator[Figure]:
    """Measures the migration of ``messages`` messages, with streams and sessions."""
    streams, made = messages // OF_STREAM, messages // FOR_SESSION
    old, new, copy = (folder / name for name in ("old", "new", "copy"))
    names = [f"stream-{number}" for number in range(streams)]
    for name in names:
        asyncio.run(_fill(old / name, made // streams, messages // streams))
    began_s = time.perf_counter()
    shutil.copytree(old, copy)
    for path in copy.rglob("*"):
        _sync(path)
    copied_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    found = repair.migrate([Move(name, old / name, new / name) for name in names])
    took_s = time.perf_counter() - began_s
    what = f"{found.stores:,} streams, {found.sessions:,} sessions, {found.messages:,} messages"
    yield Figure(f"migration of {what}, beside a copy that is synced", "s", took_s, copied_s, MOST_S, at_most=True)
    lacking = messages + made - found.messages - found.sessions
    yield Figure("messages and sessions that are missing or differ", "", lacking, None, 0, at_most=True)


async def _fill(folder: Path, many: int, messages: int) -> None:
    log = await MessageLog.open(folder, origin="bench")
    consumer = Cursor(log, f"{consumer_names.SESSION}s0", ["#"])
    for number in range(many):
        description = sessions.SessionDescription(FOR_EVER_S, None)
        await log.submit([sessions.SaveSession(f"s{number}", {"": description, "#": Subscription("#", 1)})])
    packets = bytes(Publishes(TOPIC, 1, SIZE).cut(0, TOGETHER))
    for _ in range(messages // TOGETHER):
        now_ms = int(time.time() * 1000)
        await log.submit([PublishBatch(packets, {TOPIC: None}, TOGETHER, MQTT_5, "publisher", now_ms, "bench")])
    consumer.close()
    await log.close()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
