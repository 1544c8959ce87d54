"""``holdfast torture cloud``: lander and job under faults of everything around them; the tables must be exact."""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cloud.landing.file import Row
from cloud.tables.schema import TABLES
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.torture.cloud.driver import Order
from tools.lab.torture.cloud.judge import judge
from tools.lab.torture.cloud.messages import Fleet
from tools.lab.torture.cloud.site import DriverFailed, Site

ACTIONS = {"ingest": 12, "requarantine": 4, "maintain": 3, "month": 1, "checkpoint": 1}
OPERATIONS = {"ingest": 40, "requarantine": 30, "maintain": 20}
"""About as many operations on files are in each. A kill is before one of them."""
MOMENT_S = 0.8
"""A kill at a random moment comes at most so long after the beginning."""


class Run:
    """One run: steps that follow from its seed. `violations` is empty where all holds.

    `judged` counts how often the tables were held against what landed.
    """

    def __init__(self, seed: int, steps: int, java_share: float) -> None:
        self.violations: list[str] = []
        self.struck: Counter[str] = Counter()
        self.messages = 0
        self.judged = 0
        self._seed = seed
        self._steps = steps
        self._java_share = java_share
        self._chance = random.Random(seed)
        self._fleet = Fleet(self._chance)
        self._operations = dict(OPERATIONS)
        self._is_whole = False

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(count for name, count in self.struck.items() if " killed" in name)

    def run(self, folder: Path) -> None:
        """Tortures one site."""
        site = Site(folder, self._chance)
        step = 0
        try:
            waiting = self._fleet.draw(20)
            for step in range(1, self._steps + 1):
                again = [] if site.land(waiting) else waiting
                waiting = again + self._fleet.draw(self._chance.randint(1, 40))
                site.carry()
                self._act(site, step)
                if self.violations:
                    return
            step += 1
            self._end(site, step, waiting)
        except DriverFailed as failed:
            self._tell(step, str(failed))
        finally:
            site.close()
            self.struck.update(site.struck)
            self.messages = len({key.identity for keys in site.files.values() for key in keys})

    def _act(self, site: Site, step: int) -> None:
        (action,) = self._chance.choices(list(ACTIONS), list(ACTIONS.values())) if step > 1 else ["ingest"]
        if action in ("month", "checkpoint"):
            site.strike(f"{action} of two tables")
        killed = action in OPERATIONS and self._chance.random() < 0.8
        self._order(site, step, self._kill(action) if killed else Order(action, tables=self._draw_tables()))
        if site.tables.exists() and self._chance.random() < 0.3:
            site.damage()
        if not self._is_whole and self._chance.random() < 0.5:
            self._order(site, step, Order("ingest"))

    def _draw_tables(self) -> list[str]:
        """Returns the names of some tables: a checkpoint of one takes Spark seconds."""
        return self._chance.sample([table.name for table in TABLES], 2)

    def _kill(self, action: str) -> Order:
        """Returns an order that the driver does not survive."""
        with_java = self._chance.random() < self._java_share
        if self._chance.random() < 0.2:
            return Order(action, moment=self._chance.random() * MOMENT_S, with_java=with_java)
        return Order(action, cut=self._chance.randrange(self._operations[action]), with_java=with_java)

    def _order(self, site: Site, step: int, order: Order) -> None:
        """Gives an order, and judges the tables where they have to be exact.

        A batch may count while its landing files are not recorded yet, until an `ingest` comes to its end.
        """
        answer = site.order(order)
        self._is_whole = not answer.was_cut and (self._is_whole or order.do == "ingest")
        if not answer.was_cut and order.do in OPERATIONS and step > 1:  # the first run makes the tables, it takes more
            self._operations[order.do] = max(answer.operations, OPERATIONS[order.do] // 2)
        if self._is_whole:
            self._judge(site, step, is_last=False)

    def _end(self, site: Site, step: int, waiting: list[Row]) -> None:
        while not site.land(waiting):
            pass
        site.carry(last=True)
        for action in ("settle", "requarantine", "maintain", "verify"):
            for fault in site.order(Order(action)).faults:
                self._tell(step, fault)
        self._judge(site, step, is_last=True)

    def _judge(self, site: Site, step: int, is_last: bool) -> None:
        self.judged += 1
        for found in judge(site.tables, site.files, self._fleet.kinds, is_last):
            self._tell(step, found)

    def _tell(self, step: int, text: str) -> None:
        self.violations.append(f"--seed {self._seed}, step {step}: {text}")


def cloud(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with new tables.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="How often each run lands, carries files and acts.")] = 100,
    java_share: Annotated[
        float, typer.Option(min=0, max=1, help="The share of the driver's kills in which its Java dies too.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=1, steps=6, java_share=0.1)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Kill lander and job, cut their files, and hold the tables against what landed.

    Ends with 1 if a message or a reading is missing, or there twice.
    """
    started = time.monotonic()
    done: list[Run] = []
    for number in range(runs):
        one = Run(seed + number, steps, java_share)
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            one.run(Path(folder))
        done.append(one)
        found = "; ".join(one.violations[:3]) or "holds"
        print(f"run {number + 1} of {runs}, {one.kills} kills: {found}", file=sys.stderr)
    violations = [text for one in done for text in one.violations]
    struck = sum((one.struck for one in done), Counter[str]())
    messages = sum(one.messages for one in done)
    judged = sum(one.judged for one in done)
    kills = sum(one.kills for one in done)
    more = {"runs": runs, "steps": steps, "kills": kills, "judged": judged, "struck": dict(sorted(struck.items()))}
    judgement = Judgement(not violations, seed, messages, violations=violations, more=more)
    lines = _lines(judgement, kills, judged, struck)
    end_judged("torture", "cloud", judgement, time.monotonic() - started, lines, as_json)


def _lines(judgement: Judgement, kills: int, judged: int, struck: Counter[str]) -> Iterator[str]:
    yield f"{judgement.messages} messages, {kills} kills, {judged} times judged"
    yield f"{', '.join(f'{name} {count}' for name, count in sorted(struck.items()))}"
    yield "HOLDS" if judgement.holds else "DOES NOT HOLD"
    yield from (f"  {violation}" for violation in judgement.violations)
