"""``holdfast lab torture device``: the firmware under cuts of power, line and broker; the count must be right."""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.micropython import MicroPython, MicroPythonUnavailable, find
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.mosquitto import MosquittoUnavailable
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.custodians import CUSTODIANS, Reader
from tools.lab.torture.device.commander import Commander
from tools.lab.torture.device.kinds import KINDS
from tools.lab.torture.device.life import Tormented
from tools.lab.torture.device.outcome import DeviceOutcome, judge

BROKER_LIFE_S = (0.2, 1.0)
COMMAND_PAUSE_S = 0.3  # at most
COMMANDS_AT_ONCE = 4  # to one device; fewer than its Receive Maximum, which mosquitto forgets in a restart
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
    with (
        failing_on(*FAILURES, command="lab torture device"),
        tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
    ):
        outcome = asyncio.run(torture(find(), Path(folder), broker.value, qos, cuts, seed))
    seconds = time.monotonic() - started
    end_judged("torture", "device", outcome.judgement(seed), seconds, _lines(outcome, seconds), as_json)


async def torture(vm: MicroPython, folder: Path, broker_name: str, qos: int, cuts: int, seed: int) -> DeviceOutcome:
    """Cuts power, lines and broker at least `cuts` times in all, then lets the devices finish in peace.

    Raises ProcessFailed, OSError or MosquittoUnavailable where the broker does not run, or takes no command.
    """
    outcome = DeviceOutcome(broker=broker_name, qos=qos)
    chance = random.Random(seed)
    broker = CUSTODIANS[broker_name](folder, "")
    devices: list[Tormented] = []
    await broker.up()
    try:
        reader = Reader(broker.port, qos)
        await reader.subscribe()
        for kind in KINDS:
            devices.append(Tormented(vm, folder, kind, broker.port, qos, random.Random(chance.getrandbits(64))))
        commander = Commander(broker.port)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for device in devices:
                await device.open()
                group.create_task(device.live_until(enough))
            if qos == 2:
                group.create_task(commander.run())
                group.create_task(_command(commander, devices, random.Random(chance.getrandbits(64)), enough))
            while outcome.struck["broker"] + sum(device.cuts for device in devices) < cuts:
                await asyncio.sleep(chance.uniform(*BROKER_LIFE_S))
                await broker.interrupt()
                outcome.struck["broker"] += 1
            enough.set()
        await asyncio.gather(*(device.drain() for device in devices))
        judge(outcome, devices, await reader.read())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    finally:
        for device in devices:
            await device.close()
        await broker.down()
    return outcome


async def _command(commander: Commander, devices: list[Tormented], chance: random.Random, end: asyncio.Event) -> None:
    """To devices that have a subscription, as long as not too many are on their way to one."""
    while not end.is_set():
        await asyncio.sleep(chance.uniform(0, COMMAND_PAUSE_S))
        device = chance.choice(devices)
        if device.witness.has_subscribed and len(device.unanswered) < COMMANDS_AT_ONCE:
            device.commands.append(commander.send(device.command_topic))
    commander.close()


def _lines(outcome: DeviceOutcome, seconds: float) -> Iterator[str]:
    struck = outcome.struck
    yield (
        f"{outcome.cuts} cuts in {seconds:.1f} s: {struck['power']} of power, {struck['line']} of lines, "
        f"{struck['broker']} of the broker ({outcome.broker}); it lost {struck['session']} sessions"
    )
    yield (
        f"QoS {outcome.qos}: {outcome.messages} messages stored; {outcome.lost} lost, {outcome.twice} twice, "
        f"{outcome.disorder} out of order; {outcome.repeated} sent again"
    )
    yield f"{outcome.told} did not arrive, as their devices tell; {outcome.resent} came again after a lost session"
    yield (
        f"{outcome.commands} commands: {outcome.unanswered} unanswered, {outcome.answered_twice} answered twice; "
        f"{outcome.begun_anew} begun anew and {outcome.overtaken} sent out of order by the broker"
    )
    yield from outcome.lines()
