"""``holdfast lab torture clients``: common clients, and a gateway that is killed, stopped and cut off."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.clients.run import FAULTS, ClientsOutcome, run


def clients(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with a new gateway.")] = 20,
    publishers: Annotated[int, typer.Option(min=1, help="How many publishers with paho in each run.")] = 10,
    messages: Annotated[int, typer.Option(min=1, help="How many messages of each publisher.")] = 1_000,
    faults: Annotated[int, typer.Option(min=0, help="How many kills, stops and cuts in each run.")] = 6,
    subscribers: Annotated[bool, typer.Option(help="Let subscribers of all kinds watch.")] = True,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=1, publishers=2, messages=100, faults=2)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Let common clients exchange messages while their gateway is killed and stopped, and lines are cut.

    Ends with 1 if a message of QoS 2 is lost or stored twice, if a subscriber at QoS 1 does not show one, or if a
    subscriber at QoS 2 does not show each once.
    """
    started = time.monotonic()
    outcome = ClientsOutcome()

    async def one(folder: Path, seed: int) -> None:
        kinds = random.Random(seed).choices(FAULTS, k=faults)
        await run(outcome, folder, seed, publishers, messages, kinds, subscribers)

    with failing_on(ProcessFailed, OSError, command="lab torture clients"):
        outcome.in_runs(runs, seed, one)
    end_judged("torture", "clients", outcome.judgement(seed), time.monotonic() - started, _lines(outcome), as_json)


def _lines(outcome: ClientsOutcome) -> Iterator[str]:
    yield f"{outcome.runs} runs with {outcome.publishers} publishers, {outcome.struck_line()}"
    yield f"{outcome.messages} messages at QoS 2; {outcome.lost} lost, {outcome.twice} stored twice"
    for name, figures in sorted(outcome.shown.items()):
        yield f"{name}: of {figures['messages']} not shown {figures['missing']}, again {figures['again']}"
    yield from outcome.lines()
