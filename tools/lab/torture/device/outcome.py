"""The outcome of a torture: compares what each device stored with what the broker holds for a subscriber."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from tools.lab.torture.device.life import Tormented
from tools.lab.torture.device.witness import command_of
from tools.lab.torture.outcome import Outcome, named
from wire.identity import decode_identity


@dataclass(kw_only=True)
class DeviceOutcome(Outcome):
    """What was done to a broker and its devices, and what came of the `messages` that devices stored."""

    broker: str
    qos: int
    arrived: int = 0
    told: int = 0  # that did not arrive, and the device tells of them, as its configuration has it
    resent: int = 0  # that came again because they went out in a second session
    commands: int = 0  # at QoS 2
    unanswered: int = 0
    answered_twice: int = 0
    begun_anew: int = 0  # commands that the broker sent again after their PUBREL, which the device cannot recognize
    overtaken: int = 0  # commands that the broker sent behind a later one, so that their answers are too late as well
    repeated: int = 0  # PUBLISH packets that a device sent again

    @property
    def holds(self) -> bool:
        messages = self.lost or self.disorder or (self.qos == 2 and self.twice)
        commands = self.unanswered or self.answered_twice or self.broker_faults
        return not (messages or commands or self.violations)

    @property
    def broker_faults(self) -> int:
        """What mosquitto does with commands now and then, and a gateway must not do."""
        return self.begun_anew + self.overtaken if self.broker == "gateway" else 0

    @property
    def cuts(self) -> int:
        """The faults but lost sessions."""
        return self.faults - self.struck["session"]


def judge(outcome: DeviceOutcome, devices: list[Tormented], came: list[tuple[str, bytes]]) -> None:
    """`came`: identity and payload of all that the broker holds, in its order."""
    for device in devices:
        own = [(identity, payload) for identity, payload in came if decode_identity(identity)[0] == device.name]
        outcome.struck.update(device.struck)
        outcome.repeated += device.witness.repeated
        outcome.violations += device.witness.violations
        _judge_messages(outcome, device, [one for one in own if command_of(one[1]) is None])
        _judge_commands(outcome, device, dict(own))


def _judge_messages(outcome: DeviceOutcome, device: Tormented, came: list[tuple[str, bytes]]) -> None:
    counts = Counter(identity for identity, _ in came)
    missing = device.stored() - counts.keys()
    told: set[str] = set()
    for first, last, count in _told_gaps((payload for _, payload in came), device.kind.reasons):
        inside = {identity for identity in missing if first <= decode_identity(identity)[2] <= last}
        if len(inside) > count:
            outcome.violations.append(
                f"{device.name} tells of {count} messages from {first} on, {len(inside)} are gone"
            )
        told |= inside
    again = {identity: count - 1 for identity, count in counts.items()}
    outcome.resent += sum(again.pop(identity, 0) for identity in device.witness.resent)
    outcome.twice += sum(again.values())
    outcome.messages += len(device.stored())
    outcome.arrived += len(counts)
    outcome.told += len(told)
    outcome.lost += len(missing - told)
    outcome.disorder += count_disorder(counts)
    twice = [identity for identity, count in again.items() if count] if outcome.qos == 2 else []
    outcome.violations += named(device.name, {"lost": _numbers(missing - told), "twice": _numbers(twice)})


def _judge_commands(outcome: DeviceOutcome, device: Tormented, came: dict[str, bytes]) -> None:
    """Each command has one answer, a message with its own identity. The answers have the order of the commands."""
    told = [command_of(came[identity]) for identity in sorted(came, key=lambda one: decode_identity(one)[2])]
    answers = [command for command in told if command is not None and command not in device.witness.begun_anew]
    counts = Counter(answers)
    outcome.commands += len(device.commands)
    expected = set(device.commands) - device.excused - device.witness.begun_anew
    outcome.unanswered += len(expected - counts.keys())
    outcome.answered_twice += sum(count > 1 for count in counts.values())
    outcome.begun_anew += len(device.witness.begun_anew)
    swapped = [
        (early, late)
        for early, late in combinations(answers, 2)
        if device.commands.index(late) < device.commands.index(early)
    ]
    by_broker = {late for early, late in swapped if _came_before(device.witness.heard, early, late)}
    outcome.overtaken += len(by_broker)
    if any(late not in by_broker for _, late in swapped):
        outcome.violations.append(f"{device.name} answered its commands in another order: {', '.join(answers)}")


def _came_before(heard: list[str], command: str, other: str) -> bool:
    """Returns whether the broker sent `command` before it sent `other` for the last time."""
    return command in heard and other in heard[heard.index(command) :]


def _told_gaps(payloads: Iterable[bytes], reasons: set[str]) -> list[tuple[int, int, int]]:
    """First and last message and count of what a device says is gone for these reasons."""
    told = []
    for payload in payloads:
        values = {record["n"]: record.get("v", record.get("vs")) for record in json.loads(payload)}
        if values.get("gap.reason") in reasons:
            told.append((values["gap.first"], values["gap.last"], values["gap.count"]))
    return told


def _numbers(identities: Iterable[str]) -> list[int]:
    return [decode_identity(identity)[2] for identity in identities]


def count_disorder(came: Iterable[str]) -> int:
    """How many messages came for the first time after a later one of the same device."""
    last: Counter[tuple[str, int]] = Counter()
    disorder = 0
    for identity in dict.fromkeys(came):
        origin, epoch, seq = decode_identity(identity)
        disorder += seq < last[origin, epoch]
        last[origin, epoch] = max(last[origin, epoch], seq)
    return disorder
