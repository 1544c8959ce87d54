"""A run of the torture: its faults, which follow from its seed, and what came of its messages."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.uplink.faults import FAULTS, SECURE_ONLY
from tools.lab.torture.uplink.site import Site
from tools.lab.torture.uplink.strikes import Strike, draw_strikes, strike_all
from wire.route_numbers import Statement

RUN_DEADLINE_S = 240.0
LANES = {"strict": 1, "live_first": 2}
TOLD_MAX = 10  # messages by number
COMPLAINTS = re.compile(
    r"Traceback|never retrieved|never awaited|unexpected failure|Task was destroyed|ends by a failure of its own"
)


@dataclass
class Outcome:
    """What came of the messages of all runs; `violations` is empty where all holds."""

    broker: str
    qos: int
    order: str = "strict"
    has_statements: bool = False
    runs: int = 0
    faults: int = 0
    struck: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    lost: int = 0
    twice: int = 0
    disorder: int = 0
    marked: int = 0  # came again, with the same identity, where that is allowed
    damaged: int = 0  # are missing, and a range of the gateway's store says so
    excused: int = 0  # are missing with the disk that had them
    statements: int = 0  # were held against what came
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.disorder or self.violations)


def draw(seed: int, faults: int, messages: int, kinds: list[str]) -> tuple[bool, list[Strike], random.Random]:
    """Draws a run: whether its route speaks TLS, its faults in order, and the chance of all else."""
    chance = random.Random(seed)
    is_secure = bool(SECURE_ONLY.issuperset(kinds)) or chance.random() < 0.5
    allowed = [kind for kind in kinds if is_secure or kind not in SECURE_ONLY]
    return is_secure, draw_strikes(chance, allowed, faults, messages), chance


async def run(outcome: Outcome, folder: Path, seed: int, faults: int, messages: int, kinds: list[str]) -> None:
    """Tortures one site, and adds what came of it. Raises MosquittoUnavailable, ProcessFailed and OSError if the site
    cannot begin."""
    is_secure, strikes, chance = draw(seed, faults, messages, kinds)
    site = Site(
        folder,
        outcome.broker,
        outcome.qos,
        messages,
        is_secure,
        chance,
        outcome.order,
        has_statements=outcome.has_statements,
    )
    await site.open()
    try:
        async with asyncio.timeout(RUN_DEADLINE_S):
            async with asyncio.TaskGroup() as group:
                for publisher in site.publishers:
                    group.create_task(publisher.run())
                await strike_all(outcome, site, FAULTS, strikes, messages)
            await site.drained()
    except* TimeoutError:
        site.violations.append(f"it did not end in {RUN_DEADLINE_S:g} s")
    except* ProcessFailed as failed:
        site.violations += [str(error) for error in failed.exceptions]
    finally:
        await asyncio.to_thread(site.process.stop)
        came = await site.came()
        await site.close()
    outcome.runs += 1
    found = judge(outcome, site, came, site.damaged() if site.is_damaged else 0)
    told = ", ".join(f"{strike.fault} at {strike.at}" for strike in strikes)
    outcome.violations += [f"--seed {seed}: {fault} ({told})" for fault in found]


def complaints(log: Iterable[str]) -> list[str]:
    """Returns a sentence for each complaint in a gateway's log, with the error that a traceback ends with."""
    found, lines = [], iter(log)
    for line in lines:
        if COMPLAINTS.search(line):
            error = next((after for after in lines if not after.startswith(" ")), "") if "Traceback" in line else ""
            found.append(f"the gateway's log: {line} {error}".rstrip())
    return found


def judge(outcome: Outcome, site: Site, came: list[tuple[str, int, str]], damaged: int) -> list[str]:
    """Counts what came of a run's messages; returns a sentence for each thing that was not as promised."""
    found = list(site.violations)
    found += complaints(site.log())[:1]
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
        its_own = [(name, number) for name, number, _ in came if name == publisher.name]
        early = overtaken_in(accepted, its_own, LANES[outcome.order])
        outcome.excused += len(excused)
        outcome.damaged += len(told)
        outcome.lost += len(lost)
        outcome.marked += sum(counts[one] - 1 for one in allowed)
        outcome.twice += sum(counts[one] - 1 for one in twice)
        outcome.disorder += len(early)
        found += _sentences(publisher.name, {"lost": lost, "twice": twice, "overtaken": early})
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


def overtaken_in(accepted: list[tuple[str, int]], came: list[tuple[str, int]], lanes: int) -> list[tuple[str, int]]:
    """The messages that came for the first time behind one of each lane that the gateway had acknowledged later.

    Which lane a message was in does not show. Each goes to the lane whose newest message is nearest before it: if the
    messages can be lanes that are in order each, that finds such lanes.
    """
    places = {message: place for place, message in enumerate(accepted)}
    firsts = [message for message in dict.fromkeys(came) if message in places]
    newest = [-1] * lanes
    found = []
    for message in firsts:
        before = [place for place in newest if place < places[message]]
        if before:
            newest[newest.index(max(before))] = places[message]
        else:
            found.append(message)
    return found


def _sentences(name: str, kinds: dict[str, list[tuple[str, int]]]) -> list[str]:
    sentences = []
    for kind, messages in kinds.items():
        numbers = [str(number) for _, number in sorted(messages)]
        more = ["…"] if len(numbers) > TOLD_MAX else []
        if numbers:
            sentences.append(f"{len(numbers)} of {name} {kind}: {', '.join(numbers[:TOLD_MAX] + more)}")
    return sentences
