"""A configuration that cannot be used: the device says so wherever it can, and leaves its flash alone."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.device.firmware import DEADLINE_S, Firmware
from tools.micropython import MicroPython
from tools.sim.serial_line import SerialLine
from wire.link import Link, LinkLog

NOWHERE = {"path": "/nowhere/flash", "sector_count": 16}


async def hear(path: str) -> str:
    """The first line that comes over a serial link."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    link = Link(1)
    try:
        async with asyncio.timeout(DEADLINE_S):
            link.open(0)
            while True:
                os.write(descriptor, link.data_to_send())
                try:
                    link.receive_data(os.read(descriptor, 4096), int(time.monotonic() * 1000))
                except BlockingIOError:
                    await asyncio.sleep(0.01)
                while (event := link.next_event()) is not None:
                    if isinstance(event, LinkLog):
                        return event.data.decode()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"interval_ms": "often"}, 'interval_ms is "often"'), ({"flash": NOWHERE}, "flash.path is /nowhere/flash")],
)
async def test_what_is_wrong_is_told_over_the_serial_link_and_flash_is_left_alone(
    change: dict[str, Any], told: str, micropython: MicroPython, tmp_path: Path
) -> None:
    line = SerialLine()
    line.open()
    try:
        uart = {"kind": "uart", "path": line.near, "baud": 115_200}
        device = Firmware(micropython, tmp_path, uart, **change)
        device.flash_path.write_bytes(b"\xff" * 65_536)
        await device.start()
        assert told in await hear(line.far)
        await device.end()
        assert device.flash_path.read_bytes() == b"\xff" * 65_536
    finally:
        line.close()


async def test_file_that_is_no_flash_is_refused_and_left_alone(micropython: MicroPython, tmp_path: Path) -> None:
    device = Firmware(micropython, tmp_path, {"kind": "tcp", "host": "127.0.0.1", "port": 9})
    device.flash_path.write_text("somebody's letter")
    await device.start()
    code, lines = await device.ended()
    assert code == 2
    assert any("flash.path is" in line and "left alone" in line for line in lines)
    assert device.flash_path.read_text() == "somebody's letter"
