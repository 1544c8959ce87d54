"""``holdfast lab torture network``: gateways that subscribe for each other under faults; the count must be right."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.mosquitto import MosquittoUnavailable
from tools.lab.testing.nats import NatsUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.testing.rabbitmq import RabbitMqUnavailable
from tools.lab.torture.network import foreign
from tools.lab.torture.network.faults import FAULTS
from tools.lab.torture.network.foreign import Over
from tools.lab.torture.network.oracle import NetworkOutcome
from tools.lab.torture.network.run import run
from tools.lab.torture.strikes import fault_option

FAILURES = (MosquittoUnavailable, NatsUnavailable, RabbitMqUnavailable, ProcessFailed, OSError)


def network(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with a new network.")] = 100,
    messages: Annotated[int, typer.Option(min=100, help="How many messages in each run.")] = 1_500,
    faults: Annotated[int, typer.Option(min=1, max=100, help="How many faults in each run.")] = 10,
    fault: Annotated[list[str] | None, fault_option(FAULTS)] = None,
    no_broker: Annotated[bool, typer.Option("--no-broker", help="No mosquitto is in the middle of a network.")] = False,
    over: Annotated[
        Over | None, typer.Option(help="Two gateways with this system between them, instead of a network.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=2, messages=300, faults=5)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send messages through networks of gateways, and break what is in them.

    Ends with 1 if a subscriber misses a message that it has to get, or gets one twice, overtaken, or not meant for it.
    """
    kinds = [one for one in fault or FAULTS if not no_broker or one != "restart"]
    if not kinds:
        raise typer.BadParameter("restart needs the mosquitto that --no-broker leaves out", param_hint="--fault")
    started = time.monotonic()
    outcome = NetworkOutcome()

    async def one(folder: Path, seed: int) -> None:
        if over is None:
            await run(outcome, folder, seed, faults, messages, kinds, not no_broker)
        else:
            await foreign.run(outcome, folder, seed, faults, messages, over)

    with failing_on(*FAILURES, command="lab torture network"):
        outcome.in_runs(runs, seed, one)
    end_judged("torture", "network", outcome.judgement(seed), time.monotonic() - started, _lines(outcome), as_json)


def _lines(outcome: NetworkOutcome) -> Iterator[str]:
    yield f"{outcome.runs} runs, {outcome.struck_line()}"
    yield (
        f"{outcome.messages} messages for subscribers; {outcome.lost} lost, {outcome.twice} twice, "
        f"{outcome.disorder} out of order, {outcome.untyped} missing without a range, {outcome.foreign} not for them"
    )
    yield f"{outcome.typed} missing with a range, where a link was active-passive; {outcome.marked} came again at QoS 1"
    if outcome.rerouted:
        yield f"{outcome.rerouted} were overtaken in runs in which a circle changed the way of messages"
    yield from outcome.lines()
