"""A run: messages flow, faults strike as the seed says, and at the end the tables are counted."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cloud import OpenTables
from tools.lab.torture.outcome import Outcome, named
from tools.lab.torture.receipts.faults import FAULTS
from tools.lab.torture.receipts.site import Identity, ReceiptsSite
from tools.lab.torture.strikes import draw_strikes, strike_until_drained, told_strikes

RUN_DEADLINE_S = 900.0
COMPLETE_S = 300.0
GAPS = "SELECT origin, epoch, lo, hi, reason FROM gaps"


@dataclass(kw_only=True)
class ReceiptsOutcome(Outcome):
    """What came of the messages that the gateways have acknowledged.

    Attributes:
        sent_again: how many messages went again since the gateway's last start.
    """

    has_order: ClassVar[bool] = False

    sent_again: int = 0


async def run(outcome: ReceiptsOutcome, folder: Path, seed: int, faults: int, messages: int, kinds: list[str]) -> None:
    """Tortures one site, and adds what came of it. Raises ProcessFailed, MosquittoUnavailable, OSError."""
    strikes = draw_strikes(random.Random(seed), kinds, faults, messages)
    site = TorturedSite(folder, messages)
    try:
        await site.open()
        await strike_until_drained(outcome, site, FAULTS, strikes, messages, RUN_DEADLINE_S)
        outcome.sent_again += (await asyncio.to_thread(site.status))["unproven_sent"] if site.gateway.running else 0
    finally:
        await site.close()
    found = site.violations + site.gateway.complaints()
    found += judge(outcome, site.accepted(), await asyncio.to_thread(site.in_tables))
    found += await asyncio.to_thread(find_gaps, site)
    outcome.violations += [f"--seed {seed}: {fault} ({told_strikes(strikes)})" for fault in found]


class TorturedSite(ReceiptsSite):
    """A site whose run ends when all is in the tables."""

    async def drained(self) -> None:
        if not await self.until(self.is_complete, COMPLETE_S):
            self.violations.append(f"the tables are not complete {COMPLETE_S:g} s after the last fault")


def judge(outcome: Outcome, accepted: Set[Identity], found: Mapping[Identity, int]) -> Iterator[str]:
    """Counts what came of a run's messages; yields a sentence for each publisher's that are lost or there twice."""
    lost = accepted - found.keys()
    twice = {one for one, count in found.items() if count > 1}
    outcome.messages += len(accepted)
    outcome.lost += len(lost)
    outcome.twice += sum(found[one] - 1 for one in twice)
    for origin in sorted({one[0] for one in lost | twice}):
        yield from named(origin, {"lost": _numbers(lost, origin), "there twice": _numbers(twice, origin)})


def _numbers(some: Iterable[Identity], origin: str) -> list[int]:
    return [seq for name, _, seq in some if name == origin]


def find_gaps(site: ReceiptsSite) -> list[str]:
    """Returns a sentence for each gap that the tables still name of a publisher."""
    names = Counter(one.name for one in site.publishers)
    if not site.tables.exists():
        return ["there are no tables"]
    with OpenTables(site.tables) as tables:
        rows = tables.select(GAPS).rows
    return [f"a gap of {row[0]}, {row[2]} to {row[3]}, is {row[4]}" for row in rows if row[0] in names]
