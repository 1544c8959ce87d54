"""``holdfast lab torture uplink``: a route under faults of everything around it; the count must be right."""

import enum
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.mosquitto import MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.device.command import BrokerName
from tools.lab.torture.strikes import fault_option
from tools.lab.torture.uplink.faults import FAULTS
from tools.lab.torture.uplink.run import RouteOutcome, run

FAILURES = (MosquittoUnavailable, ProcessFailed, OSError)


class OrderName(enum.StrEnum):
    """The order of a route."""

    STRICT = "strict"
    LIVE_FIRST = "live_first"


def uplink(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with new stores.")] = 100,
    messages: Annotated[int, typer.Option(min=100, help="How many messages in each run.")] = 4_000,
    faults: Annotated[int, typer.Option(min=1, max=100, help="How many faults in each run.")] = 10,
    fault: Annotated[list[str] | None, fault_option(FAULTS)] = None,
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
    outcome = RouteOutcome(broker=broker.value, qos=qos, order=order.value, has_statements=statements)
    with failing_on(*FAILURES, command="lab torture uplink"):
        outcome.in_runs(
            runs, seed, lambda folder, seed: run(outcome, folder, seed, faults, messages, fault or list(FAULTS))
        )
    seconds = time.monotonic() - started
    end_judged("torture", "uplink", outcome.judgement(seed), seconds, _lines(outcome), as_json)


def _lines(outcome: RouteOutcome) -> Iterator[str]:
    yield f"{outcome.runs} runs to {outcome.broker} at QoS {outcome.qos}, {outcome.order}, {outcome.struck_line()}"
    yield (
        f"{outcome.messages} messages; {outcome.lost} lost, {outcome.twice} twice, {outcome.disorder} out of order; "
        f"{outcome.marked} came again with their identity"
    )
    if outcome.has_statements:
        yield f"{outcome.statements} statements were held against what came"
    yield f"{outcome.damaged} were on damaged pages, as the store says; {outcome.excused} on lost disks"
    yield from outcome.lines()
