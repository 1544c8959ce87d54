"""The faults of a network's torture. Each takes the site and its own chance, and returns when it is over."""

import asyncio
import random

from tools.lab.testing.network_link import NetworkLink
from tools.lab.torture import faults
from tools.lab.torture.network.plan import Plan
from tools.lab.torture.network.site import Network
from tools.lab.torture.strikes import Faults, faults_in

CUT_BYTES_MAX = 20_000
DOWN_S = (0.02, 0.2)
AWAY_S = (0.2, 1.5)
SILENT_S = (0.2, 2.5)  # the keep alive of routes is 1 s
KILL_AFTER_S = (0, 0.05)  # from the first of the messages that flow meanwhile
CIRCLE_S = (0.5, 2.0)


def _a_line(site: Network, chance: random.Random) -> NetworkLink | None:
    """Draws one of the lines that are not cut."""
    lines = [line for lines in site.lines.values() for line in lines if not line.is_cut]
    return chance.choice([*lines, *site.broker_lines]) if lines or site.broker_lines else None


async def cut(site: Network, chance: random.Random) -> None:
    """A line breaks after any byte, several times in a row."""
    line = _a_line(site, chance)
    if line is not None:
        await faults.flap(line, chance, CUT_BYTES_MAX, DOWN_S)


async def silence(site: Network, chance: random.Random) -> None:
    """Nothing comes through a line in one direction or in both, and no connection ends: it is half open."""
    line = _a_line(site, chance)
    if line is not None:
        await faults.hush(line, chance, SILENT_S)


async def kill(site: Network, chance: random.Random) -> None:
    """A gateway is killed (SIGKILL), and starts again."""
    await faults.kill(chance.choice(site.gateways), chance, DOWN_S, KILL_AFTER_S)


async def away(site: Network, chance: random.Random) -> None:
    """A durable subscriber is away for a while."""
    subscriber = chance.choice([one for one in site.subscribers if one.is_durable and not one.is_over])
    subscriber.away()
    await asyncio.sleep(chance.uniform(*AWAY_S))
    subscriber.back()


async def come(site: Network, chance: random.Random) -> None:
    """A subscriber comes, at any gateway."""
    await site.subscribe(chance, is_durable=chance.random() < 0.5)


async def leave(site: Network, chance: random.Random) -> None:
    """A subscriber leaves for good, but for the last durable one."""
    ones = [one for one in site.subscribers if not one.is_over]
    durable = [one for one in ones if one.is_durable]
    if others := [one for one in ones if len(durable) > 1 or not one.is_durable]:
        await chance.choice(others).leave()


async def failover(site: Network, chance: random.Random) -> None:
    """One of the two lines of a route is cut for a while, and then the other one."""
    link = chance.choice([link for link in site.plan.links if link.is_double])
    for line in chance.sample(site.lines[link], 2):
        await line.cut()
        await asyncio.sleep(chance.uniform(*AWAY_S))
        await line.open()


async def circle(site: Network, chance: random.Random) -> None:
    """A link is added that closes a circle; while it is there another line of the circle may be cut."""
    site.has_changed_ways = True
    line = next(lines[0] for link, lines in site.lines.items() if link.is_added)
    await line.open()
    await asyncio.sleep(chance.uniform(*CIRCLE_S))
    if chance.random() < 0.5:
        other = site.lines[chance.choice(site.plan.circle())]
        for one in other:
            await one.cut()
        await asyncio.sleep(chance.uniform(*CIRCLE_S))
        for one in other:
            await one.open()
        await asyncio.sleep(chance.uniform(*CIRCLE_S))
    await line.cut()


async def restart(site: Network, chance: random.Random) -> None:
    """The ordinary broker is stopped and started. It acknowledges before it writes, so it is not killed."""
    assert site.broker is not None
    await faults.restart(site.broker, chance, DOWN_S)


FAULTS: Faults[Network] = faults_in(globals())


def possible(plan: Plan, kinds: list[str]) -> list[str]:
    """Returns those of some faults that a network can have."""
    has = {
        "failover": any(link.is_double for link in plan.links),
        "circle": bool(plan.circle()),
        "restart": plan.between is not None,
    }
    return [kind for kind in kinds if has.get(kind, True)]
