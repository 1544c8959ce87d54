"""What a device tells of itself, and how it lives with little: status, safe mode, gaps, sleep."""

import json
import subprocess
from pathlib import Path

from tests.device.firmware import Firmware, eventually, published, records, tcp
from tests.support.mosquitto import free_port
from tests.support.scripted_broker import scripted_broker
from tools.micropython import MicroPython

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
        assert (first.topic, first.qos, said["status"], said["boot"]) == (STATUS["topic"], 0, "online", 1)


async def test_bad_configuration_is_said_at_the_status_topic_and_flash_is_left_alone(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), status=STATUS, interval_ms="often")
        await device.start()
        await device.says("interval_ms is")
        await published(broker, 0, 1)
        await device.end()
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
        gap = next({r["n"]: r.get("v", r.get("vs")) for r in pack} for pack in packs if pack[0]["n"] == "gap.first")
        assert gap["gap.first"] == 1 and gap["gap.reason"] == "dropped"
        assert gap["gap.count"] == gap["gap.last"]


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
