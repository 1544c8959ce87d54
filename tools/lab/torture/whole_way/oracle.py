"""Holds what senders and devices know of their readings against what the tables have. It needs neither of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tools.lab.torture.outcome import named

TYPED = frozenset(("damaged", "expired", "evicted", "rejected", "filtered", "oversize", "ended", "selected"))
"""The reasons that say what has become of a message. `lost`, `unknown` and `in transit` are none."""


class Rows(NamedTuple):
    """The rows of `readings` from one message: how many, and how many different readings they are of."""

    rows: int
    different: int


class Gap(NamedTuple):
    """A row of the view `gaps`."""

    origin: str
    epoch: str
    lo: int
    hi: int
    missing: int
    reason: str
    route: str


class Journal(NamedTuple):
    """What a sender or device knows.

    readings: the readings of each message that was acknowledged to it, by number; a device's count when it has stored
    them.
    uncertain: numbers of messages of which it does not know whether they were taken.
    repeated: numbers of messages that it has sent again without an identity, which may be there more than once.
    epoch: the epoch of its identities; empty if its messages have identities of others.
    limited_by: the route that may drop its messages, which leaves gaps with a reason; empty if none may.
    """

    name: str
    readings: Mapping[int, int]
    uncertain: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()
    epoch: str = ""
    limited_by: str = ""


@dataclass
class Verdict:
    """What came of one journal's readings, or of all together."""

    name: str
    made: int = 0
    in_tables: int = 0
    dropped: int = 0  # readings of messages that the gaps name with a reason
    repeated: int = 0  # rows that a sender without identity has caused by sending again at QoS 1
    lost: int = 0
    twice: int = 0
    lost_messages: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.violations)


def judge(journal: Journal, found: Mapping[int, Rows], gaps: Iterable[Gap]) -> Verdict:
    """Judges the messages of one journal. found: by number, what the tables have of it."""
    verdict = Verdict(journal.name, made=sum(journal.readings.values()))
    typed = _typed(gaps, journal)
    twice: list[int] = []
    partial: list[int] = []
    for number, readings in journal.readings.items():
        rows, different = found.get(number, Rows(0, 0))
        verdict.in_tables += different
        if rows == 0 and number in typed:
            verdict.dropped += readings
        elif different < readings:
            verdict.lost += readings - different
            (partial if rows else verdict.lost_messages).append(number)
        elif different > readings:
            verdict.violations.append(f"message {number} of {journal.name} has {different} readings, not {readings}")
        if rows > different:
            _note_repeated(verdict, journal, number, rows - different, twice)
    for number in found.keys() - journal.readings.keys():
        rows, different = found[number]
        if number not in journal.uncertain:
            verdict.violations.append(f"message {number} of {journal.name} is in the tables, and was never sent")
        elif rows > different:
            _note_repeated(verdict, journal, number, rows - different, twice)
    kinds = {"lost": verdict.lost_messages, "there in part": partial, "there twice": twice}
    verdict.violations += named(journal.name, kinds)
    return verdict


def _typed(gaps: Iterable[Gap], journal: Journal) -> set[int]:
    return {
        number
        for gap in gaps
        if (gap.origin, gap.epoch) == (journal.name, journal.epoch) and _may_be(gap, journal.limited_by)
        for number in range(gap.lo, gap.hi + 1)
    }


def _note_repeated(verdict: Verdict, journal: Journal, number: int, rows: int, twice: list[int]) -> None:
    if number in journal.repeated:
        verdict.repeated += rows
    else:
        verdict.twice += rows
        twice.append(number)


def untyped(gaps: Iterable[Gap], limited_by: str) -> list[str]:
    """Returns a sentence for each gap without a reason, or by another route than the one that may drop messages."""
    return [
        f"a gap of {gap.origin}/{gap.epoch}, {gap.lo} to {gap.hi}, is {gap.reason}"
        for gap in gaps
        if not _may_be(gap, limited_by)
    ]


def _may_be(gap: Gap, limited_by: str) -> bool:
    return gap.reason in TYPED and limited_by == gap.route != ""


def total(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns the sums of all verdicts, with all their violations."""
    whole = Verdict("all")
    for one in verdicts:
        for count in ("made", "in_tables", "dropped", "repeated", "lost", "twice"):
            setattr(whole, count, getattr(whole, count) + getattr(one, count))
        whole.violations += one.violations
    return whole
