"""A message that a real mosquitto does not take, on a real MicroPython: by its access rules, or by its size."""

import json
import queue
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from tests.device.firmware import Firmware, tcp
from tests.support.subscriber import subscriber
from tools.lab.micropython import MicroPython
from tools.lab.testing.mosquitto import Mosquitto

GOOD, BAD, ALL = "doors/front", "doors/locked", "#"
PROGRAM = """
import device.mqtt
device.mqtt.RETRY_LONGEST_MS = 500  # so that the test does not take long
import device.library as holdfast
holdfast.start({config!r})
holdfast.publish({bad!r}, bytes({size}), 2)
number = 0
while True:
    if number < 2000:
        number += 1
        holdfast.publish({good!r}, b"%d" % number, 2)
    for _ in range(20):
        holdfast.advance(10)
"""


@pytest.mark.parametrize(
    ("lines", "version", "reason"),
    [
        ("acl_file {folder}/acl", "5", "not authorized (0x87)"),
        ("max_packet_size 400", "5", "the peer takes 400"),
        ("max_packet_size 400", "3.1.1", "the broker takes others"),
    ],
    ids=["access rules", "Maximum Packet Size", "a closed connection"],
)
async def test_it_is_set_aside_and_the_others_arrive(
    lines: str, version: str, reason: str, micropython: MicroPython, tmp_path: Path
) -> None:
    (tmp_path / "acl").write_text(f"topic readwrite {GOOD}\ntopic readwrite telemetry/#\ntopic read #\n")
    broker = Mosquitto(tmp_path, lines.format(folder=tmp_path))
    broker.start()
    try:
        with subscriber(broker.port, ALL, 2) as received:
            change: dict[str, Any] = {"mqtt_version": version, "sensors": [], "journal": None}
            device = Firmware(micropython, tmp_path, tcp(broker.port), **change)
            config = str(device.config_path)
            device.argv[-1] = PROGRAM.format(config=config, bad=BAD, good=GOOD, size=500)
            await device.start()
            said = await device.says("is set aside: ")
            await device.says("connected")
            numbers, gap = heard(received)
            await device.end()
    finally:
        broker.stop()
    assert reason in said
    assert numbers == list(range(1, len(numbers) + 1)), "the others arrive, once and in order"
    assert gap == {"gap.first": 1, "gap.last": 1, "gap.count": 1, "gap.reason": "rejected"}


def heard(received: "queue.Queue[MQTTMessage]") -> tuple[list[int], dict[str, Any]]:
    """Up to the message that tells of the gap."""
    numbers: list[int] = []
    while True:
        message = received.get(timeout=20)
        if message.topic == GOOD:
            numbers.append(int(message.payload))
        else:
            assert message.topic != BAD
            return numbers, {record["n"]: record.get("v", record.get("vs")) for record in json.loads(message.payload)}
