"""What the faults of lines and processes have in common. Each takes its own chance, and returns when it is over."""

import asyncio
import random

from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.process import Process

Span = tuple[float, float]
"""From which to which value one is drawn."""
NEVER_S = 3600.0
FLAPS = (1, 4)


async def flap(
    link: NetworkLink, chance: random.Random, bytes_max: int, down_s: Span, times: tuple[int, int] = FLAPS
) -> None:
    """The line breaks after any byte, several times in a row, and is away for a moment each time."""
    for _ in range(chance.randint(*times)):
        link.break_after(chance.randint(1, bytes_max))
        await asyncio.sleep(chance.uniform(*down_s))
        link.break_after(None)
        await link.cut()
        await asyncio.sleep(chance.uniform(*down_s))
        await link.open()


async def hush(link: NetworkLink, chance: random.Random, silent_s: Span) -> None:
    """Nothing comes through in one direction or in both, and no connection ends: the line is half open."""
    ways = chance.choice(((True,), (False,), (True, False)))
    await link.slow(chance.uniform(*silent_s), NEVER_S, ways=ways)


async def kill(process: Process, chance: random.Random, down_s: Span, after_s: Span = (0, 0)) -> None:
    """The process is killed (SIGKILL), and starts again on the files that it has left. Raises ProcessFailed."""
    await asyncio.sleep(chance.uniform(*after_s))
    await asyncio.to_thread(process.kill)
    await asyncio.sleep(chance.uniform(*down_s))
    await process.up()


async def restart(process: Process, chance: random.Random, down_s: Span) -> None:
    """The process is stopped (SIGTERM) and started: one that acknowledges before it writes."""
    await process.down()
    await asyncio.sleep(chance.uniform(*down_s))
    await process.up()


async def freeze(process: Process, chance: random.Random, frozen_s: Span) -> None:
    """The process stands still (SIGSTOP) and goes on."""
    process.freeze()
    await asyncio.sleep(chance.uniform(*frozen_s))
    process.thaw()
