"""Several brokers in order, in virtual time, and a device that finds none."""

import binascii
import os
from typing import Any

import pytest

from device.mqtt.scram import METHOD
from tests.device.mqtt.publishing import arrived, drain, publish
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice, VirtualPort
from tests.support.model_broker import ModelBroker
from wire.codec.auth import Auth
from wire.codec.packets import Publish
from wire.packet_types import CONNECT
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from wire.reasons import CONTINUE_AUTHENTICATION, NOT_AUTHORIZED

FIRST, SECOND = ({"kind": "tcp", "host": host, "port": 1883} for host in ("first", "second"))
MINUTE = 60.0
NONCE_BYTES = 24  # of the device, in base64


class Fleet(VirtualDevice):
    """A device with two brokers; `used` is the port that it has opened last."""

    def __init__(self, board: VirtualBoard, first: ModelBroker, second: ModelBroker, **change: Any) -> None:
        self._brokers = {"first": first, "second": second}
        super().__init__(board, first, **{"port": [FIRST, SECOND], "qos": 2, **change})

    def _make_port(self, config: Any) -> VirtualPort:
        self.port = VirtualPort(self._brokers[config.host])
        self.port.name = config.host
        self._brokers[config.host].cut = self.port.cut
        return self.port

    def is_at_first(self) -> bool:
        return self.port.name == "first" and self.port.is_open


def test_device_goes_to_the_second_broker_and_returns_to_the_first() -> None:
    board, first, second = VirtualBoard(), ModelBroker(is_down=True), ModelBroker()
    device = Fleet(board, first, second)
    made = publish(device, 20)
    drain(device)
    assert arrived(second) == made and device.port.name == "second"
    first.is_down = False
    assert device.run(lambda: device.port.name == "first" and device.connects > 1, 11 * MINUTE)
    made = publish(device, 20)
    drain(device)
    assert arrived(first) == made


def test_first_broker_that_stays_away_is_looked_for_less_and_less_often() -> None:
    board, first, second = VirtualBoard(), ModelBroker(is_down=True), ModelBroker()
    device = Fleet(board, first, second)
    device.run(seconds=24 * 3600)
    assert device.port.name == "second"
    looks = sum("no broker at first" in line for line in board.lines)
    assert 10 <= looks <= 20


def test_device_rests_while_a_message_without_an_answer_keeps_it_from_the_first_broker() -> None:
    board, first, second = VirtualBoard(), ModelBroker(is_down=True), ModelBroker()
    device = Fleet(board, first, second)
    made = publish(device, 1)
    drain(device)
    second.takes = False
    publish(device, 1)
    device.run(seconds=30 * MINUTE)
    assert device.port.name == "second" and arrived(second) == made


def test_look_for_another_broker_leaves_no_doubt_about_the_session_of_this_one() -> None:
    """A PUBCOMP is lost with the connection; the first broker accepts a connection and never answers."""
    board, first, second = VirtualBoard(), ModelBroker(is_down=True), ModelBroker()
    device = Fleet(board, first, second)
    made = publish(device, 1)
    drain(device)
    second.packets_left = 2
    made += publish(device, 1)
    device.run(seconds=5 * MINUTE)
    assert arrived(second) == made and len(device.log) == 0


def test_session_of_a_broker_to_which_the_device_returns_is_begun_anew() -> None:
    """What the first has had a PUBREC for went to the second; its packet identifiers are other messages' by then."""
    board, first, second = VirtualBoard(), ModelBroker(completes=False), ModelBroker()
    for version in ("5", "3.1.1"):
        device = Fleet(board, first, second, mqtt_version=version)
        made = publish(device, 12)
        device.run(seconds=MINUTE)
        assert len(first.session.received) == 8
        first.is_down = True
        device.port.cut()
        drain(device)
        assert set(made) <= set(arrived(second))
        first.is_down = False
        first.completes = True
        assert device.run(device.is_at_first, 30 * MINUTE)
        device.run(seconds=MINUTE)
        assert not first.session.received
        device.log._writer.last_id += 65_535 - 12  # the packet identifiers come round
        made = publish(device, 12)
        drain(device)
        assert set(made) <= set(arrived(first))
        first.completes = False
        device.close()


def test_restart_between_two_brokers_forgets_which_was_the_last_of_neither() -> None:
    board, first, second = VirtualBoard(), ModelBroker(completes=False), ModelBroker()
    device = Fleet(board, first, second)
    made = publish(device, 8)
    device.run(seconds=MINUTE)
    first.is_down = True
    device.port.cut()
    device.run(lambda: device.port.name == "second" and device.port.is_open, MINUTE)
    device = Fleet(board, first, second)
    drain(device)
    assert set(made) <= set(arrived(second))
    first.is_down, first.completes = False, True
    device = Fleet(board, first, second)
    device.run(seconds=MINUTE)
    assert device.port.name == "first" and not first.session.received


def test_list_of_brokers_that_is_cut_to_one_loses_nothing() -> None:
    """The first has a session from before, and the second took messages that it never completed."""
    board, first, second = VirtualBoard(), ModelBroker(completes=False), ModelBroker()
    device = Fleet(board, first, second)
    publish(device, 3)
    device.run(seconds=MINUTE)
    first.is_down = True
    device.port.cut()
    drain(device)
    second.completes = False
    made = publish(device, 3)
    device.run(seconds=5)
    assert device.log.pubrecs() == made
    first.is_down, first.completes = False, True
    device = Fleet(board, first, second, port=FIRST)
    drain(device)
    assert arrived(first) == made


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_store_without_room_for_the_name_of_the_broker_stops_nothing(version: str) -> None:
    board, first, second = VirtualBoard(), ModelBroker(), ModelBroker()
    device = Fleet(board, first, second, mqtt_version=version)
    device.log.settings.set("another", bytes(1930))  # of 2 KiB that all settings have
    made = publish(device, 3)
    drain(device)
    assert arrived(first) == made and first.connects <= 2


@pytest.mark.parametrize("restarts", [False, True])
def test_what_one_broker_refused_is_no_proof_at_the_next_one(restarts: bool) -> None:
    """The first has refused a message as often as it may but once when it goes away."""

    def refuse_bad(message: Publish) -> int:
        return NOT_AUTHORIZED if message.topic == "doors/locked" else 0

    board, first, second = VirtualBoard(), ModelBroker(refuses=refuse_bad), ModelBroker(refuses=refuse_bad)
    device = Fleet(board, first, second)
    device.publish("doors/locked", b"bad", 1)
    while device.log.settings.get("refused") is None:
        publish(device, 1, 1)
        device.run(seconds=1)
    first.is_down = True
    if restarts:
        device.close()
        device = Fleet(board, first, second)
    else:
        device.port.cut()
    publish(device, 1, 1)
    assert device.run(lambda: len(device.log) == 1, MINUTE) and device.port.name == "second"
    assert device.run(lambda: sum(one.topic == "doors/locked" for one in second.publishes) == 2, MINUTE)
    second.refuses = lambda _message: 0
    drain(device)
    assert [one.payload for one in second.arrived if one.topic == "doors/locked"] == [b"bad"]


class Salty(VirtualPort):
    """At its end each SCRAM login gets a salt of its own, as at a broker that does not know the user."""

    def send(self, data: bytes, now_ms: int) -> None:
        if data[0] >> 4 == CONNECT:
            nonce = data.partition(b",r=")[2][:NONCE_BYTES]
            told = b"r=" + nonce + b"XX,s=" + binascii.b2a_base64(os.urandom(16)).strip() + b",i=4096"
            properties = {AUTHENTICATION_METHOD: METHOD, AUTHENTICATION_DATA: told}
            self.coming.append(Auth(CONTINUE_AUTHENTICATION, properties).encode())


class SaltyFleet(Fleet):
    def _make_port(self, config: Any) -> VirtualPort:
        if config.host == "second":
            return super()._make_port(config)
        self.port = Salty(self._brokers[config.host])
        self.port.name = config.host
        return self.port


def test_broker_that_tells_another_salt_with_each_login_keeps_no_device_from_the_next_one() -> None:
    board, first, second = VirtualBoard(), ModelBroker(), ModelBroker()
    login = {"user": "shed", "password": "pencil", "authentication": "scram-sha-256"}
    device = SaltyFleet(board, first, second, port=[{**FIRST, **login}, SECOND])
    made = publish(device, 3)
    drain(device)
    assert arrived(second) == made
    names = device.log.settings.keys()
    assert not any(name.startswith("scram") for name in names), "no login has proved the keys"


def test_device_without_a_connection_starts_anew() -> None:
    board, broker = VirtualBoard(), ModelBroker()
    device = VirtualDevice(board, broker, restart_after_s=600)
    device.run(seconds=3600)
    assert not board.restarts, "it is connected"
    broker.is_down = True
    device.port.cut()
    assert not device.run(seconds=599) and not board.restarts
    device.run(seconds=2)
    assert [board.restarts, device.has_ended] == [1, True]
    assert any("no connection for 600 s: it starts anew" in line for line in board.lines)
