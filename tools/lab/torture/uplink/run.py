"""A run of the torture: its faults, which follow from its seed, and what came of its messages."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.lab.torture.outcome import Outcome, named
from tools.lab.torture.publisher import Publisher
from tools.lab.torture.strikes import Strike, draw_strikes, strike_until_drained, told_strikes
from tools.lab.torture.uplink.faults import FAULTS, SECURE_ONLY
from tools.lab.torture.uplink.site import RouteSite, Settings
from wire.route_numbers import Statement

RUN_DEADLINE_S = 240.0
WINDOWS = (1, 10, 100, 1000)
LANES = {"strict": 1, "live_first": 2}


@dataclass(kw_only=True)
class RouteOutcome(Outcome):
    """What came of the messages of all runs over a route.

    Attributes:
        marked: how many came again, with the same identity, where that is allowed.
        damaged: how many are missing, and a range of the gateway's store says so.
        excused: how many are missing with the disk that had them.
        statements: how many were held against what came.
    """

    broker: str
    qos: int
    order: str = "strict"
    has_statements: bool = False
    marked: int = 0
    damaged: int = 0
    excused: int = 0
    statements: int = 0


def draw(
    outcome: RouteOutcome, seed: int, faults: int, messages: int, kinds: list[str]
) -> tuple[Settings, list[Strike]]:
    """Draws a run: what it has, and its faults in order."""
    chance = random.Random(seed)
    is_secure = bool(SECURE_ONLY.issuperset(kinds)) or chance.random() < 0.5
    allowed = [kind for kind in kinds if is_secure or kind not in SECURE_ONLY]
    strikes = draw_strikes(chance, allowed, faults, messages)
    settings = (outcome.broker, outcome.qos, outcome.order, outcome.has_statements)
    return Settings(*settings, is_secure, chance.choice(WINDOWS), messages), strikes


async def run(outcome: RouteOutcome, folder: Path, seed: int, faults: int, messages: int, kinds: list[str]) -> None:
    """Tortures one site, and adds what came of it. Raises MosquittoUnavailable, ProcessFailed and OSError if the site
    cannot begin."""
    settings, strikes = draw(outcome, seed, faults, messages, kinds)
    site = RouteSite(folder, settings)
    try:
        await site.open()
        await strike_until_drained(outcome, site, FAULTS, strikes, messages, RUN_DEADLINE_S)
        await site.gateway.down()
        came = await site.came()
    finally:
        await site.close()
    found = judge(outcome, site, came, site.damaged() if site.is_damaged else 0)
    outcome.violations += [f"--seed {seed}: {fault} ({told_strikes(strikes)})" for fault in found]


def judge(outcome: RouteOutcome, site: RouteSite, came: list[tuple[str, int, str]], damaged: int) -> list[str]:
    """Counts what came of a run's messages; returns a sentence for each thing that was not as promised."""
    found = site.violations + site.gateway.complaints()
    counts = Counter((name, number) for name, number, _ in came)
    identities = {(name, number): set[str]() for name, number, _ in came}
    for name, number, identity in came:
        identities[name, number].add(identity)
    for publisher in site.publishers:
        accepted = [(publisher.name, number) for number in publisher.accepted]
        outcome.messages += len(accepted)
        missing = [one for one in accepted if one not in counts]
        excused = [one for one in missing if one in site.excused]
        rest = [one for one in missing if one not in site.excused]
        told, lost = rest[:damaged], rest[damaged:]
        damaged -= len(told)
        again = [one for one in counts if one[0] == publisher.name and counts[one] > 1]
        allowed = [one for one in again if len(identities[one]) == 1 and (outcome.qos == 1 or one in site.repeatable)]
        twice = [one for one in again if one not in allowed]
        early = overtaken(publisher, [number for name, number, _ in came if name == publisher.name], outcome.order)
        outcome.excused += len(excused)
        outcome.damaged += len(told)
        outcome.lost += len(lost)
        outcome.marked += sum(counts[one] - 1 for one in allowed)
        outcome.twice += sum(counts[one] - 1 for one in twice)
        outcome.disorder += len(early)
        kinds = {"lost": [number for _, number in lost], "twice": [number for _, number in twice], "overtaken": early}
        found += named(publisher.name, kinds)
    outcome.statements += len(site.statements)
    return found + list(judge_statements(site.statements, site.identities))


def judge_statements(statements: Iterable[Statement], came: Counter[tuple[str, int, int]]) -> Iterator[str]:
    """Yields a sentence for each statement that is not true. came: how often the next broker has each identity, as a
    message that its publisher has sent again is handed on again."""
    ends: dict[int, int] = {}
    for one in sorted(statements, key=lambda one: (one.epoch, one.statement)):
        name = f"statement {one.statement} of epoch {one.epoch:08x}"
        if one.first <= ends.get(one.epoch, 0):
            yield f"{name} covers {one.first}, as one before it does"
        ends[one.epoch] = max(one.last, ends.get(one.epoch, 0))
        for handed in one.origins:
            seqs = range(handed.first, handed.last + 1)
            there = sum(came[handed.origin, handed.epoch, seq] for seq in seqs)
            if there < handed.messages:
                yield f"{name}: {handed.messages} of {handed.origin} were handed on, and {there} came"
        if sum(handed.messages for handed in one.origins) > one.last - one.first + 1:
            yield f"{name} covers fewer numbers than messages"


def overtaken(publisher: Publisher, came: Iterable[int], order: str = "strict") -> list[int]:
    """Returns the messages that came for the first time behind one of each lane that was acknowledged later.

    Which lane a message was in does not show. Each goes to the lane whose newest message is nearest before it: if the
    messages can be lanes that are in order each, that finds such lanes.
    """
    places = {number: place for place, number in enumerate(publisher.accepted)}
    newest = [-1] * LANES[order]
    found = []
    for number in dict.fromkeys(number for number in came if number in places):
        before = [place for place in newest if place < places[number]]
        if before:
            newest[newest.index(max(before))] = places[number]
        else:
            found.append(number)
    return found
