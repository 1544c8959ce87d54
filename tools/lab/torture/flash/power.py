"""Power cuts: at every byte of every program and erase of a workload, and again in the recovery; and lives of many."""

import random
import re
from collections import Counter
from collections.abc import Callable

from flash_store.errors import StoreError
from tools.lab.sim.nor import NorFlash, Operation, PowerCut
from tools.lab.torture.flash.model import Broken, Model, expect
from tools.lab.torture.flash.workload import SCENARIOS, Scenario, Workload

STEPS = 500  # of a workload
LIFE_STEPS = 4000  # of a life with many cuts
BYTES_BETWEEN_CUTS = 3000
OF_A_SORT_MAX = 3  # violations that are told in full
DEPTH = 2


class Torture:
    """Counts what was done to stores and what broke: `violations` tell how to see it again, some of each sort."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(places=0, cuts=0, cuts_two_deep=0, mounts=0, runs=0, broken=0)
        self.violations: list[dict[str, object]] = []
        self._sorts: Counter[str] = Counter()

    def attempt(self, do: Callable[[], None], **where: object) -> bool:
        """False where a promise was broken: then it is noted, with where it was."""
        try:
            do()
        except (Broken, StoreError, ArithmeticError, LookupError, ValueError, TypeError) as error:
            what = f"{type(error).__name__}: {error}"
            sort = re.sub("[0-9]+", "", f"{where.get('scenario')} {what}")
            self._sorts[sort] += 1
            self.counts["broken"] += 1
            if self._sorts[sort] <= OF_A_SORT_MAX:
                self.violations.append(where | {"what": what})
            return False
        return True


class CutEverywhere:
    """A workload on a store, of which each operation is cut at every `stride`th byte, and each recovery once more."""

    def __init__(self, torture: Torture, scenario: Scenario, seed: int, stride: int) -> None:
        self._torture, self._scenario, self._seed, self._stride = torture, scenario, seed, stride
        self._random = random.Random(seed)
        self._byte = self._random.randrange(stride)  # of the next cut, counted from the operation at hand

    def run(self) -> None:
        work = Workload(self._scenario, self._seed)
        work.flash.before_operation = lambda operation: self._cut_everywhere(work, operation)
        self._torture.counts["runs"] += 1
        self._torture.attempt(lambda: _run(work), scenario=self._scenario.name, seed=self._seed, step="workload")

    def _cut_everywhere(self, work: Workload, operation: Operation) -> None:
        size = work.flash.size_of(operation)
        while self._byte < size:
            self._recover(work.flash.torn(operation, self._byte), work.model, ((operation, self._byte),))
            self._byte += self._stride
        self._byte -= size

    def _recover(self, flash: NorFlash, model: Model, cuts: tuple[tuple[Operation, int], ...]) -> None:
        """Mount what a cut left; on the way, cut again."""
        self._torture.counts["cuts_two_deep" if len(cuts) > 1 else "cuts"] += 1
        if len(cuts) < DEPTH:

            def cut_again(operation: Operation) -> None:
                byte = self._random.randrange(flash.size_of(operation))
                self._recover(flash.torn(operation, byte), model, (*cuts, (operation, byte)))

            flash.before_operation = cut_again
        work = Workload.resume(self._scenario, flash, model.copy(), self._random.getrandbits(32))
        where = {"cut": _describe(cuts), "scenario": self._scenario.name, "seed": self._seed, "stride": self._stride}
        self._torture.counts["mounts"] += 2
        self._torture.attempt(lambda: _prove(work), **where)


class Life:
    """One store that goes on through cut after cut, in workload and recovery alike."""

    def __init__(self, torture: Torture, scenario: Scenario, seed: int) -> None:
        self._torture, self._scenario, self._seed = torture, scenario, seed
        self._random = random.Random(seed)

    def run(self, cuts_max: int) -> None:
        self._work = Workload(self._scenario, self._seed)
        self._torture.counts["runs"] += 1
        before = self._torture.counts["cuts"]
        for step in range(LIFE_STEPS):
            where = {"cut": "life", "scenario": self._scenario.name, "seed": self._seed, "step": step}
            if self._torture.counts["cuts"] - before >= cuts_max or not self._torture.attempt(self._step, **where):
                return
        self._work.flash.cut_at(None)
        self._torture.attempt(
            lambda: _prove(self._work, may_be_full=True), cut="life", scenario=self._scenario.name, seed=self._seed
        )

    def _step(self) -> None:
        if not self._work.flash.is_cut_ahead:
            self._work.flash.cut_at(self._random.randrange(BYTES_BETWEEN_CUTS))
        try:
            self._work.step()
        except PowerCut:
            self._torture.counts["cuts"] += 1
            while not self._mount():
                self._torture.counts["cuts_two_deep"] += 1
        expect(not self._work.flash.violations, "a granule was programmed twice, or after half an erase")

    def _mount(self) -> bool:
        self._torture.counts["mounts"] += 1
        if self._random.randrange(2):
            self._work.flash.cut_at(self._random.randrange(2 * self._scenario.sector_size))
        try:
            self._work.mount()
        except PowerCut:
            return False
        return True


def torture_with_cuts(torture: Torture, cuts: int, seed: int) -> None:
    """At least this many cuts, a quarter of them in lives, the rest spread evenly over workloads of each scenario:
    with as many as there are `places`, each byte is cut."""
    share = cuts // len(SCENARIOS) + 1
    for number, scenario in enumerate(SCENARIOS):
        places = _measure(scenario, seed + number)
        torture.counts["places"] += places
        stride = max(1, places * 4 // (share * 3))
        goal = torture.counts["cuts"] + share
        CutEverywhere(torture, scenario, seed + number, stride).run()
        while torture.counts["cuts"] < goal:
            seed += len(SCENARIOS)
            Life(torture, scenario, seed + number).run(goal - torture.counts["cuts"])


def _measure(scenario: Scenario, seed: int) -> int:
    work = Workload(scenario, seed)
    work.flash.operations.clear()
    _run(work)
    return sum(work.flash.size_of(operation) for operation in work.flash.operations)


def _run(work: Workload) -> None:
    for _ in range(STEPS):
        work.step()
    expect(not work.flash.violations, "a granule was programmed twice")


def _prove(work: Workload, may_be_full: bool = False) -> None:
    work.mount()
    work.flash.before_operation = lambda operation: None
    work.prove_usable(may_be_full)
    expect(not work.flash.violations, "a granule was programmed twice, or after half an erase")


def _describe(cuts: tuple[tuple[Operation, int], ...]) -> str:
    texts = [
        f"{'erase' if operation.is_erase else f'program of {len(operation.content)} bytes at {operation.offset}'}"
        f" of sector {operation.sector}, byte {byte}"
        for operation, byte in cuts
    ]
    return ", then ".join(texts)
