"""A status page of a broker in the test's process, and a gateway with something of each kind to show."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.broker import Broker
from gateway.config.schema import PageConfig
from gateway.counters import RouteAbout, RouteState
from gateway.message import Message
from gateway.page.observer import Observer
from gateway.page.server import PageServer
from gateway.store.tables import drops
from tests.gateway.serving import running
from tests.gateway.support import connected

DAY_S = 86_400
OK = "HTTP/1.1 200 OK"


@asynccontextmanager
async def paged(broker: Broker, observer: Observer | None = None, **keys: Any) -> AsyncIterator[PageServer]:
    """The broker's status page, on a free port."""
    watchers = broker.services.shared.access_control.watchers
    page = PageServer(PageConfig(**{"port": 0, **keys}), broker.config.name, watchers, observer or observer_of(broker))
    await page.open()
    try:
        yield page
    finally:
        await page.close()


def observer_of(broker: Broker, *until_receipt: str) -> Observer:
    """Its routes with these names keep messages until a receipt."""

    def described() -> dict[str, RouteAbout]:
        return {
            one.name: RouteAbout("mqtt://broker.example.org", until_receipt=one.name in until_receipt)
            for one in broker.overview.routes
        }

    devices = broker.services.shared.devices
    return Observer(broker.config.name, "1.2.3", broker.overview, devices, described, time.time())


@asynccontextmanager
async def page_of(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, PageServer]]:
    """A gateway and its status page."""
    async with running(folder, **settings) as broker, paged(broker) as page:
        yield broker, page


async def ask(page: PageServer, path: str = "/", *headers: str, method: str = "GET") -> tuple[str, str]:
    """Sends a request; returns the head and the body of the answer."""
    host = () if any(one.startswith("Host:") for one in headers) else ("Host: localhost",)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    lines = [f"{method} {path} HTTP/1.1", *host, *headers, "Connection: close"]
    writer.write("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head, body


def add_device(broker: Broker, observer: Observer, name: str, pauses_s: list[float], silent_s: float) -> None:
    """Adds a connected device with pauses between its messages, the last of which came `silent_s` seconds ago."""
    heard = broker.services.shared.devices.note_connected(name, None, "192.0.2.1", 5)
    at_s = time.time() - silent_s - sum(pauses_s)
    for pause_s in (0.0, *pauses_s):
        at_s += pause_s
        heard.at_ms = int(1000 * at_s)
        observer.hear(name, heard)


def drop(broker: Broker, reason: str, consumer: str, origin: str, seqs: range) -> None:
    """Leaves a range."""
    for seq in seqs:
        message = Message(f"telemetry/{origin}", b"1")
        message.origin, message.epoch, message.seq, message.publisher = origin, 0x2A, seq, origin
        broker.log.drop(reason, consumer, message)


def add_day(observer: Observer, route: str = "central") -> None:
    """Fills the history with a day in which the route was down for some hours."""
    now_s, waits = time.time(), 0.0
    for place in range(288):
        at_s = now_s - DAY_S + 300 * (place + 1)
        is_down = 100 <= place < 130
        waits = waits + 1500 if is_down else max(0.0, waits - 4000)
        observer.history.begin(at_s)
        observer.history.add("received", 1500 + 300 * (place % 7))
        observer.history.add("dropped", 420.0 if place == 125 else 0.0)
        observer.history.note_most(f"waiting {route}", waits)
        observer.history.note_most(f"down {route}", float(is_down))
        observer.history.note_last("left ", 3.1e9 - 2e6 * place)


async def add_scene(broker: Broker, observer: Observer) -> None:
    """Adds something of each kind: routes of each standing, silent devices, gaps, a day."""
    now_ms = int(1000 * time.time())
    central = RouteState("central", connected=True, acknowledged_ms=now_ms - 2000, arrived_per_s=5.2)
    central.server = "mqtts://broker.example.org:8883"
    central.unproven_messages, central.unproven_bytes = 312, 41_000
    central.unproven_ms, central.landed_ms = now_ms - 62_000, now_ms - 65_000
    city = RouteState("city", backlog_messages=12_400, backlog_bytes=2_000_000, oldest_ms=now_ms - 7_200_000)
    city.last_error = "cannot connect: No route to host"
    fresh = RouteState("archive", connected=True, server="nats://archive.example.org")
    broker.overview.routes += [central, city, fresh]
    for number in range(40):
        await connected(broker, f"garage-{number}")
        add_device(broker, observer, f"garage-{number}", [60.0] * 4, 20.0)
    add_device(broker, observer, "greenhouse-north", [60.0] * 6, 900.0)
    broker.services.shared.devices.note_connected("cellar", None, "192.0.2.7", 5)
    drop(broker, drops.EVICTED, "route/city", "garage-7", range(100, 140))
    drop(broker, drops.REJECTED, drops.GATEWAY, "greenhouse-north", range(5, 8))
    await broker.log.submit([])
    add_day(observer)
