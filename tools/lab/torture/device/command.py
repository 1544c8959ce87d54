"""``holdfast torture device``: the firmware under cuts of power, line and broker; the count must be right."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tools.demo.process import ProcessFailed
from tools.failure import failing_on
from tools.micropython import MicroPythonUnavailable, find
from tools.paths import memory_folder
from tools.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.sim.mosquitto import MosquittoUnavailable
from tools.torture.device_outcome import Outcome
from tools.torture.device_site import torture

FAILURES = (MicroPythonUnavailable, MosquittoUnavailable, ProcessFailed, OSError)


class BrokerName(StrEnum):
    """What the devices are connected to."""

    MOSQUITTO = "mosquitto"
    GATEWAY = "gateway"


def device(
    cuts: Annotated[int, typer.Option(min=1, help="How many cuts of power, connection and broker, at least.")] = 200,
    broker: Annotated[
        BrokerName, typer.Option(help="The broker: mosquitto, which is stopped, or a gateway, which is killed.")
    ] = (BrokerName.GATEWAY),
    qos: Annotated[int, typer.Option(min=1, max=2, help="The QoS of the devices' messages.")] = 1,
    seed: Annotated[int, typer.Option(help="The number from which all chance is drawn.")] = 1,
    quick: Annotated[bool, quick_option(cuts=20)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Run devices on MicroPython and cut their power, their connections and their broker.

    Ends with 1 if a message is lost, overtaken, or at QoS 2 there twice.
    """
    started = time.monotonic()
    with failing_on(*FAILURES, command="torture device"), tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        outcome = asyncio.run(torture(find(), Path(folder), broker.value, qos, cuts, seed))
    seconds = time.monotonic() - started
    more = asdict(outcome)
    lost, twice, disorder, violations = (more.pop(key) for key in ("lost", "twice", "disorder", "violations"))
    judgement = Judgement(outcome.holds, seed, outcome.stored, lost, twice, disorder, violations, more)
    end_judged("torture", "device", judgement, seconds, _lines(outcome, seconds), as_json)


def _lines(outcome: Outcome, seconds: float) -> Iterator[str]:
    yield (
        f"{outcome.cuts} cuts in {seconds:.1f} s: {outcome.power_cuts} of power, {outcome.line_cuts} of lines, "
        f"{outcome.broker_cuts} of the broker ({outcome.broker}); it lost {outcome.session_losses} sessions"
    )
    yield (
        f"QoS {outcome.qos}: {outcome.stored} messages stored; {outcome.lost} lost, {outcome.twice} twice, "
        f"{outcome.disorder} out of order; {outcome.repeated} sent again"
    )
    yield f"{outcome.told} did not arrive, as their devices tell; {outcome.resent} came again after a lost session"
    yield (
        f"{outcome.commands} commands: {outcome.unanswered} unanswered, {outcome.answered_twice} answered twice; "
        f"{outcome.begun_anew} begun anew by the broker"
    )
    yield "HOLDS" if outcome.holds else "DOES NOT HOLD"
    for violation in outcome.violations:
        yield f"  {violation}"
