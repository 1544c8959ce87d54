"""What a device tells of itself, and how it lives with little: status, safe mode, gaps, sleep."""

import json
import subprocess
from pathlib import Path
from typing import Any

from flash_store.devices.file import FileFlash
from flash_store.log import Log
from tests.device.firmware import Firmware, eventually, published, records, seq, tcp
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tools.lab.micropython import MicroPython
from tools.lab.testing.ports import free_port
from wire.codec.packets import Publish

STATUS = {"topic": "status/garage", "retain": False}


async def test_status_is_said_with_each_connection_and_left_as_a_will(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), status=STATUS)
        await device.start()
        await published(broker, 0, 3)
        await device.end()
        will = broker.connects[0].will
        assert will is not None and (will.topic, json.loads(will.payload)) == (STATUS["topic"], {"status": "lost"})
        first = broker.publishes[0][0]
        said = json.loads(first.payload)
        assert (first.topic, first.qos, said["status"], said["boot"]) == (STATUS["topic"], 1, "online", 1)


async def test_bad_configuration_is_said_at_the_status_topic_and_flash_is_left_alone(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), status=STATUS, interval_ms="often")
        await device.start()
        await device.says("interval_ms is")
        await published(broker, 0, 1)
        await device.end()
        assert not broker.connects[0].clean_start, "the broker keeps the session as it is"
        assert 'interval_ms is "often"' in json.loads(broker.publishes[0][0].payload)["error"]
        assert not device.flash_path.exists()


async def test_what_was_dropped_is_told_as_readings(micropython: MicroPython, tmp_path: Path) -> None:
    flash = {"path": str(tmp_path / "small.bin"), "sector_count": 6, "on_full": "drop_oldest"}
    port = free_port()
    device = Firmware(micropython, tmp_path, tcp(port), flash=flash, interval_ms=1)
    await device.start()
    await device.says("no broker")
    await eventually(lambda: len(device.journal()) > 120)
    await device.kill()
    async with scripted_broker() as broker:
        device.change(port=tcp(broker.port), interval_ms=1000)
        await device.start()
        await eventually(lambda: any(b"gap.first" in p.payload for ps in broker.publishes for p in ps))
        await device.end()
        packs = [records(p) for p in broker.publishes[0]]
        gap = next(readings(pack) for pack in packs if pack[0]["n"] == "gap.first")
        assert gap["gap.first"] == 1 and gap["gap.reason"] == "dropped"
        assert gap["gap.count"] == gap["gap.last"]


async def test_a_gap_is_told_at_once_also_where_there_is_nothing_else_to_send(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), readings_limit=1)
        flash = FileFlash(str(device.flash_path), sector_count=16)
        Log.format(flash, 7)
        log = Log(flash)
        log.forsake([log.append("telemetry/garage", b"gone")])
        flash.close()
        device.journal_path.write_text("00000007 1 1\n")
        await device.start()
        await eventually(lambda: any(b"gap.first" in p.payload for ps in broker.publishes for p in ps))


def test_every_number_that_is_gone_is_told_also_where_the_news_of_it_is_dropped_itself() -> None:
    board, broker = VirtualBoard(6), ScriptedBroker(puback=lambda _publish: None, session_present=True)
    flash = {"path": "flash.bin", "sector_count": 6, "on_full": "drop_oldest"}
    device = VirtualDevice(board, broker, flash=flash)

    def overload(messages: int) -> None:
        for _ in range(messages):
            device.publish("filling", bytes(900))
            device.run(seconds=0.1)

    overload(40)
    assert told_gaps(device), "it is stored"
    overload(40)
    device = VirtualDevice(board, broker, flash=flash)  # the power was cut
    overload(40)
    broker.puback = lambda _publish: 0
    device.port.cut()
    assert device.run(lambda: not len(device.log) and not device.log.gaps(), 3600)
    arrived = [publish for publishes in broker.publishes for publish in publishes if publish.qos]
    known = {seq(publish) for publish in arrived}
    for publish in arrived:
        if b"gap.first" in publish.payload:
            gap = readings(records(publish))
            known |= set(range(gap["gap.first"], gap["gap.last"] + 1))
    assert known == set(range(1, device.log.last_id + 1))


def told_gaps(device: VirtualDevice) -> list[bytes]:
    return [payload for _, _, _, _, payload in device.log.messages() if b"gap.first" in payload]


def readings(pack: list[dict[str, Any]]) -> dict[str, Any]:
    return {record["n"]: record.get("v", record.get("vs")) for record in pack}


def test_device_that_leaves_says_so_and_its_will_is_not_needed() -> None:
    restart = Publish("commands/garage", b'{"command": "restart"}', 2, False, False, 7, {})
    board, broker = VirtualBoard(), ScriptedBroker(commands=[restart])
    device = VirtualDevice(board, broker, status=STATUS, commands="commands/garage")
    assert not device.run(seconds=60) and device.has_ended
    said = [json.loads(p.payload)["status"] for p in broker.publishes[0] if p.topic == STATUS["topic"]]
    assert said == ["online", "offline"]
    assert [disconnect.reason_code for disconnect in broker.disconnects] == [0]


def test_device_with_duty_sleeps_as_soon_as_its_samples_are_sent(micropython: MicroPython, tmp_path: Path) -> None:
    """On a machine that keeps the program through a sleep the power is cut there."""
    port = free_port()
    duty = {"connect_every": 2, "awake_ms": 1000}
    device = Firmware(micropython, tmp_path, tcp(port), duty=duty, interval_ms=10_000, journal=None)
    program = (
        "import device.main, device.boards\n"
        "naps = []\n"
        "def sleep(ms, kept):\n"
        "    print(ms, len(kept))\n"
        "    raise SystemExit(0)\n"
        "device.boards.board.deep_sleep = sleep\n"
        f"device.main.main({str(device.config_path)!r})\n"
    )
    done = subprocess.run(
        [*device.argv[:-1], program], env=device.environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    sleep_ms, kept = map(int, done.stdout.splitlines()[-1].split())
    assert 7000 < sleep_ms <= 9000 and kept > 40
