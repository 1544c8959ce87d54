"""A run: common clients exchange messages while their gateway is killed and stopped, and lines are cut."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tools.cli.paths import cache_directory
from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.network_link import NetworkLink
from tools.lab.torture.clients.clients import TOPIC, PahoPublisher, Subscriber, subscribers
from tools.lab.torture.outcome import Outcome

DEADLINE_S = 300.0
QUIET_S = 20.0  # without a message, a subscriber or the reader has all
READER = "reader"
FAULTS = ("kill", "stop", "cut")


@dataclass(kw_only=True)
class ClientsOutcome(Outcome):
    """What came of all runs. Messages came ``twice`` that the tables count twice, as each has an identity.

    Attributes:
        publishers: how many there were in all runs.
        shown: by subscriber, how many messages there were, how many it did not show, and how many it showed again.
    """

    has_order: ClassVar[bool] = False

    publishers: int = 0
    shown: dict[str, dict[str, int]] = field(default_factory=dict)


async def _strike(gateway: Gateway, link: NetworkLink, fault: str, pause_s: float) -> None:
    if fault == "cut":
        await link.cut()
        await asyncio.sleep(pause_s)
        await link.open()
        return
    await asyncio.to_thread(gateway.kill if fault == "kill" else gateway.stop)
    await asyncio.sleep(pause_s)
    await gateway.up()


async def run(
    outcome: ClientsOutcome,
    folder: Path,
    seed: int,
    publishers: int,
    messages: int,
    faults: list[str],
    has_subscribers: bool,
) -> None:
    """Runs one gateway with its clients, and adds what came of it. Raises ProcessFailed, OSError."""
    chance = random.Random(seed)
    gateway = Gateway(folder)
    link = NetworkLink("127.0.0.1", gateway.port)
    await gateway.up()
    await link.open()
    reader = await _reader(gateway.port)
    await reader.subscribe(f"{TOPIC}/#", options=1)
    await reader.disconnect()
    packages = cache_directory() / "mqtt_js"
    watching = subscribers(gateway.port, folder, packages if packages.exists() else None) if has_subscribers else []
    pahos = [PahoPublisher(f"p{number}", link.port, messages) for number in range(publishers)]
    try:
        for one in [*watching, *pahos]:
            await asyncio.to_thread(one.start)
        deadline = time.monotonic() + DEADLINE_S
        sending = [asyncio.create_task(asyncio.to_thread(one.publish, deadline)) for one in pahos]
        for fault in faults:
            await asyncio.sleep(chance.uniform(0.3, 2.0))
            await _strike(gateway, link, fault, chance.uniform(0.0, 3.5))
            outcome.struck[fault] += 1
        await asyncio.gather(*sending)
        while not all(one.is_done for one in pahos) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        completed = set().union(*(one.completed() for one in pahos))
        stored = await _drained(gateway.port)
        _judge(outcome, seed, publishers * messages, completed, stored)
        await _shown(watching, stored)
        for one in watching:
            _judge_shown(outcome, seed, one, stored)
    finally:
        for one in [*pahos, *watching]:
            await asyncio.to_thread(one.stop)
        await gateway.down()
        await link.cut()
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


def _judge(outcome: ClientsOutcome, seed: int, sent: int, completed: set[str], stored: Counter[str]) -> None:
    lost = completed - stored.keys()
    twice = [payload for payload, count in stored.items() if count > 1]
    outcome.messages += sent
    outcome.lost += len(lost)
    outcome.twice += len(twice)
    if len(completed) < sent:
        outcome.violations.append(f"--seed {seed}: {sent - len(completed)} were not completed in {DEADLINE_S:g} s")
    for kind, payloads in {"lost": sorted(lost), "stored twice": twice}.items():
        if payloads:
            outcome.violations.append(f"--seed {seed}: {len(payloads)} {kind}: {', '.join(payloads[:5])}")


def _judge_shown(outcome: ClientsOutcome, seed: int, one: Subscriber, stored: Counter[str]) -> None:
    shown = {payload: count for payload, count in one.shown.items() if payload in stored}
    missing = len(stored) - len(shown)
    again = sum(count - 1 for count in shown.values())
    figures = outcome.shown.setdefault(one.name, {"messages": 0, "missing": 0, "again": 0})
    figures["messages"] += len(stored)
    figures["missing"] += missing
    figures["again"] += again
    if (one.qos and missing) or (one.qos == 2 and again):
        outcome.violations.append(f"--seed {seed}: {one.name} did not show {missing}, and showed {again} again")
