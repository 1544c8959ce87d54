"""What a command that measures or judges prints at its end, and the exit code with which it ends.

Without `--json` it prints lines for people. With it, one JSON object, which for all of them has the same keys
(docs/reference/commands.md, "Results"); a command's own keys come behind those.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import typer

from tools.lab.figure import Figure, table

JSON_OPTION = typer.Option("--json", help="Print the result as one JSON object in the last line.")


def quick_option(**sizes: Any) -> Any:
    """The option `--quick` of a command whose other options get these values where they are not given."""

    def shrink(context: typer.Context, wanted: bool) -> bool:
        if wanted:
            context.default_map = {**(context.default_map or {}), **sizes}
        return wanted

    text = "Do the same with less, in at most 45 s."
    return typer.Option("--quick", help=text, is_eager=True, callback=shrink)


@dataclass(frozen=True)
class Judgement:
    """What was found of a thing that was tried.

    Args:
        holds: whether all was as promised.
        seed: what all chance followed from; None where there is no chance.
        messages: how many were sent or stored.
        lost, twice, disorder: how many of them were lost, came twice, came out of order. None, as for `messages`, where
            the command looks at something else.
        violations: a sentence for each thing that was not as promised.
        more: the command's own keys.
    """

    holds: bool
    seed: int | None = None
    messages: int | None = None
    lost: int | None = None
    twice: int | None = None
    disorder: int | None = None
    violations: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def end_judged(
    kind: str, name: str, judgement: Judgement, seconds: float, lines: Iterable[str], as_json: bool
) -> NoReturn:
    """Prints a judgement and ends the command. `kind`: "torture", "check" or "demo". `lines`: what people get instead
    of the JSON."""
    report = {
        kind: name,
        "seed": judgement.seed,
        "seconds": round(seconds, 1),
        "holds": judgement.holds,
        "messages": judgement.messages,
        "lost": judgement.lost,
        "twice": judgement.twice,
        "disorder": judgement.disorder,
        "violations": list(judgement.violations),
        **judgement.more,
    }
    _end(report, lines, as_json)


def end_bench(
    name: str,
    figures: Sequence[Figure],
    seconds: float,
    as_json: bool,
    names: tuple[str, str] = ("gateway", "mosquitto"),
    about: Mapping[str, str] | None = None,
) -> NoReturn:
    """Prints figures and ends the command. `names`: what was measured, and what was measured beside it. `about`: on
    what it was measured, and how."""
    ours, peer = names
    about = about or {}
    report = {
        "bench": name,
        "seconds": round(seconds, 1),
        "holds": all(figure.holds is not False for figure in figures),
        "rows": [_row(figure, peer) for figure in figures],
        **about,
    }
    _end(report, [*(f"{key}: {text}" for key, text in about.items()), "", *table(figures, ours, peer)], as_json)


def _row(figure: Figure, peer: str) -> dict[str, object]:
    return {
        "what": figure.name,
        "ours": figure.ours,
        "unit": figure.unit,
        "peer": figure.theirs,
        "peer_name": None if figure.theirs is None else peer,
        "ratio": figure.ratio,
        "goal": None if figure.bar is None else f"{'<=' if figure.at_most else '>='} {figure.bar:.6g}",
        "holds": figure.holds,
    }


def _end(report: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps(report))
    else:
        for line in lines:
            print(line)
    raise typer.Exit(0 if report["holds"] else 1)
