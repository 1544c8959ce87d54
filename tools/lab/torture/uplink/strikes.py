"""The faults of a run, which follow from its seed, and how they strike while publishers send."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tools.lab.torture.uplink.publisher import Publisher


class Strike(NamedTuple):
    """A fault: it strikes when the gateways have acknowledged `at` messages."""

    at: int
    fault: str
    seed: int


class Tally(Protocol):
    """Counts the faults of all runs, together and by their kind."""

    faults: int
    struck: dict[str, int]


class Tortured(Protocol):
    """A site with publishers, and gateways that faults strike."""

    publishers: list[Publisher]

    async def start_ended(self, fault: str) -> None:
        """Starts each gateway again that has ended by itself in a fault, and notes it as a violation."""


Site = TypeVar("Site", bound=Tortured)


def draw_strikes(chance: random.Random, kinds: Sequence[str], faults: int, messages: int) -> list[Strike]:
    """Draws the faults of a run in their order; each kind is there before one is there again."""
    drawn: list[str] = []
    while len(drawn) < faults:
        drawn += chance.sample(kinds, len(kinds))
    places = sorted(chance.sample(range(messages), min(faults, messages)))
    return [Strike(at, kind, chance.getrandbits(32)) for at, kind in zip(places, drawn, strict=False)]


async def strike_all(
    tally: Tally,
    site: Site,
    faults: Mapping[str, Callable[[Site, random.Random], Awaitable[None]]],
    strikes: list[Strike],
    messages: int,
) -> None:
    """Strikes while messages flow: those up to the next fault. Raises ProcessFailed."""
    ends = [strike.at for strike in strikes[1:]] + [messages]
    for strike, end in zip(strikes, ends, strict=True):
        _allow(site.publishers, strike.at)
        await _reached(site.publishers, strike.at)
        _allow(site.publishers, end)
        await faults[strike.fault](site, random.Random(strike.seed))
        tally.faults += 1
        tally.struck[strike.fault] = tally.struck.get(strike.fault, 0) + 1
        await site.start_ended(strike.fault)
    _allow(site.publishers, messages)


def _allow(publishers: list[Publisher], messages: int) -> None:
    """Lets the publishers send `messages` messages together."""
    for publisher in publishers:
        publisher.allow(-(-messages // len(publishers)))


async def _reached(publishers: list[Publisher], messages: int) -> None:
    """Returns when the gateways have acknowledged about `messages` messages."""
    share = messages // len(publishers)
    await asyncio.gather(*(publisher.reached(min(share, publisher.count)) for publisher in publishers))
