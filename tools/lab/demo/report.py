"""The report that the demo prints at its end."""

from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tools.lab.demo.verdict import Verdict
from tools.lab.result import Judgement


class Outcome(NamedTuple):
    """A finished run: the verdict, the faults, the VM, what the gateway sent and how many
    messages it sent again by itself, and where the run's files are."""

    verdict: Verdict
    faults: int
    vm: str
    flow_s: float
    seconds: float
    bytes_sent: int
    sent_again: int
    tables: Path
    chart: Path

    @property
    def bytes_a_reading(self) -> float:
        """What a reading took on the link to the central broker, with all that was sent again."""
        return self.bytes_sent / max(1, self.verdict.total("in_table"))


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Prints the verdict as a table and a sentence."""
    verdict = outcome.verdict
    table = Table(title="Readings, device by device", title_justify="left")
    table.add_column("origin")
    for column in ("made", "in table", "missing", "twice", "uncounted"):
        table.add_column(column, justify="right")
    for origin in verdict.origins:
        table.add_row(origin.origin, *(f"{count:,}" for count in origin[1:]))
    console.print(table)
    if uncounted := verdict.total("uncounted"):
        console.print(f"{uncounted} uncounted: a device had stored them, and its power was cut before it counted them.")
    if outcome.sent_again:
        console.print(
            f"{outcome.sent_again:,} messages came again by themselves, lost with the central broker's store."
        )
    per_second = verdict.total("made") / outcome.flow_s
    console.print(f"{verdict.removed:,} messages were repeated on the way and removed.")
    console.print(f"{outcome.faults} faults survived; {per_second:,.0f} readings/s; firmware ran on {outcome.vm}.")
    console.print(
        f"{outcome.bytes_a_reading:.1f} bytes a reading on the link to the central broker, in column batches."
    )
    console.print(f"Tables: {outcome.tables}\nChart:  {outcome.chart}", soft_wrap=True)
    console.print(
        "[bold green]HOLDS[/]: nothing is missing, nothing is there twice."
        if verdict.holds
        else "[bold red]DOES NOT HOLD[/]: readings are missing or there twice."
    )


def judge_outcome(outcome: Outcome, seed: int) -> Judgement:
    """The verdict, counted in readings."""
    verdict = outcome.verdict
    return Judgement(
        verdict.holds,
        seed,
        messages=verdict.total("made"),
        lost=verdict.total("missing"),
        twice=verdict.total("twice"),
        violations=[
            f"{one.origin}: {one.missing} missing, {one.twice} twice"
            for one in verdict.origins
            if one.missing or one.twice
        ],
        more={
            "in_table": verdict.total("in_table"),
            "uncounted": verdict.total("uncounted"),
            "removed": verdict.removed,
            "sent_again": outcome.sent_again,
            "bytes_a_reading": round(outcome.bytes_a_reading, 2),
            "faults": outcome.faults,
            "vm": outcome.vm,
        },
    )
