"""A device in virtual time that publishes to a model broker, and what a test looks at of both."""

import json
from typing import Any

import pytest

from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker
from wire.codec import frame
from wire.identity import IDENTITY_PROPERTY, decode_identity, find_user_property

TOPIC = "doors/front"


def start(board: VirtualBoard, broker: ModelBroker, **change: Any) -> VirtualDevice:
    """At QoS 2, unless `change` says something else."""
    device = VirtualDevice(board, broker, **{"qos": 2, **change})
    broker.cut = device.port.cut
    return device


def publish(device: VirtualDevice, count: int, qos: int = 2) -> list[int]:
    """Messages with their own numbers, which are returned."""
    return [device.publish(TOPIC, b"%d" % (device.log.last_id + 1), qos) for _ in range(count)]


def drain(device: VirtualDevice) -> None:
    """Until the store is empty."""
    assert device.run(lambda: not len(device.log), 3600), device.board.lines[-3:]
    device.log.flush()


def rest(device: VirtualDevice) -> None:
    device.run(seconds=5)


def arrived(broker: ModelBroker) -> list[int]:
    """The numbers of the messages that were delivered."""
    return [int(message.payload) for message in broker.arrived if message.topic == TOPIC]


def origins(broker: ModelBroker) -> list[str]:
    """Under whose name each message arrived."""
    identities = [find_user_property(message.properties, IDENTITY_PROPERTY) for message in broker.arrived]
    return [decode_identity(identity)[0] for identity in identities if identity is not None]


def gaps(broker: ModelBroker) -> list[tuple[int, int, int, str]]:
    """As they were told."""
    told = [json.loads(message.payload) for message in broker.arrived if b"gap.first" in message.payload]
    packs = [{record["n"]: record.get("v", record.get("vs")) for record in pack} for pack in told]
    return [(p["gap.first"], p["gap.last"], p["gap.count"], p["gap.reason"]) for p in packs]


def fill_heap(monkeypatch: pytest.MonkeyPatch, bytes_free: int) -> None:
    """From now on a larger packet raises MemoryError, as on a board."""

    def frame_in_heap(first_byte: int, *parts: bytes) -> bytes:
        if sum(map(len, parts)) > bytes_free:
            raise MemoryError(f"memory allocation failed, allocating {sum(map(len, parts))} bytes")
        return frame(first_byte, *parts)

    monkeypatch.setattr("wire.codec.publish.frame", frame_in_heap)
