"""QoS 2 from flash: a message goes out until its PUBREC, and that is durable before the PUBREL."""

from pathlib import Path
from typing import Any

import pytest

from tests.device.firmware import Firmware, eventually, published, reached, records, seqs, tcp
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tools.lab.micropython import MicroPython
from wire.codec.packets import Publish


def ten(vm: MicroPython, folder: Path, port: int, **change: Any) -> Firmware:
    """A device that makes a few messages and then only sends."""
    return Firmware(vm, folder, tcp(port), **{"qos": 2, "readings_limit": 24, **change})


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_each_message_is_published_and_released_once(
    version: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        device = ten(micropython, tmp_path, broker.port, mqtt_version=version)
        await device.start()
        await device.says("all 24 readings made")
        made = len(device.journal())
        await eventually(lambda: bool(broker.pubrels) and len(broker.pubrels[0]) == made)
        await device.end()
        publishes = broker.publishes[0]
        assert [publish.qos for publish in publishes] == [2] * made
        assert broker.pubrels[0] == [publish.packet_identifier for publish in publishes]
        assert broker.connects[0].protocol_level == (5 if version == "5" else 4)


def take_two(publish: Publish) -> int | None:
    return 0 if publish.packet_identifier in (2, 3) else None


async def die_after_two(device: Firmware, broker: ScriptedBroker) -> int:
    """Runs until the broker waits for two PUBCOMPs, and cuts the power; returns how many messages were made."""
    await device.start()
    await device.says("all 24 readings made")
    await eventually(lambda: broker.pubrels[:1] == [[2, 3]])
    made = len(device.journal())
    await device.kill()
    await broker.all_closed()
    return made


async def test_after_a_power_cut_pubrels_come_first_and_then_the_rest_with_dup(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker(puback=take_two, pubcomp=False) as broker:
        device = ten(micropython, tmp_path, broker.port)
        made = await die_after_two(device, broker)
        broker.session_present, broker.pubcomp, broker.puback = True, True, lambda _publish: 0
        await device.start()
        await eventually(lambda: len(broker.pubrels) == 2 and len(broker.pubrels[1]) == made)
        await device.end()
        assert broker.pubrels[1][:2] == [2, 3]
        assert seqs(broker.publishes[1]) == list(range(3, made + 1))
        assert all(publish.dup for publish in broker.publishes[1])
        assert [publish.packet_identifier for publish in broker.publishes[1]] == list(range(4, made + 2))


@pytest.mark.parametrize(
    ("choice", "first", "gap"),
    [
        ({"lost_session": "drop"}, 3, {"gap.first": 1, "gap.last": 2, "gap.count": 2, "gap.reason": "forsaken"}),
        ({"lost_session": "resend"}, 1, {}),
        ({}, 1, {}),
    ],
)
async def test_what_had_its_pubrec_is_forsaken_with_a_gap_or_resent_where_the_session_is_lost(
    choice: dict[str, str], first: int, gap: dict[str, Any], micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker(puback=take_two, pubcomp=False) as broker:
        device = ten(micropython, tmp_path, broker.port, **choice)
        made = await die_after_two(device, broker)
        broker.puback = silent
        await device.start()
        await published(broker, 1, min(8, made - first + 1))
        assert seqs(broker.publishes[1])[0] == first
        assert not broker.pubrels[1] and not any(publish.dup for publish in broker.publishes[1])
        await device.kill()
        await broker.all_closed()
        broker.session_present, broker.pubcomp, broker.puback = True, True, lambda _publish: 0
        await device.start()
        due = made - first + 1 + bool(gap)
        await eventually(lambda: len(broker.pubrels) == 3 and len(broker.pubrels[2]) >= due)
        await device.end()
        assert seqs(broker.publishes[2])[: made - first + 1] == list(range(first, made + 1)), "it needs PUBRECs anew"
        told = [record for publish in broker.publishes[2] for record in records(publish)]
        assert {r["n"]: r.get("v", r.get("vs")) for r in told if r["n"].startswith("gap.")} == gap


async def test_broker_that_grants_qos_1_gets_qos_1_with_the_identity_and_it_is_said_once(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker(maximum_qos=1) as broker:
        device = ten(micropython, tmp_path, broker.port)
        await device.start()
        await device.says("takes QoS 1 at most")
        await eventually(lambda: device.made() == 24)
        await reached(broker, 0, len(device.journal()))
        lines = await device.end()
        assert {publish.qos for publish in broker.publishes[0]} == {1}
        assert seqs(broker.publishes[0]) == list(range(1, len(device.journal()) + 1))
        assert sum("QoS 1 at most" in line for line in lines) == 1


async def test_qos_0_stays_in_ram(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), qos=0, journal=None)
        await device.start()
        await published(broker, 0, 12)
        await device.end()
        assert {publish.qos for publish in broker.publishes[0]} == {0}
        assert b"load" not in device.flash_path.read_bytes()
