"""What is gone from flash is told upstream, all of it and no more often than it must be."""

import json
from random import Random
from typing import Any

from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker

DROPPING = {"flash": {"path": "flash.bin", "sector_count": 6, "on_full": "drop_oldest"}}


def start(board: VirtualBoard, broker: ModelBroker, **change: Any) -> VirtualDevice:
    device = VirtualDevice(board, broker, **{**DROPPING, **change})
    broker.cut = device.port.cut
    return device


def overflow(device: VirtualDevice, count: int = 600) -> None:
    for _ in range(count):
        device.publish("doors/front", bytes(60))
    device.run(seconds=5)


def told(payloads: list[bytes]) -> list[tuple[int, int, int, str]]:
    packs = [json.loads(payload) for payload in payloads if b"gap.first" in payload]
    values = [{record["n"]: record.get("v", record.get("vs")) for record in pack} for pack in packs]
    return [(pack["gap.first"], pack["gap.last"], pack["gap.count"], pack["gap.reason"]) for pack in values]


def arrived(broker: ModelBroker) -> list[tuple[int, int, int, str]]:
    return told([bytes(message.payload) for message in broker.arrived])


def waiting(device: VirtualDevice) -> list[tuple[int, int, int, str]]:
    return told([message[4] for message in device.log.messages()])


def test_store_that_overflows_holds_one_message_about_it() -> None:
    board, broker = VirtualBoard(6), ModelBroker(takes=False)
    device = start(board, broker)
    device.run(seconds=5)
    for _ in range(8):
        overflow(device)
        assert len(waiting(device)) <= 1
    broker.takes = True
    device.port.cut()
    device.run(lambda: not device.log.gaps(), 3600)
    numbers = {number for first, last, _, _ in arrived(broker) for number in range(first, last + 1)}
    held_back = {number for number in range(1, device.log.last_id + 1) if number not in numbers}
    assert len(held_back) == len([m for m in broker.arrived if m.topic == "doors/front"]) + len(arrived(broker))


def test_gap_is_told_again_where_the_power_goes_before_it_has_arrived() -> None:
    board, broker = VirtualBoard(6), ModelBroker(takes=False)
    device = start(board, broker)
    device.run(seconds=5)
    overflow(device)
    gaps = device.log.gaps()
    assert gaps and waiting(device)
    device = start(board, broker)
    device.run(seconds=5)
    assert device.log.gaps()[0][:1] == gaps[0][:1]
    broker.takes = True
    device.port.cut()
    device.run(lambda: not device.log.gaps(), 3600)
    assert {gap[0] for gap in arrived(broker)} == {1}


def test_gap_that_comes_about_below_one_that_was_told_is_told_as_well(seed: int) -> None:
    """A torn record at the end is told; then the oldest messages, with lower numbers, give way."""
    board, broker = VirtualBoard(6), ModelBroker(takes=False)
    device = start(board, broker)
    for _ in range(40):
        device.publish("doors/front", bytes(60))
    at = len(board.flash.operations)
    device.publish("doors/front", bytes(60))
    assert len(board.flash.operations) == at + 1
    torn = board.flash.operations[-1]
    start_of = torn.sector * board.flash.sector_size + torn.offset
    board.flash.image[start_of + 40] ^= 0xFF & Random(seed).randrange(1, 256)  # it had been cut there
    device = start(board, broker)
    device.run(seconds=5)
    assert [reason for _, _, _, reason in waiting(device)] == ["torn"]
    while len(device.log.gaps()) < 2:
        device.publish("doors/front", bytes(60))
    dropped = device.log.gaps()[0]
    broker.takes = True
    device.port.cut()
    device.run(lambda: not device.log.gaps(), 3600)
    assert {reason for _, _, _, reason in arrived(broker)} == {"torn", "dropped"}
    assert dropped in arrived(broker)
