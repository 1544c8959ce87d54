"""``holdfast lab torture receipts``: everything from a gateway on loses messages; they come again, and count once."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.micropython import MicroPythonUnavailable, find
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.mosquitto import MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.receipts.faults import FAULTS
from tools.lab.torture.receipts.run import ReceiptsOutcome, run
from tools.lab.torture.strikes import fault_option

FAILURES = (MicroPythonUnavailable, MosquittoUnavailable, ProcessFailed, OSError)


def receipts(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, each with new stores and tables.")] = 10,
    messages: Annotated[
        int, typer.Option(min=100, help="How many messages in each run, beside those of devices.")
    ] = 20_000,
    faults: Annotated[int, typer.Option(min=1, max=100, help="How many faults in each run.")] = 16,
    fault: Annotated[list[str] | None, fault_option(FAULTS)] = None,
    seed: Annotated[int, typer.Option(help="The seed of the first run; each run has the next one.")] = 1,
    quick: Annotated[bool, quick_option(runs=1, messages=1_000, faults=5)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send messages over a route that waits for receipts, and lose them behind it: at the broker, after landing, and
    in the tables; and lose the gateway's store, where devices keep theirs.

    Ends with 1 if a message that the gateway has acknowledged, or a device stored, is not in the tables or is there
    twice.
    """
    started = time.monotonic()
    outcome = ReceiptsOutcome()
    with failing_on(*FAILURES, command="lab torture receipts"):
        vm = find()
        outcome.in_runs(
            runs, seed, lambda folder, seed: run(outcome, vm, folder, seed, faults, messages, fault or list(FAULTS))
        )
    end_judged("torture", "receipts", outcome.judgement(seed), time.monotonic() - started, _lines(outcome), as_json)


def _lines(outcome: ReceiptsOutcome) -> Iterator[str]:
    yield f"{outcome.runs} runs, {outcome.struck_line()}"
    yield (
        f"{outcome.messages} messages, {outcome.of_devices} of them of devices; {outcome.lost} lost, "
        f"{outcome.twice} twice; {outcome.sent_again} went again"
    )
    yield f"{outcome.gone} messages of clients that are no devices went with a store of the gateway"
    yield from outcome.lines()
