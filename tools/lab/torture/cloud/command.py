"""``holdfast lab torture cloud``: lander and job under faults of everything around them; the tables must be exact."""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cloud import has_tables
from cloud.landing.file import Row
from cloud.tables.schema import TABLES
from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.object_store import ObjectStoreUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.cloud.driver import Answer, Order
from tools.lab.torture.cloud.judge import judge
from tools.lab.torture.cloud.messages import Fleet
from tools.lab.torture.cloud.places import Bucket, Disk
from tools.lab.torture.cloud.site import Site
from tools.lab.torture.cloud.worker import WorkerFailed

ACTIONS = {"ingest": 12, "requarantine": 4, "maintain": 3, "month": 1, "checkpoint": 1}
TOGETHER = {"ingest": 8, "requarantine": 3, "maintain": 2}
"""What a job does while another one works on the same tables."""
SILENT_S = 300.0
BEGINS_LATER_S = 3.0


class Kind(NamedTuple):
    """What follows from where landing files and tables lie.

    jobs: how many there are. operations: about as many operations on files, or requests to the store, are in each
    action; a kill is at one of them. moment_s: a kill at a random moment comes at most so long after the beginning.
    steps: the default.
    """

    jobs: int
    operations: dict[str, int]
    moment_s: float
    steps: int


DISK = Kind(1, {"ingest": 40, "requarantine": 30, "maintain": 20}, 0.8, 100)
OBJECT_STORE = Kind(2, {"ingest": 150, "requarantine": 100, "maintain": 100}, 4, 20)


class Run:
    """One run: steps that follow from its seed. `violations` is empty where all holds.

    `judged` counts how often the tables were held against what landed.
    """

    def __init__(self, seed: int, steps: int, java_share: float, kind: Kind = DISK) -> None:
        self.violations: list[str] = []
        self.struck: Counter[str] = Counter()
        self.messages = 0
        self.judged = 0
        self._seed = seed
        self._steps = steps
        self._java_share = java_share
        self._kind = kind
        self._chance = random.Random(seed)
        self._fleet = Fleet(self._chance)
        self._operations = dict(kind.operations)
        self._is_whole = False

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(count for name, count in self.struck.items() if " killed" in name)

    def run(self, folder: Path) -> None:
        """Tortures one site. Raises ObjectStoreUnavailable, ProcessFailed."""
        places = Disk(folder, self._chance) if self._kind is DISK else Bucket(self._chance, self._kind.jobs)
        site = Site(folder, self._chance, places, self._kind.jobs)
        step = 0
        try:
            waiting = self._fleet.draw(20)
            for step in range(1, self._steps + 1):
                again = [] if site.land(waiting) else waiting
                waiting = again + self._fleet.draw(self._chance.randint(1, 40))
                site.carry()
                if step > 1 and self._kind.jobs > 1 and self._chance.random() < 0.6:
                    self._act_together(site, step)
                else:
                    self._act(site, step)
                if self.violations:
                    return
            step += 1
            self._end(site, step, waiting)
        except WorkerFailed as failed:
            self._tell(step, str(failed))
        finally:
            site.close()
            self.struck.update(site.struck)
            self.messages = len({key.identity for keys in site.files.values() for key in keys})

    def _act(self, site: Site, step: int) -> None:
        (action,) = self._chance.choices(list(ACTIONS), list(ACTIONS.values())) if step > 1 else ["ingest"]
        if action in ("month", "checkpoint"):
            site.strike(f"{action} of two tables")
        self._order(site, step, self._draw_order(action))
        self._go_on(site, step)

    def _act_together(self, site: Site, step: int) -> None:
        """Lets two jobs work on the tables at once. The first one is held while the second one takes over. Or the
        second one begins somewhat later, and takes over or leaves the first one alone."""
        actions = self._chance.choices(list(TOGETHER), list(TOGETHER.values()), k=self._kind.jobs)
        site.strike("jobs at once")
        if self._chance.random() < 0.5:
            # A job that is killed does little harm by being late.
            slow, fast = (self._draw_order(action, killed) for action, killed in zip(actions, (0.2, 0.5), strict=True))
            orders = {0: slow, 1: fast}
            before = slow.cut or self._operations[slow.do]
            answers = site.overtake(self._chance.randrange(before), slow, fast)
        else:
            orders = {number: self._draw_order(action) for number, action in enumerate(actions)}
            orders[1].silent_s = self._chance.choice((0, 0, SILENT_S))
            orders[1].wait_s = self._chance.random() * BEGINS_LATER_S
            answers = site.orders(orders)
        self._note(site, step, orders, answers)
        self._go_on(site, step)

    def _go_on(self, site: Site, step: int) -> None:
        if self._chance.random() < 0.3 and has_tables(site.tables):
            site.damage()
        if not self._is_whole and self._chance.random() < 0.5:
            self._order(site, step, Order("ingest"))

    def _draw_order(self, action: str, killed: float = 0.8) -> Order:
        """Returns an order that the driver may carry out, or, with this chance, does not survive."""
        if action not in self._operations or self._chance.random() >= killed:
            # A checkpoint of one table takes Spark seconds.
            return Order(action, tables=self._chance.sample([table.name for table in TABLES], 2))
        with_java = self._chance.random() < self._java_share
        if self._chance.random() < 0.2:
            return Order(action, moment=self._chance.random() * self._kind.moment_s, with_java=with_java)
        return Order(action, cut=self._chance.randrange(self._operations[action]), with_java=with_java)

    def _order(self, site: Site, step: int, order: Order) -> None:
        self._note(site, step, {0: order}, {0: site.order(order)})

    def _note(self, site: Site, step: int, orders: dict[int, Order], answers: dict[int, Answer]) -> None:
        """Judges the tables where they have to be exact.

        A batch may count while its landing files are not recorded yet, until an `ingest` comes to its end. A job that
        was refused left all to another one.
        """
        done = [number for number, answer in answers.items() if answer.is_done]
        was_stopped = any(answer.was_cut or answer.failure for answer in answers.values())
        has_ingested = any(orders[number].do == "ingest" for number in done)
        self._is_whole = not was_stopped and (has_ingested or (self._is_whole and len(done) == len(answers)))
        for number in done:
            action = orders[number].do
            if action in self._operations and step > 1:  # the first run makes the tables, it takes more
                least = self._kind.operations[action] // 2
                self._operations[action] = max(answers[number].operations, least)
        if self._is_whole:
            self._judge(site, step, is_last=False)

    def _end(self, site: Site, step: int, waiting: list[Row]) -> None:
        site.settle()
        while not site.land(waiting):
            pass
        site.carry(last=True)
        for action in ("settle", "requarantine", "maintain", "verify"):
            answer = site.order(Order(action))
            for fault in answer.faults:
                self._tell(step, fault)
            if not answer.is_done:
                self._tell(step, f"{action} was refused, or failed, while nothing else ran: {answer.failure}")
        self._judge(site, step, is_last=True)

    def _judge(self, site: Site, step: int, is_last: bool) -> None:
        self.judged += 1
        for found in judge(site.tables, site.files, self._fleet.kinds, is_last):
            self._tell(step, found)

    def _tell(self, step: int, text: str) -> None:
        self.violations.append(f"--seed {self._seed}, step {step}: {text}")


def cloud(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with new tables.")] = 10,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="How often each run lands, carries files and acts: by default 100, with --s3 20."),
    ] = None,
    s3: Annotated[
        bool, typer.Option("--s3", help="Landing files and tables in an object store that fails, and two jobs at once.")
    ] = False,
    java_share: Annotated[
        float, typer.Option(min=0, max=1, help="The share of the driver's kills in which its Java dies too.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=1, steps=6, java_share=0.1)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Kill lander and job, cut their files, and hold the tables against what landed.

    Ends with 1 if a message or a reading is missing, or there twice, and with 2 if it could not run.
    """
    started = time.monotonic()
    done: list[Run] = []
    kind = OBJECT_STORE if s3 else DISK
    steps = steps or kind.steps
    for number in range(runs):
        one = Run(seed + number, steps, java_share, kind)
        with (
            tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
            failing_on(ObjectStoreUnavailable, ProcessFailed, command="lab torture cloud"),
        ):
            one.run(Path(folder))
        done.append(one)
        found = "; ".join(one.violations[:3]) or "holds"
        print(f"run {number + 1} of {runs}, {one.kills} kills: {found}", file=sys.stderr)
    violations = [text for one in done for text in one.violations]
    struck = sum((one.struck for one in done), Counter[str]())
    messages = sum(one.messages for one in done)
    judged = sum(one.judged for one in done)
    kills = sum(one.kills for one in done)
    more = {
        "runs": runs,
        "steps": steps,
        "s3": s3,
        "kills": kills,
        "judged": judged,
        "struck": dict(sorted(struck.items())),
    }
    judgement = Judgement(not violations, seed, messages, violations=violations, more=more)
    lines = _lines(judgement, kills, judged, struck)
    end_judged("torture", "cloud", judgement, time.monotonic() - started, lines, as_json)


def _lines(judgement: Judgement, kills: int, judged: int, struck: Counter[str]) -> Iterator[str]:
    yield f"{judgement.messages} messages, {kills} kills, {judged} times judged"
    yield f"{', '.join(f'{name} {count}' for name, count in sorted(struck.items()))}"
    yield "HOLDS" if judgement.holds else "DOES NOT HOLD"
    yield from (f"  {violation}" for violation in judgement.violations)
