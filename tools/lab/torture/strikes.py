"""The faults of a run, which follow from its seed, and how they strike while publishers send."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import typer

from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.outcome import Outcome
from tools.lab.torture.publisher import Publisher
from tools.lab.torture.site import Site


class Strike(NamedTuple):
    """A fault: it strikes when `at` messages are acknowledged. `seed`: of its own chance."""

    at: int
    fault: str
    seed: int


Tortured = TypeVar("Tortured", bound=Site)
Faults = Mapping[str, Callable[[Tortured, random.Random], Awaitable[None]]]
"""Each fault takes the site and its own chance, and returns when it is over."""


def draw_strikes(chance: random.Random, kinds: Sequence[str], faults: int, messages: int) -> list[Strike]:
    """Draws the faults of a run in their order; each kind is there before one is there again."""
    drawn: list[str] = []
    while len(drawn) < faults:
        drawn += chance.sample(kinds, len(kinds))
    places = sorted(chance.sample(range(messages), min(faults, messages)))
    return [Strike(at, kind, chance.getrandbits(32)) for at, kind in zip(places, drawn, strict=False)]


def told_strikes(strikes: Sequence[Strike]) -> str:
    """Returns what strikes when, as text."""
    return ", ".join(f"{strike.fault} at {strike.at}" for strike in strikes)


async def strike_until_drained(
    outcome: Outcome,
    site: Tortured,
    faults: Faults[Tortured],
    strikes: Sequence[Strike],
    messages: int,
    deadline_s: float,
) -> None:
    """Publishes and strikes, and returns when the site says that all has come. It is a violation if that takes longer
    than the deadline, or if a process fails."""
    try:
        async with asyncio.timeout(deadline_s):
            await strike_all(outcome, site, faults, strikes, messages)
            await site.drained()
    except* TimeoutError:
        site.violations.append(f"it did not end in {deadline_s:g} s")
    except* ProcessFailed as failed:
        site.violations += [str(error) for error in failed.exceptions]


async def strike_all(
    outcome: Outcome, site: Tortured, faults: Faults[Tortured], strikes: Sequence[Strike], messages: int
) -> None:
    """Publishes and strikes, and returns when all is acknowledged. Raises an ExceptionGroup of ProcessFailed."""
    async with asyncio.TaskGroup() as group:
        for publisher in site.publishers:
            group.create_task(publisher.run())
        await _strike_each(outcome, site, faults, strikes, messages)


async def _strike_each(
    outcome: Outcome, site: Tortured, faults: Faults[Tortured], strikes: Sequence[Strike], messages: int
) -> None:
    """Strikes while messages flow: those up to the next fault."""
    ends = [strike.at for strike in strikes[1:]] + [messages]
    for strike, end in zip(strikes, ends, strict=True):
        allow(site.publishers, strike.at)
        await _reached(site.publishers, strike.at)
        allow(site.publishers, end)
        await faults[strike.fault](site, random.Random(strike.seed))
        outcome.struck[strike.fault] += 1
        await site.revive(strike.fault)
    allow(site.publishers, messages)


def allow(publishers: Sequence[Publisher], messages: int) -> None:
    """Lets the publishers send `messages` messages together."""
    for publisher in publishers:
        publisher.allow(-(-messages // len(publishers)))


async def _reached(publishers: Sequence[Publisher], messages: int) -> None:
    """Returns when about `messages` messages are acknowledged."""
    share = messages // len(publishers)
    await asyncio.gather(*(publisher.reached(min(share, publisher.count)) for publisher in publishers))


def faults_in(module: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the faults that a module defines, by name: its public coroutine functions, in their order.

    Args:
        module: its `globals()`.
    """
    return {
        name: one
        for name, one in module.items()
        if inspect.iscoroutinefunction(one) and not name.startswith("_") and one.__module__ == module["__name__"]
    }


def fault_option(faults: Collection[str]) -> Any:
    """Returns the option `--fault` of a command: which of its faults strike."""

    def known(names: list[str] | None) -> list[str]:
        if unknown := set(names or ()) - set(faults):
            raise typer.BadParameter(f"{', '.join(sorted(unknown))}: expected some of {', '.join(faults)}")
        return names or []

    return typer.Option("--fault", callback=known, help="Only this fault.")
