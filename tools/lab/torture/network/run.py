"""A run of the torture: its network and its faults, which follow from its seed."""

import asyncio
import contextlib
import random
from pathlib import Path

from tools.lab.torture.network.faults import FAULTS, possible
from tools.lab.torture.network.oracle import NetworkOutcome, judge, late
from tools.lab.torture.network.plan import Plan, draw
from tools.lab.torture.network.site import Network
from tools.lab.torture.strikes import Strike, draw_strikes, strike_until_drained, told_strikes

RUN_DEADLINE_S = 180.0
LATE_S, LATE_EVERY_S = 10.0, 0.1


def drawn(seed: int, faults: int, messages: int, kinds: list[str], has_broker: bool) -> tuple[Plan, list[Strike]]:
    """Draws a run: its network, and its faults in order."""
    chance = random.Random(seed)
    plan = draw(chance, has_broker)
    while not (allowed := possible(plan, kinds)):
        plan = draw(chance, has_broker)
    return plan, draw_strikes(chance, allowed, faults, messages)


async def run(
    outcome: NetworkOutcome, folder: Path, seed: int, faults: int, messages: int, kinds: list[str], has_broker: bool
) -> None:
    """Tortures one network, and adds what came of it. Raises MosquittoUnavailable, ProcessFailed and OSError if it
    cannot begin."""
    plan, strikes = drawn(seed, faults, messages, kinds, has_broker)
    site = Network(folder, plan, messages, random.Random(seed))
    try:
        await site.open()
        await strike_until_drained(outcome, site, FAULTS, strikes, messages, RUN_DEADLINE_S)
        await _complete(site)
    finally:
        await site.close()
    found = judge(outcome, site, site.gaps())
    outcome.violations += [f"--seed {seed}: {fault} ({told_strikes(strikes)})" for fault in found]


async def _complete(site: Network) -> None:
    """Returns when nothing is missing, or when it is too late: mosquitto lets a marker overtake what waits."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LATE_S):
            while late(site):
                await asyncio.sleep(LATE_EVERY_S)
