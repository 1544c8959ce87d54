"""A run: messages flow, faults strike as the seed says, the lander lands the rest, and landing files and tables are
counted."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from tools.lab.torture.cloud.judge import read
from tools.lab.torture.lander.site import LandingSite
from tools.lab.torture.outcome import Outcome
from tools.lab.torture.publisher import EPOCH
from tools.lab.torture.strikes import Faults, Strike, strike_all

FULL_SHARE = 0.3
"""The share of faults at which the lander's disk is full: it strikes a lander that holds what it cannot land."""
SETTLE_S = 120.0
AFTER_SAVE_S = 0.5
LOOK_S = 0.05
FULL_S = 2.0  # at most, behind the fault

Identity = tuple[str, int, int]
Fault = Callable[[LandingSite, random.Random], Awaitable[None]]


@dataclass(kw_only=True)
class LanderOutcome(Outcome):
    """What came of the messages that mosquitto has acknowledged."""

    has_order: ClassVar[bool] = False

    inflight: int


async def _kill_lander(site: LandingSite, _: random.Random) -> None:
    await asyncio.to_thread(site.lander.kill)
    site.lander.start()


async def _kill_broker(site: LandingSite, chance: random.Random) -> None:
    """mosquitto acknowledges before it writes, and forgets a QoS 2 message whose handshake ends after its restart. So
    the publishers end what they have begun, and mosquitto saves: it loses nothing that it has acknowledged to them.
    The lander meanwhile goes on, and mosquitto forgets what the lander acknowledges behind the save."""
    async with site.away():
        await asyncio.to_thread(site.broker.save)
        await asyncio.sleep(chance.uniform(0, AFTER_SAVE_S))
        await asyncio.to_thread(site.broker.kill)
        site.broker.start()


async def _stop_broker(site: LandingSite, _: random.Random) -> None:
    async with site.away():
        await site.broker.interrupt()


async def _cut_line(site: LandingSite, _: random.Random) -> None:
    await site.far.cut()
    await site.far.open()


def _on_full_disk(fault: Fault) -> Fault:
    async def strike(site: LandingSite, chance: random.Random) -> None:
        site.lander.limit_files(0)
        await asyncio.sleep(chance.uniform(0, 2 * LOOK_S))
        await fault(site, chance)
        await asyncio.sleep(chance.uniform(0, FULL_S))
        site.lander.limit_files(-1)

    return strike


KILLS: dict[str, Fault] = {"lander killed": _kill_lander, "broker killed": _kill_broker}
OTHERS: dict[str, Fault] = {"broker stopped": _stop_broker, "line cut": _cut_line}
FULL = ", disk full"
PLAIN = KILLS | OTHERS
FAULTS: Faults[LandingSite] = PLAIN | {name + FULL: _on_full_disk(fault) for name, fault in PLAIN.items()}


def draw(seed: int, kills: int, messages: int) -> list[Strike]:
    """Draws faults in their order: `kills` of the lander and the broker in turn, and half as many others between."""
    chance = random.Random(seed)
    kinds = [(*KILLS,)[place % 2] for place in range(kills)] + [(*OTHERS,)[place % 2] for place in range(kills // 2)]
    chance.shuffle(kinds)
    places = sorted(round(messages * chance.uniform(0.02, 0.95)) for _ in kinds)
    return [
        Strike(at, kind + FULL if chance.random() < FULL_SHARE else kind, chance.getrandbits(32))
        for at, kind in zip(places, kinds, strict=True)
    ]


async def run(
    outcome: LanderOutcome, folder: Path, messages: int, kills: int, seed: int, say: Callable[[str], None]
) -> None:
    """Tortures one lander, and adds what came of it. Raises ProcessFailed, MosquittoUnavailable, OSError."""
    site = LandingSite(folder, messages, outcome.inflight)
    try:
        await site.open()
        await strike_all(outcome, site, FAULTS, draw(seed, kills, messages), messages)
        sent = {(one.name, EPOCH, number) for one in site.publishers for number in one.accepted}
        outcome.messages = len(sent)
        say(f"{outcome.messages} messages are acknowledged, {outcome.faults} faults have struck")
        await _settle(outcome, site, sent, say)
    finally:
        await site.close()
    outcome.violations += site.violations
    say("the job takes the landing files in")
    code, lines = await site.ingest()
    if code:
        outcome.violations.append(f"the job ends with {code}: {lines[-1:]}")
        return
    outcome.lost, outcome.twice, found = judge(sent, map(_identity, read(site.tables, "bronze_messages")))
    outcome.violations += found


async def _settle(outcome: Outcome, site: LandingSite, sent: Set[Identity], say: Callable[[str], None]) -> None:
    """Waits until all has landed, or nothing more lands."""
    loop = asyncio.get_running_loop()
    known: set[Path] = set()
    missing = set(sent)
    last = loop.time()
    while loop.time() - last < SETTLE_S:
        for path in set(site.landing.glob("[!.]*.json")) - known:
            known.add(path)
            missing -= await asyncio.to_thread(_identities, path.with_suffix(".parquet"))
            last = loop.time()
        if not missing:
            say(f"all of them are in {len(known)} landing files")
            return
        await asyncio.sleep(LOOK_S)
    outcome.lost = len(missing)
    outcome.violations.append(
        f"{outcome.lost} messages have not landed, and nothing more in {SETTLE_S:.0f} s: {site.lander.lines[-3:]}"
    )


def judge(sent: Set[Identity], rows: Iterable[Identity]) -> tuple[int, int, list[str]]:
    """Holds the rows of the tables against what was sent: returns how many are lost, and twice, with sentences."""
    counted = Counter(rows)
    missing = sent - counted.keys()
    twice = sum(count - 1 for count in counted.values())
    found = [f"{len(missing)} messages are not in the tables, one is {min(missing)}"] if missing else []
    found += [f"{twice} messages are in the tables twice"] if twice else []
    return len(missing), twice, found


def _identity(row: Mapping[str, Any]) -> Identity:
    return row["origin"], int(row["epoch"], 16), row["seq"]


def _identities(path: Path) -> set[Identity]:
    table = pq.read_table(path, columns=["origin", "epoch", "seq"], partitioning=None)
    return set(zip(*(table.column(name).to_pylist() for name in ("origin", "epoch", "seq")), strict=True))
