"""``holdfast torture uplink``: a route under faults of everything around it; the count must be right."""

import asyncio
import enum
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.mosquitto import MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.device.command import BrokerName
from tools.lab.torture.uplink.faults import FAULTS
from tools.lab.torture.uplink.run import Outcome, run

COUNTED = ("messages", "lost", "twice", "disorder", "violations")
FAILURES = (MosquittoUnavailable, ProcessFailed, OSError)


class OrderName(enum.StrEnum):
    """The order of a route."""

    STRICT = "strict"
    LIVE_FIRST = "live_first"


def _known(names: list[str]) -> list[str]:
    if unknown := set(names) - set(FAULTS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: expected some of {', '.join(FAULTS)}")
    return names


def uplink(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with new stores.")] = 100,
    messages: Annotated[int, typer.Option(min=100, help="How many messages in each run.")] = 4_000,
    faults: Annotated[int, typer.Option(min=1, max=100, help="How many faults in each run.")] = 10,
    fault: Annotated[
        list[str] | None, typer.Option(callback=lambda names: _known(names or []), help="Only this fault.")
    ] = None,
    broker: Annotated[
        BrokerName, typer.Option(help="The next broker: mosquitto, which is stopped, or a gateway, which is killed.")
    ] = (BrokerName.MOSQUITTO),
    qos: Annotated[int, typer.Option(min=1, max=2, help="The QoS of the messages.")] = 2,
    order: Annotated[OrderName, typer.Option(help="The order in which the route sends.")] = OrderName.STRICT,
    statements: Annotated[
        bool, typer.Option("--statements", help="Let the route make statements, and hold them against what came.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=3, messages=800, faults=8)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send messages over a gateway's route to the next broker, and break what is around it.

    Ends with 1 if a message that the gateway has acknowledged is lost, overtaken, or there twice: at QoS 1 without its
    first identity, at QoS 2 in any way.
    """
    started = time.monotonic()
    outcome = Outcome(broker.value, qos, order.value, statements)
    with failing_on(*FAILURES, command="torture uplink"):
        for number in range(runs):
            before = len(outcome.violations)
            with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
                asyncio.run(run(outcome, Path(folder), seed + number, faults, messages, fault or list(FAULTS)))
            found = outcome.violations[before:] or ["holds"]
            print(f"run {number + 1} of {runs}: {'; '.join(found)}", file=sys.stderr)
    more = asdict(outcome)
    messages, lost, twice, disorder, violations = (more.pop(key) for key in COUNTED)
    judgement = Judgement(outcome.holds, seed, messages, lost, twice, disorder, violations, more)
    end_judged("torture", "uplink", judgement, time.monotonic() - started, _lines(outcome), as_json)


def _lines(outcome: Outcome) -> Iterator[str]:
    yield f"{outcome.runs} runs to {outcome.broker} at QoS {outcome.qos}, {outcome.order}, {outcome.faults} faults:"
    yield ", ".join(f"{name} {count}" for name, count in sorted(outcome.struck.items()))
    yield (
        f"{outcome.messages} messages; {outcome.lost} lost, {outcome.twice} twice, {outcome.disorder} out of order; "
        f"{outcome.marked} came again with their identity"
    )
    if outcome.has_statements:
        yield f"{outcome.statements} statements were held against what came"
    yield f"{outcome.damaged} were on damaged pages, as the store says; {outcome.excused} on lost disks"
    yield "HOLDS" if outcome.holds else "DOES NOT HOLD"
    yield from (f"  {violation}" for violation in outcome.violations)
