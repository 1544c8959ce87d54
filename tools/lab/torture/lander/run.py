"""A run: messages flow, faults strike as the seed says, the lander lands the rest, and landing files and tables are
counted."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tools.lab.torture.cloud.judge import read
from tools.lab.torture.lander.site import Site
from tools.lab.torture.uplink.publisher import EPOCH

KILLS = ("lander killed", "broker killed")
FAULTS = (*KILLS, "broker stopped", "line cut")
FULL_SHARE = 0.3
"""The share of faults at which the lander's disk is full: it strikes a lander that holds what it cannot land."""
SETTLE_S = 120.0
AFTER_SAVE_S = 0.5
LOOK_S = 0.05

Identity = tuple[str, int, int]


class Run:
    """One run. After `run`, the attributes say what came of it.

    Args:
        messages: how many the publishers send together.
        kills: how many faults kill the lander or the broker; half as many others come between them.
        inflight: mosquitto's `max_inflight_messages`.

    Attributes:
        messages, lost, twice: how many identities were acknowledged, are missing, and are there twice.
        struck: how often each fault struck.
        violations: a sentence for each thing that was not as promised.
    """

    def __init__(self, messages: int, kills: int, inflight: int, seed: int, say: Callable[[str], None]) -> None:
        self.messages = self.lost = self.twice = 0
        self.struck: Counter[str] = Counter()
        self.violations: list[str] = []
        self._count = messages
        self._inflight = inflight
        self._chance = random.Random(seed)
        self._say = say
        faults = [
            *(KILLS[place % 2] for place in range(kills)),
            *(FAULTS[2 + place % 2] for place in range(kills // 2)),
        ]
        self._chance.shuffle(faults)
        self._faults = faults

    async def run(self, folder: Path) -> None:
        """Tortures one lander. Raises ProcessFailed, MosquittoUnavailable, OSError."""
        site = Site(folder, self._count, self._inflight, lambda: self._chance.uniform(0, AFTER_SAVE_S))
        try:
            await site.open()
            await self._flow(site)
            sent = {(sender.name, EPOCH, number) for sender in site.senders for number in set(sender.accepted)}
            self.messages = len(sent)
            self._say(f"{self.messages} messages are acknowledged, {sum(self.struck.values())} faults have struck")
            await self._settle(site, sent)
        finally:
            await site.close()
        await self._judge(site, sent)

    async def _flow(self, site: Site) -> None:
        for sender in site.senders:
            sender.allow(sender.count)
        shares = sorted(self._chance.uniform(0.02, 0.95) for _ in self._faults)
        running = [asyncio.create_task(sender.run()) for sender in site.senders]
        try:
            for share, fault in zip(shares, self._faults, strict=True):
                while site.accepted < share * self._count:
                    await asyncio.sleep(LOOK_S)
                await self._strike(site, fault)
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()

    async def _strike(self, site: Site, fault: str) -> None:
        is_full = self._chance.random() < FULL_SHARE
        if is_full:
            site.fill_disk()
            await asyncio.sleep(self._chance.uniform(0, 2 * LOOK_S))
        match fault:
            case "lander killed":
                await site.restart_lander()
            case "line cut":
                await site.cut_line()
            case _:
                await site.restart_broker(is_killed=fault == "broker killed")
        self.struck[f"{fault}, disk full" if is_full else fault] += 1
        if is_full:
            await asyncio.sleep(self._chance.uniform(0, 2))
            site.free_disk()

    async def _settle(self, site: Site, sent: set[Identity]) -> None:
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
                self._say(f"all of them are in {len(known)} landing files")
                return
            await asyncio.sleep(LOOK_S)
        self.lost = len(missing)
        self.violations.append(
            f"{self.lost} messages have not landed, and nothing more in {SETTLE_S:.0f} s: {site.lander.lines[-3:]}"
        )

    async def _judge(self, site: Site, sent: set[Identity]) -> None:
        self._say("the job takes the landing files in")
        code, lines = await site.ingest()
        if code:
            self.violations.append(f"the job ends with {code}: {lines[-1:]}")
            return
        self.lost, self.twice, found = judge(sent, map(_identity, read(site.tables, "bronze_messages")))
        self.violations += found


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
