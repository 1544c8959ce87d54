"""A run: common clients exchange messages while their gateway is killed and stopped, and lines are cut."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tools.cli.paths import cache_directory, source_root
from tools.lab.demo.site import holdfast
from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process
from tools.lab.torture.clients.clients import TOPIC, PahoPublisher, Subscriber, subscribers

DEADLINE_S = 300.0
QUIET_S = 20.0  # without a message, a subscriber or the reader has all
READER = "reader"
FAULTS = ("kill", "stop", "cut")
CONFIG = """\
name = "edge"
[store]
path = "store"
[limits]
session_expiry_max_s = 4294967295
[[listener]]
kind = "tcp"
port = {port}
"""


@dataclass
class Outcome:
    """What came of all runs. ``stored_twice`` are messages that the tables count twice, as each has an identity."""

    runs: int = 0
    publishers: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    lost: int = 0
    stored_twice: int = 0
    shown: dict[str, dict[str, int]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.violations


class _Site:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._config = folder / "gateway.toml"
        self._config.write_text(CONFIG.format(port=self.port))
        argv = holdfast("gateway", "run", str(self._config))
        self.process = Process("gateway", argv, folder / "gateway.log", {"PYTHONPATH": str(source_root())})
        self.link = NetworkLink("127.0.0.1", self.port)

    async def start(self) -> None:
        self.process.start()
        await asyncio.to_thread(self.process.listens, self.port)

    async def strike(self, fault: str, pause_s: float) -> None:
        if fault == "cut":
            await self.link.cut()
            await asyncio.sleep(pause_s)
            await self.link.open()
            return
        await asyncio.to_thread(self.process.kill if fault == "kill" else self.process.stop)
        await asyncio.sleep(pause_s)
        await self.start()


async def run(
    outcome: Outcome, folder: Path, seed: int, publishers: int, messages: int, faults: list[str], has_subscribers: bool
) -> None:
    """Runs one gateway with its clients, and adds what came of it. Raises ProcessFailed, OSError."""
    chance = random.Random(seed)
    site = _Site(folder)
    await site.start()
    await site.link.open()
    reader = await _reader(site.port)
    await reader.subscribe(f"{TOPIC}/#", options=1)
    await reader.disconnect()
    packages = cache_directory() / "mqtt_js"
    watching = subscribers(site.port, folder, packages if packages.exists() else None) if has_subscribers else []
    pahos = [PahoPublisher(f"p{number}", site.link.port, messages) for number in range(publishers)]
    try:
        for one in [*watching, *pahos]:
            await asyncio.to_thread(one.start)
        deadline = time.monotonic() + DEADLINE_S
        sending = [asyncio.create_task(asyncio.to_thread(one.publish, deadline)) for one in pahos]
        for fault in faults:
            await asyncio.sleep(chance.uniform(0.3, 2.0))
            await site.strike(fault, chance.uniform(0.0, 3.5))
            outcome.faults[fault] = outcome.faults.get(fault, 0) + 1
        await asyncio.gather(*sending)
        while not all(one.is_done for one in pahos) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        completed = set().union(*(one.completed() for one in pahos))
        stored = await _drained(site.port)
        _judge(outcome, seed, publishers * messages, completed, stored)
        await _shown(watching, stored)
        for one in watching:
            _judge_shown(outcome, seed, one, stored)
    finally:
        for one in [*pahos, *watching]:
            await asyncio.to_thread(one.stop)
        await asyncio.to_thread(site.process.stop)
        await site.link.cut()
    outcome.runs += 1
    outcome.publishers += publishers


async def _reader(port: int) -> Client:
    client = Client(READER, clean_start=False, keep_alive_s=0)
    await client.connect(port)
    return client


async def _drained(port: int) -> Counter[str]:
    """What the gateway has stored for a session that was away: each message as often as it has an identity."""
    found: Counter[str] = Counter()
    reader = await _reader(port)
    try:
        while True:
            async with asyncio.timeout(QUIET_S / 4):
                found.update([(await reader.receive()).payload.decode()])
    except (TimeoutError, UnexpectedEvent):
        return found
    finally:
        reader.cut()


async def _shown(watching: list[Subscriber], stored: Counter[str]) -> None:
    """Returns when each subscriber at QoS 1 and 2 has shown all, or shows nothing more."""
    for one in watching:
        before, quiet_s = -1, 0.0
        while one.qos and quiet_s < QUIET_S and not stored.keys() <= one.shown.keys():
            count = one.shown.total()
            quiet_s = 0.0 if count != before else quiet_s + 0.5
            before = count
            await asyncio.sleep(0.5)


def _judge(outcome: Outcome, seed: int, sent: int, completed: set[str], stored: Counter[str]) -> None:
    lost = completed - stored.keys()
    twice = [payload for payload, count in stored.items() if count > 1]
    outcome.messages += sent
    outcome.lost += len(lost)
    outcome.stored_twice += len(twice)
    if len(completed) < sent:
        outcome.violations.append(f"--seed {seed}: {sent - len(completed)} were not completed in {DEADLINE_S:g} s")
    for kind, payloads in {"lost": sorted(lost), "stored twice": twice}.items():
        if payloads:
            outcome.violations.append(f"--seed {seed}: {len(payloads)} {kind}: {', '.join(payloads[:5])}")


def _judge_shown(outcome: Outcome, seed: int, one: Subscriber, stored: Counter[str]) -> None:
    shown = {payload: count for payload, count in one.shown.items() if payload in stored}
    missing = len(stored) - len(shown)
    again = sum(count - 1 for count in shown.values())
    figures = outcome.shown.setdefault(one.name, {"messages": 0, "missing": 0, "again": 0})
    figures["messages"] += len(stored)
    figures["missing"] += missing
    figures["again"] += again
    if (one.qos and missing) or (one.qos == 2 and again):
        outcome.violations.append(f"--seed {seed}: {one.name} did not show {missing}, and showed {again} again")
