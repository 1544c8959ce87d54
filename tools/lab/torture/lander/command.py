"""``holdfast lab torture lander``: a lander behind mosquitto under kills, cuts and full disks; the tables are exact."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.mosquitto import INFLIGHT_RECOMMENDED, MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.lander.run import LanderOutcome, run

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

    outcome = LanderOutcome(inflight=inflight)
    with failing_on(*FAILURES, command="lab torture lander"):
        outcome.in_runs(1, seed, lambda folder, seed: run(outcome, folder, messages, kills, seed, say))
    end_judged("torture", "lander", outcome.judgement(seed), time.monotonic() - started, _lines(outcome), as_json)


def _lines(outcome: LanderOutcome) -> Iterator[str]:
    yield f"{outcome.messages} messages; {outcome.lost} lost, {outcome.twice} twice"
    yield outcome.struck_line()
    yield from outcome.lines()
