"""``holdfast lab torture all``: the whole way of a reading under faults at every hop; the tables must be exact."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import fail, failing_on
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.mosquitto import MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.whole_way.oracle import Verdict
from tools.lab.torture.whole_way.run import Run

READINGS_A_FAULT = 10_000
FAULTS = (15, 300)  # fewest and most, if their number is not given
DISK_BYTES = 500  # for a reading: stores, landing files and tables, and what the job replaces
DISK_BASE_BYTES = 1_000_000_000
MEMORY_BYTES = 3_000_000_000  # of all processes together
FAILURES = (MosquittoUnavailable, ProcessFailed, OSError)


def whole_way(
    readings: Annotated[int, typer.Option(min=1000, help="How many readings the publishers make, about.")] = 100_000,
    faults: Annotated[
        int | None, typer.Option(min=1, help="How many faults strike; by default one for 10,000 readings, 15 to 300.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The number from which the faults are drawn.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Keep all files of the run in this empty folder.")] = None,
    quick: Annotated[bool, quick_option(readings=4_000, faults=4)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Run devices, two gateways, a broker, two landers and the job, and break each of them and each line between them.

    Ends with 1 if a reading is lost, is there twice, or is missing without a reason.
    """
    started = time.monotonic()
    fewest, most = FAULTS
    faults = faults or min(most, max(fewest, readings // READINGS_A_FAULT))

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    with failing_on(*FAILURES, command="lab torture all"), _folder(keep, readings) as folder:
        run = Run(folder, readings, faults, seed, say)
        asyncio.run(run.run())
    whole = run.total
    violations = [*dict.fromkeys(run.violations)]
    more = {
        "in_tables": whole.in_tables,
        "dropped": whole.dropped,
        "repeated": whole.repeated,
        "gaps": dict(run.gaps),
        "struck": dict(sorted(run.struck.items())),
    }
    judgement = Judgement(run.holds, seed, whole.made, whole.lost, whole.twice, None, violations, more)
    lines = _lines(judgement, run.verdicts, whole)
    end_judged("torture", "all", judgement, time.monotonic() - started, lines, as_json)


@contextmanager
def _folder(keep: Path | None, readings: int) -> Iterator[Path]:
    """Yields an empty folder with enough room, in memory if that has room for twice as much. Ends the command with 2 if
    disk or memory is short."""
    needed = DISK_BASE_BYTES + readings * DISK_BYTES
    if (free := _available_memory()) < MEMORY_BYTES:
        fail("lab torture all", f"{MEMORY_BYTES / 1e9:.1f} GB of memory are needed, {free / 1e9:.1f} GB are available")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            fail("lab torture all", f"--keep {keep}: the folder is not empty")
        _check_room(keep, needed)
        yield keep
        return
    in_memory = memory_folder()
    is_roomy = in_memory is not None and min(shutil.disk_usage(in_memory).free, free - MEMORY_BYTES) > 2 * needed
    with tempfile.TemporaryDirectory(dir=in_memory if is_roomy else None, prefix="holdfast-") as folder:
        _check_room(Path(folder), needed)
        yield Path(folder)


def _check_room(folder: Path, needed: int) -> None:
    if (free := shutil.disk_usage(folder).free) < needed:
        fail("lab torture all", f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")


def _available_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


def _lines(judgement: Judgement, verdicts: list[Verdict], whole: Verdict) -> Iterator[str]:
    yield f"{'':16}{'made':>12}{'in tables':>12}{'dropped':>10}{'repeated':>10}{'lost':>8}{'twice':>8}"
    for one in (*verdicts, whole):
        numbers = f"{one.made:12,}{one.in_tables:12,}{one.dropped:10,}{one.repeated:10,}{one.lost:8,}{one.twice:8,}"
        yield f"{one.name:16}{numbers}"
    gaps, struck = judgement.more["gaps"], judgement.more["struck"]
    yield "gaps: " + (", ".join(f"{name} {count:,}" for name, count in gaps.items()) or "none")
    yield f"{sum(struck.values())} faults: " + ", ".join(f"{name} {count}" for name, count in struck.items())
    yield "HOLDS" if judgement.holds else "FAILS"
    yield from (f"  {violation}" for violation in judgement.violations)
