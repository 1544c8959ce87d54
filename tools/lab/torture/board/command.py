"""``holdfast lab torture board``: cuts of cable and power while boards are flashed; each run is repeated."""

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.micropython import MicroPython, MicroPythonUnavailable, find
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.torture.board.victim import Victim


class Torture:
    """What came of all boards.

    Attributes:
        struck: how often each fault struck.
        missed: runs that ended before their fault came.
        violations: a sentence for each board that is not as promised.
    """

    def __init__(self) -> None:
        self.struck: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.missed = 0
        self.violations: list[str] = []
        self._lock = threading.Lock()

    def run(self, micropython: MicroPython, folder: Path, number: int, seed: int) -> None:
        """Lets one board suffer."""
        own = folder / str(number)
        victim = Victim(own, micropython, random.Random(f"{seed}/{number}"))
        try:
            victim.suffer()
        finally:
            rmtree(own, ignore_errors=True)
        with self._lock:
            self.violations += victim.violations
            if victim.was_cut:
                self.struck[victim.fault] += 1
                self.states[victim.state] += 1
            else:
                self.missed += 1

    @property
    def cuts(self) -> int:
        return sum(self.struck.values())


def board(
    cuts: Annotated[int, typer.Option(min=1, help="How many runs to cut, at least.")] = 500,
    at_once: Annotated[int, typer.Option(min=1, help="How many boards at once.")] = 2,
    seed: Annotated[int, typer.Option(help="The number from which all chance is drawn.")] = 1,
    quick: Annotated[bool, quick_option(cuts=4)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Cut cable and power of simulated boards while `holdfast flash` writes them, and repeat it.

    Ends with 1 if a board does not become ready, a message on it is lost, or a byte differs from what was meant.
    """
    began_s = time.monotonic()
    torture = Torture()
    with failing_on(MicroPythonUnavailable, OSError, command="lab torture board"):
        micropython = find()
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder, ThreadPoolExecutor(at_once) as pool:
            number = 0
            while torture.cuts < cuts and not torture.violations:
                more = min(cuts - torture.cuts, 2 * at_once)
                list(
                    pool.map(
                        lambda one: torture.run(micropython, Path(folder), one, seed), range(number, number + more)
                    )
                )
                number += more
    seconds = time.monotonic() - began_s
    more_keys = {"cuts": torture.cuts, "struck": dict(torture.struck), "states": dict(torture.states)}
    judgement = Judgement(not torture.violations, seed, violations=torture.violations, more=more_keys)
    end_judged("torture", "board", judgement, seconds, _lines(torture, seconds), as_json)


def _lines(torture: Torture, seconds: float) -> Iterator[str]:
    faults = ", ".join(f"{count} of {fault}" for fault, count in sorted(torture.struck.items()))
    states = ", ".join(f"{count} {state}" for state, count in sorted(torture.states.items()))
    yield f"{torture.cuts} runs cut in {seconds:.0f} s: {faults}; the boards were {states}"
    yield f"{torture.missed} more runs ended before their cut"
    yield f"not as promised after the repetition: {len(torture.violations)}"
    for violation in torture.violations:
        yield f"  {violation}"
