"""``holdfast torture lander``: a lander behind mosquitto under kills, cuts and full disks; the tables must be exact."""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.mosquitto import INFLIGHT_RECOMMENDED, MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.lander.run import Run

FAILURES = (MosquittoUnavailable, ProcessFailed, OSError)


def lander(
    messages: Annotated[int, typer.Option(min=100, help="How many messages the publishers send.")] = 50_000,
    kills: Annotated[int, typer.Option(min=0, help="How often the lander or the broker is killed.")] = 20,
    inflight: Annotated[
        int, typer.Option(min=0, max=65_535, help="The max_inflight_messages of mosquitto; 0 is no limit.")
    ] = INFLIGHT_RECOMMENDED,
    seed: Annotated[int, typer.Option(help="The number from which the faults are drawn.")] = 1,
    quick: Annotated[bool, quick_option(messages=2_000, kills=4)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Publish to a mosquitto as fast as it takes messages, kill it and the lander behind it, and recount the tables.

    Ends with 1 if an acknowledged message is not in the tables, or is there twice.
    """
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    run = Run(messages, kills, inflight, seed, say)
    with failing_on(*FAILURES, command="torture lander"), tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        asyncio.run(run.run(Path(folder)))
    more = {"inflight": inflight, "struck": dict(sorted(run.struck.items()))}
    judgement = Judgement(not run.violations, seed, run.messages, run.lost, run.twice, None, run.violations, more)
    lines = _lines(judgement, run.struck)
    end_judged("torture", "lander", judgement, time.monotonic() - started, lines, as_json)


def _lines(judgement: Judgement, struck: Counter[str]) -> Iterator[str]:
    yield f"{judgement.messages} messages; {judgement.lost} lost, {judgement.twice} twice"
    yield f"{sum(struck.values())} faults: " + ", ".join(f"{name} {count}" for name, count in sorted(struck.items()))
    yield "HOLDS" if judgement.holds else "FAILS"
    yield from (f"  {violation}" for violation in judgement.violations)
