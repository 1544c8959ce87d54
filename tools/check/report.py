"""What the outcomes say, for people and for programs."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from tools.check.outcome import Outcome

MARKS = {"pass": "ok", "fail": "FAIL", "skip": "skip"}


def lines(outcomes: list[Outcome]) -> Iterator[str]:
    """A line for each check, two more for a failure, and the count at the end."""
    for outcome in outcomes:
        yield f"{MARKS[outcome.result]:4}  {outcome.version:5}  {sentence(outcome.name)}"
        if outcome.result == "fail":
            yield f"      {', '.join(outcome.clauses)}"
            yield f"      expected {outcome.expected}; came {outcome.came}"
        elif outcome.result == "skip":
            yield f"      {outcome.came}"
    count = Counter(outcome.result for outcome in outcomes)
    yield f"{count['pass']} kept, {count['fail']} broken, {count['skip']} not offered"


def as_json(outcomes: list[Outcome], seconds: float) -> str:
    """One JSON object with every outcome."""
    count = Counter(outcome.result for outcome in outcomes)
    report = {
        "kept": count["pass"],
        "broken": count["fail"],
        "not_offered": count["skip"],
        "seconds": round(seconds, 1),
        "checks": [asdict(outcome) for outcome in outcomes],
    }
    return json.dumps(report)


def sentence(name: str) -> str:
    """A check's name as it is read."""
    return name.replace("_", " ").replace("[", " [")
