"""The report of a run: lines to read, and a JSON object."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from tools.lab.check.outcome import Outcome
from tools.lab.result import Judgement

MARKS = {"pass": "ok", "fail": "FAIL", "skip": "skip", "unchecked": "skip"}


def lines(outcomes: list[Outcome]) -> Iterator[str]:
    """A line for each check, two more for a failure, and the count at the end."""
    for outcome in outcomes:
        yield f"{MARKS[outcome.result]:4}  {outcome.version:5}  {sentence(outcome.name)}"
        if outcome.result == "fail":
            yield f"      {', '.join(outcome.clauses)}"
            yield f"      expected {outcome.expected}; came {outcome.came}"
        elif outcome.result != "pass":
            yield f"      {outcome.came}"
    count = Counter(outcome.result for outcome in outcomes)
    unchecked = f", {count['unchecked']} not checked" if count["unchecked"] else ""
    yield f"{count['pass']} kept, {count['fail']} broken, {count['skip']} not offered{unchecked}"


def judge(outcomes: list[Outcome]) -> Judgement:
    """Returns the judgement: whether the broker passed all checks, and each outcome."""
    count = Counter(outcome.result for outcome in outcomes)
    broken = [one for one in outcomes if one.result == "fail"]
    return Judgement(
        not broken,
        violations=[f"{one.version}: {sentence(one.name)}: expected {one.expected}; came {one.came}" for one in broken],
        more={
            "kept": count["pass"],
            "broken": count["fail"],
            "not_offered": count["skip"],
            "not_checked": count["unchecked"],
            "checks": [asdict(outcome) for outcome in outcomes],
        },
    )


def sentence(name: str) -> str:
    """Returns a check's name as words."""
    return name.replace("_", " ").replace("[", " [")
