"""Devices under torture and their broker; when all is over, what the broker holds is compared with what they stored."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tools.micropython import MicroPython
from tools.torture.device_brokers import BROKERS, Commander, Reader
from tools.torture.device_life import COMMANDS, Tormented
from tools.torture.device_witness import command_of
from wire.identity import decode_identity

DEVICES = 4
BROKER_LIFE_S = (0.2, 1.0)


@dataclass
class Outcome:
    """What was done to a broker and its devices, and what came of it; `violations` is empty where all holds."""

    broker: str
    qos: int
    power_cuts: int = 0
    line_cuts: int = 0
    broker_cuts: int = 0
    stored: int = 0
    arrived: int = 0
    lost: int = 0
    twice: int = 0
    disorder: int = 0
    commands: int = 0  # at QoS 2
    unanswered: int = 0
    answered_twice: int = 0
    begun_anew: int = 0  # commands that the broker sent again after their PUBREL, which nobody can know again
    repeated: int = 0  # PUBLISH packets that a device sent again
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        commands = self.unanswered or self.answered_twice
        return not (self.lost or self.disorder or commands or self.violations or (self.qos == 2 and self.twice))

    @property
    def cuts(self) -> int:
        return self.power_cuts + self.line_cuts + self.broker_cuts


async def torture(vm: MicroPython, folder: Path, broker_name: str, qos: int, cuts: int, seed: int) -> Outcome:
    """Cuts power, lines and broker at least `cuts` times in all, then lets the devices finish in peace.

    Raises ProcessFailed, OSError or MosquittoUnavailable where the broker does not run.
    """
    outcome = Outcome(broker_name, qos)
    chance = random.Random(seed)
    broker = BROKERS[broker_name](folder)
    await broker.start()
    try:
        reader = Reader(broker.port, qos)
        await asyncio.to_thread(reader.subscribe)
        devices = [
            Tormented(vm, folder, f"device-{number}", broker.port, qos, random.Random(chance.getrandbits(64)), qos == 2)
            for number in range(DEVICES)
        ]
        commander = await asyncio.to_thread(Commander, broker.port)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for device in devices:
                await device.open()
                group.create_task(device.live_until(enough))
            while outcome.broker_cuts + sum(device.cuts for device in devices) < cuts:
                await asyncio.sleep(chance.uniform(*BROKER_LIFE_S))
                if qos == 2:
                    for device in devices:
                        _command(commander, device)
                await broker.interrupt()
                outcome.broker_cuts += 1
            enough.set()
        await asyncio.to_thread(commander.close)
        await asyncio.gather(*(device.drain(commander.sent) for device in devices))
        came = await asyncio.to_thread(reader.read)
        _judge(outcome, devices, [identity for identity, payload in came if command_of(payload) is None])
        _judge_commands(outcome, devices, commander.sent, dict(came))
    finally:
        await broker.stop()
    return outcome


def _command(commander: Commander, device: Tormented) -> None:
    """One at a time: mosquitto forgets a client's Receive Maximum in a restart."""
    topic = f"{COMMANDS}/{device.name}"
    sent = [command for command in commander.sent if command.startswith(f"{topic} ")]
    if device.witness.has_subscribed and device.witness.answered.issuperset(sent):
        commander.send(topic)


def _judge(outcome: Outcome, devices: list[Tormented], came: list[str]) -> None:
    stored = set().union(*(device.stored() for device in devices))
    outcome.power_cuts = sum(device.power_cuts for device in devices)
    outcome.line_cuts = sum(device.line_cuts for device in devices)
    outcome.stored = len(stored)
    outcome.arrived = len(set(came))
    outcome.lost = len(stored - set(came))
    outcome.twice = len(came) - len(set(came))
    outcome.disorder = count_disorder(came)
    outcome.repeated = sum(device.witness.repeated for device in devices)
    for device in devices:
        outcome.violations += device.witness.violations


def _judge_commands(outcome: Outcome, devices: list[Tormented], sent: list[str], came: dict[str, bytes]) -> None:
    """Each command has one answer, which is a message with an identity of its own."""
    begun_anew = set().union(*(device.witness.begun_anew for device in devices))
    answers = Counter(command_of(payload) for payload in came.values())
    outcome.commands = len(sent)
    outcome.unanswered = sum(not answers[command] for command in sent)
    outcome.answered_twice = sum(answers[command] > 1 for command in sent if command not in begun_anew)
    outcome.begun_anew = len(begun_anew)


def count_disorder(came: list[str]) -> int:
    """How many messages came for the first time after a later one of the same device."""
    last: Counter[tuple[str, int]] = Counter()
    disorder = 0
    for identity in dict.fromkeys(came):
        origin, epoch, seq = decode_identity(identity)
        disorder += seq < last[origin, epoch]
        last[origin, epoch] = max(last[origin, epoch], seq)
    return disorder
