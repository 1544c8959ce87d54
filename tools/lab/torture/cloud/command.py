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
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.torture.cloud.driver import Order
from tools.lab.torture.cloud.judge import judge
from tools.lab.torture.cloud.messages import Fleet
from tools.lab.torture.cloud.site import DriverFailed, Site

ACTIONS = {"ingest": 6, "requarantine": 2, "maintain": 1, "month": 1, "checkpoint": 1}
OPERATIONS = {"ingest": 40, "requarantine": 30, "maintain": 20}
"""About as many operations on files are in each. A cut is at one of them."""


class Run:
    """One run: steps that follow from its seed. `violations` is empty where all holds."""

    def __init__(self, seed: int, steps: int, kill_share: float) -> None:
        self.violations: list[str] = []
        self.struck: Counter[str] = Counter()
        self.messages = 0
        self._seed = seed
        self._steps = steps
        self._kill_share = kill_share
        self._chance = random.Random(seed)
        self._fleet = Fleet(self._chance)
        self._operations = dict(OPERATIONS)

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
            site.strike(f"{action} of all tables")
        is_cut = action in OPERATIONS and self._chance.random() < 0.7
        cut = self._chance.randrange(self._operations[action]) if is_cut else None
        kills = is_cut and self._chance.random() < self._kill_share
        answer = site.order(Order(action, cut, kills))
        if not answer.was_cut and action in OPERATIONS and step > 1:  # the first run makes the tables, which takes more
            self._operations[action] = max(answer.operations, OPERATIONS[action] // 2)
        if not answer.was_cut and action in ("ingest", "requarantine"):
            self._judge(site, step, is_last=False)
        if site.tables.exists() and self._chance.random() < 0.3:
            site.damage()

    def _end(self, site: Site, step: int, waiting: list[Row]) -> None:
        while not site.land(waiting):
            pass
        site.carry(last=True)
        for action in ("settle", "requarantine", "maintain", "verify"):
            for fault in site.order(Order(action)).faults:
                self._tell(step, fault)
        self._judge(site, step, is_last=True)

    def _judge(self, site: Site, step: int, is_last: bool) -> None:
        for found in judge(site.tables, site.files, self._fleet.kinds, is_last):
            self._tell(step, found)

    def _tell(self, step: int, text: str) -> None:
        self.violations.append(f"--seed {self._seed}, step {step}: {text}")


def cloud(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with new tables.")] = 40,
    steps: Annotated[int, typer.Option(min=1, help="How often each run lands, carries files and acts.")] = 25,
    kill_share: Annotated[
        float, typer.Option(min=0, max=1, help="The share of cuts that kill the driver; the others only end its work.")
    ] = 0.25,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=1, steps=4, kill_share=0.1)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Kill lander and job, cut their files, and hold the tables against what landed.

    Ends with 1 if a message or a reading is missing, or there twice.
    """
    started = time.monotonic()
    done: list[Run] = []
    for number in range(runs):
        one = Run(seed + number, steps, kill_share)
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            one.run(Path(folder))
        done.append(one)
        print(f"run {number + 1} of {runs}: {'; '.join(one.violations[:3]) or 'holds'}", file=sys.stderr)
    violations = [text for one in done for text in one.violations]
    struck = sum((one.struck for one in done), Counter[str]())
    messages = sum(one.messages for one in done)
    more = {"runs": runs, "steps": steps, "struck": dict(sorted(struck.items()))}
    judgement = Judgement(not violations, seed, messages, violations=violations, more=more)
    end_judged("torture", "cloud", judgement, time.monotonic() - started, _lines(judgement, struck), as_json)


def _lines(judgement: Judgement, struck: Counter[str]) -> Iterator[str]:
    yield f"{judgement.messages} messages; {', '.join(f'{name} {count}' for name, count in sorted(struck.items()))}"
    yield "HOLDS" if judgement.holds else "DOES NOT HOLD"
    yield from (f"  {violation}" for violation in judgement.violations)
