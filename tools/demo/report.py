"""What the demo prints at its end."""

import json
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tools.demo.verdict import Verdict


class Outcome(NamedTuple):
    """A finished run: the verdict, what was survived, with which VM, and where its traces lie."""

    verdict: Verdict
    faults: int
    vm: str
    flow_s: float
    seconds: float
    tables: Path
    chart: Path


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Prints the verdict as a table with a sentence under it."""
    verdict = outcome.verdict
    table = Table(title="Readings, device by device", title_justify="left")
    table.add_column("origin")
    for column in ("made", "in table", "missing", "twice", "uncounted"):
        table.add_column(column, justify="right")
    for origin in verdict.origins:
        table.add_row(origin.origin, *(f"{count:,}" for count in origin[1:]))
    console.print(table)
    if uncounted := verdict.total("uncounted"):
        console.print(f"{uncounted} uncounted: in a device's hand when its power was cut, stored but not yet counted.")
    per_second = verdict.total("made") / outcome.flow_s
    console.print(f"{verdict.removed:,} messages were repeated on the way and removed.")
    console.print(f"{outcome.faults} faults survived; {per_second:,.0f} readings/s; firmware ran on {outcome.vm}.")
    console.print(f"Tables: {outcome.tables}\nChart:  {outcome.chart}", soft_wrap=True)
    console.print(
        "[bold green]HOLDS[/]: nothing is missing, nothing is there twice."
        if verdict.holds
        else "[bold red]DOES NOT HOLD[/]: readings are missing or there twice."
    )


def outcome_json(outcome: Outcome) -> str:
    """Returns the outcome as one line of JSON."""
    verdict = outcome.verdict
    counts = {column: verdict.total(column) for column in ("made", "in_table", "missing", "twice", "uncounted")}
    return json.dumps(
        {
            "demo": "first-reading",
            **counts,
            "removed": verdict.removed,
            "faults": outcome.faults,
            "vm": outcome.vm,
            "seconds": round(outcome.seconds, 1),
            "holds": verdict.holds,
        }
    )
