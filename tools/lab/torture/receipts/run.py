"""A run: messages flow, faults strike as the seed says, and at the end the tables are counted."""

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cloud import OpenTables
from tools.lab.micropython import MicroPython
from tools.lab.torture.outcome import Outcome, named
from tools.lab.torture.receipts.faults import FAULTS, first_landing_folder
from tools.lab.torture.receipts.site import Identity, ReceiptsSite
from tools.lab.torture.receipts.tortured import TorturedSite
from tools.lab.torture.strikes import Strike, draw_strikes, strike_until_drained, told_strikes

RUN_DEADLINE_S = 900.0
FIRST = first_landing_folder.__name__
GAPS = "SELECT origin, epoch, lo, hi, reason FROM gaps"


@dataclass(kw_only=True)
class ReceiptsOutcome(Outcome):
    """What came of the messages that the gateways have acknowledged to publishers, and that devices have stored.

    Attributes:
        of_devices: how many of them are of devices.
        gone: how many more publishers that are no devices had handed to a gateway which then lost its store.
        sent_again: how many messages went again since the gateway's last start.
    """

    has_order: ClassVar[bool] = False

    of_devices: int = 0
    gone: int = 0
    sent_again: int = 0


async def run(
    outcome: ReceiptsOutcome, vm: MicroPython, folder: Path, seed: int, faults: int, messages: int, kinds: list[str]
) -> None:
    """Tortures one site, and adds what came of it. Raises ProcessFailed, MosquittoUnavailable, OSError."""
    strikes = draw(random.Random(seed), kinds, faults, messages)
    site = TorturedSite(vm, folder, messages, job_waits=strikes[0].fault == FIRST)
    try:
        await site.open()
        await strike_until_drained(outcome, site, FAULTS, strikes, messages, RUN_DEADLINE_S)
        outcome.sent_again += (await asyncio.to_thread(site.status))["unproven_sent"] if site.gateway.running else 0
    finally:
        await site.close()
    outcome.of_devices += sum(len(one.stored()) for one in site.devices)
    outcome.gone += len(site.gone)
    found = site.violations + site.gateway.complaints()
    found += judge(outcome, site.accepted(), await asyncio.to_thread(site.in_tables))
    found += await asyncio.to_thread(find_gaps, site, site.gone)
    outcome.violations += [f"--seed {seed}: {fault} ({told_strikes(strikes)})" for fault in found]


def draw(chance: random.Random, kinds: list[str], faults: int, messages: int) -> list[Strike]:
    """Draws the faults of a run in their order. The one before the job's first start is the first of every second run,
    and there once."""
    others = [kind for kind in kinds if kind != FIRST]
    if not others:
        return draw_strikes(chance, kinds, 1, messages)
    is_first = len(others) < len(kinds) and chance.random() < 0.5
    strikes = draw_strikes(chance, others, faults, messages)
    return [strikes[0]._replace(fault=FIRST), *strikes[1:]] if is_first else strikes


def judge(outcome: Outcome, accepted: Set[Identity], found: Mapping[Identity, int]) -> Iterator[str]:
    """Counts what came of a run's messages; yields a sentence for each origin's that are lost or there twice."""
    lost = accepted - found.keys()
    twice = {one for one, count in found.items() if count > 1}
    outcome.messages += len(accepted)
    outcome.lost += len(lost)
    outcome.twice += sum(found[one] - 1 for one in twice)
    for origin in sorted({one[0] for one in lost | twice}):
        yield from named(origin, {"lost": _numbers(lost, origin), "there twice": _numbers(twice, origin)})


def _numbers(some: Iterable[Identity], origin: str) -> list[int]:
    return [seq for name, _, seq in some if name == origin]


def find_gaps(site: ReceiptsSite, gone: Set[Identity] = frozenset()) -> list[str]:
    """Returns a sentence for each gap that the tables still name, unless all of its messages are gone."""
    if not site.tables.exists():
        return ["there are no tables"]
    with OpenTables(site.tables) as tables:
        rows = tables.select(GAPS).rows
    return list(told_gaps([row for row in rows if row[0] in site.origins], gone))


def told_gaps(rows: Iterable[Sequence[Any]], gone: Set[Identity]) -> Iterator[str]:
    """Yields a sentence for each gap, unless all of its messages are gone. rows: of origin, epoch, lo, hi, reason."""
    for origin, epoch, lo, hi, reason in rows:
        if not all((origin, int(epoch, 16), number) in gone for number in range(lo, hi + 1)):
            yield f"a gap of {origin}, {lo} to {hi}, is {reason}"
