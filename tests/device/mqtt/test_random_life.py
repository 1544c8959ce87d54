"""Random lives in virtual time: power, line and sessions go at any moment, stores fill, brokers fall silent.

Then there is peace: what was stored has arrived, or a gap tells of it, and the broker waits for nothing more.
"""

import contextlib
import json
import random
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from flash_store.errors import StoreFull
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker
from tools.lab.sim.nor import PowerCut
from wire.codec.packets import Publish

LIVES = 12
STEPS = 40
TOPIC, COMMANDS = "doors/front", "commands/garage"


@dataclass
class Kind:
    """What may happen, and what the device is told to do about it."""

    sectors: int
    qos: int
    version: str
    on_full: str
    lost_session: str
    receive_maximum: int
    takes_commands: bool
    loses_sessions: bool
    loses_power: bool

    def keys(self) -> dict[str, Any]:
        flash = {"path": "flash.bin", "sector_count": self.sectors, "on_full": self.on_full}
        keys = {"flash": flash, "qos": self.qos, "mqtt_version": self.version, "lost_session": self.lost_session}
        return {**keys, "commands": COMMANDS} if self.takes_commands else keys

    @property
    def may_drop(self) -> bool:
        return self.on_full == "drop_oldest" or (self.lost_session == "drop" and self.loses_sessions)

    @property
    def may_repeat(self) -> bool:
        """Nothing but a mark tells whether the session is another one, where a CONNACK was lost."""
        return self.qos == 1 or self.loses_sessions or (self.version == "5" and not self.takes_commands)


def any_kind(chance: Random) -> Kind:
    kind = Kind(
        sectors=chance.choice((6, 8, 12)),
        qos=chance.choice((1, 2, 2)),
        version=chance.choice(("5", "5", "3.1.1")),
        on_full=chance.choice(("reject_new", "drop_oldest")),
        lost_session=chance.choice(("resend", "drop")),
        receive_maximum=chance.choice((1, 4, 65_535)),
        takes_commands=chance.random() < 0.6,
        loses_sessions=chance.random() < 0.5,
        loses_power=True,
    )
    if kind.qos == 2 and kind.loses_sessions and not kind.takes_commands:
        kind.loses_power = False  # the power would take with it what was seen of the session
    if kind.qos == 2 and kind.version == "3.1.1":
        kind.loses_sessions = False  # 3.1.1 cannot tell that a CONNACK was lost
    return kind


class Life:
    """One device, one broker, and what is known of both."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        random.seed(seed)  # the device's own chance
        self.kind = any_kind(self.chance)
        self.board = VirtualBoard(self.kind.sectors, seed)
        self.broker = ModelBroker(receive_maximum=self.kind.receive_maximum)
        self.stored: list[int] = []
        self.commands: list[bytes] = []
        self.device = self.start()

    def start(self) -> VirtualDevice:
        device = VirtualDevice(
            self.board, self.broker, lambda _topic, payload: {"did": payload.decode()}, **self.kind.keys()
        )
        self.broker.cut = device.port.cut
        return device

    def live(self) -> None:
        for _ in range(STEPS):
            try:
                self.disturb()
                with contextlib.suppress(StoreFull):
                    for _ in range(self.chance.choice((0, 1, 5, 60))):
                        self.publish()
                self.device.run(seconds=self.chance.choice((0.1, 1, 30)))
            except PowerCut:
                self.device = self.restart()

    def restart(self) -> VirtualDevice:
        self.board.cut_power_at(None, self.chance)
        return self.start()

    def publish(self) -> None:
        size = self.chance.choice((10, 100, 400))
        number = self.device.log.last_id + 1
        assert self.device.publish(TOPIC, b"%0*d" % (size, number), self.kind.qos) == number
        self.stored.append(number)

    def disturb(self) -> None:
        kind, broker, chance = self.kind, self.broker, self.chance
        what = chance.choice(
            ("line", "packet", "power", "reset", "silence", "silence", "completion", "session", "command")
        )
        if what == "line":
            self.device.port.cut()
        elif what == "packet":
            broker.packets_left = chance.randrange(1, 12)
        elif what == "power" and kind.loses_power:
            self.board.cut_power_at(chance.randrange(1, 60), chance)
        elif what == "reset" and kind.loses_power:
            self.device = self.restart()
        elif what == "silence":
            broker.takes = not broker.takes
            self.device.port.cut()  # a broker that has passed over something goes on only over another connection
        elif what == "completion":
            broker.completes = not broker.completes
            self.device.port.cut()
        elif what == "session" and kind.loses_sessions:
            broker.forget()
            broker.packets_left = chance.choice((None, 1, 2))
            self.device.port.cut()
        elif what == "command" and COMMANDS in broker.session.filters and not broker.session.coming:
            self.command()

    def command(self) -> None:
        if self.device.port.is_open:
            self.commands.append(b"command %d" % len(self.commands))
            identifier = len(self.commands) % 7 + 1
            self.device.port.command(Publish(COMMANDS, self.commands[-1], 2, False, False, identifier, {}))

    def rest(self) -> None:
        """In peace, until nothing is left to do."""
        broker = self.broker
        broker.takes = broker.completes = True
        broker.packets_left = None
        self.board.cut_power_at(None, self.chance)
        self.device.port.cut()
        if self.kind.loses_power:
            self.device = self.restart()
        self.device.run(self.is_done, seconds=36_000)
        assert self.is_done(), f"{len(self.device.log)} messages wait; {self.board.lines[-4:]}"

    def is_done(self) -> bool:
        return self.device.connects > 0 and not (
            len(self.device.log) or self.device.log.gaps() or self.broker.session.coming
        )

    def judge(self) -> None:
        arrived = [int(message.payload) for message in self.broker.arrived if message.topic == TOPIC]
        missing = set(self.stored) - set(arrived)
        told = {number for first, last in self.told() for number in range(first, last + 1)}
        assert missing <= told, f"lost: {sorted(missing - told)[:9]}"
        assert self.kind.may_drop or not missing, f"dropped: {sorted(missing)[:9]}"
        firsts = list(dict.fromkeys(arrived))
        assert firsts == sorted(firsts), "out of order"
        twice = [number for number, count in Counter(arrived).items() if count > 1]
        assert self.kind.may_repeat or not twice, f"twice: {twice[:9]}"
        assert not self.broker.session.received, "packet identifiers are left"
        answers = {json.loads(m.payload).get("did") for m in self.broker.arrived if m.topic.endswith("/answer")}
        if not self.kind.may_drop and not self.kind.loses_sessions:
            assert {command.decode() for command in self.commands} <= answers, "a command is not answered"

    def told(self) -> list[tuple[int, int]]:
        packs = [json.loads(message.payload) for message in self.broker.arrived if b"gap.first" in message.payload]
        values = [{record["n"]: record.get("v") for record in pack} for pack in packs]
        return [(pack["gap.first"], pack["gap.last"]) for pack in values]


@pytest.mark.parametrize("number", range(LIVES))
def test_whatever_happens_what_was_stored_arrives_or_is_told(number: int, seed: int) -> None:
    life = Life(seed + number)
    print(seed + number, life.kind)
    life.live()
    life.rest()
    life.judge()
