"""What comes of a torture: how many messages were lost, came twice or out of order, and what else was wrong."""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from tools.cli.paths import memory_folder
from tools.lab.result import Judgement

TOLD_MAX = 10  # messages by number


@dataclass(kw_only=True)
class Outcome:
    """What came of the messages of all runs.

    Attributes:
        runs: how many there were.
        struck: how often each fault struck.
        messages: how many were acknowledged.
        lost, twice, disorder: how many of them are missing, came again, and came behind a later one.
        violations: a sentence for each thing that was not as promised.
        has_order: whether the order of messages is looked at.
    """

    has_order: ClassVar[bool] = True

    runs: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    lost: int = 0
    twice: int = 0
    disorder: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many faults struck."""
        return self.struck.total()

    @property
    def holds(self) -> bool:
        """Whether all was as promised."""
        return not (self.lost or self.twice or self.disorder or self.violations)

    def judgement(self, seed: int) -> Judgement:
        """Returns it as a command reports it; what a kind of torture counts besides are its own keys."""
        disorder = self.disorder if self.has_order else None
        common = ("messages", "lost", "twice", "disorder", "violations")
        more = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in common}
        more |= {"faults": self.faults, "struck": dict(sorted(self.struck.items()))}
        return Judgement(self.holds, seed, self.messages, self.lost, self.twice, disorder, self.violations, more)

    def in_runs(self, runs: int, seed: int, run: Callable[[Path, int], Coroutine[Any, Any, None]]) -> None:
        """Awaits runs, each in an empty folder and with the seed behind the one before, and tells what each found."""
        for number in range(runs):
            before = len(self.violations)
            with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
                asyncio.run(run(Path(folder), seed + number))
            self.runs += 1
            found = self.violations[before:] or ["holds"]
            print(f"run {number + 1} of {runs}: {'; '.join(found)}", file=sys.stderr, flush=True)

    def lines(self) -> Iterator[str]:
        """Yields the last lines for people: whether it holds, and all violations."""
        yield "HOLDS" if self.holds else "DOES NOT HOLD"
        yield from (f"  {violation}" for violation in self.violations)

    def struck_line(self) -> str:
        """Returns a line with how often each fault struck."""
        return f"{self.faults} faults: " + ", ".join(f"{name} {count}" for name, count in sorted(self.struck.items()))


def named(of: str, kinds: Mapping[str, Iterable[int]]) -> Iterator[str]:
    """Yields a sentence for each kind of fault that messages have, by their numbers."""
    for kind, numbers in kinds.items():
        if some := list(numbers):
            yield f"{len(some)} of {of} {kind}: {told(some)}"


def told(numbers: Iterable[int]) -> str:
    """Returns the first numbers as text."""
    ordered = sorted(numbers)
    return ", ".join(map(str, ordered[:TOLD_MAX])) + (", …" if len(ordered) > TOLD_MAX else "")
