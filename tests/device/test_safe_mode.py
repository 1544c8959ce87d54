"""A configuration that cannot be used: the device says so wherever it can, and leaves its flash alone."""

import asyncio
import os
import select
import time
from pathlib import Path
from typing import Any

import pytest

from device.ports.uart import Uart
from device.safe_mode import WAIT_MS, Line
from tests.device.boards.powered import PLATFORMS, Board
from tests.device.firmware import DEADLINE_S, Firmware
from tests.device.serial_bridge import serial_line, uart
from tools.lab.micropython import MicroPython
from wire.link import Link, LinkLog

NOWHERE = {"path": "/nowhere/flash", "sector_count": 16}
ERASED = b"\xff" * 65_536


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
    [
        ({"interval_ms": "often"}, 'configuration: {config}: interval_ms is "often"'),
        ({"flash": NOWHERE}, "configuration: flash.path is /nowhere/flash"),
        ({"journal": "/nowhere/made"}, "configuration: journal is /nowhere/made, expected a file of this device's"),
        ({"network": {"ssid": "attic", "password": "p"}}, "configuration: network is an object, expected none: unix"),
    ],
    ids=["a key", "flash", "journal", "network"],
)
async def test_what_is_wrong_is_told_over_the_serial_link_and_flash_is_left_alone(
    change: dict[str, Any], told: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with serial_line() as line:
        device = Firmware(micropython, tmp_path, uart(line.near), **change)
        device.flash_path.write_bytes(ERASED)
        await device.start()
        assert (await hear(line.far)).startswith(told.format(config=device.config_path))
        await device.end()
        assert device.flash_path.read_bytes() == ERASED


async def test_flash_that_is_no_store_is_told_over_the_serial_link_and_left_alone(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with serial_line() as line:
        device = Firmware(micropython, tmp_path, uart(line.near))
        device.flash_path.write_bytes(b"a stranger's letter" * 4096)
        before = device.flash_path.read_bytes()
        await device.start()
        assert (await hear(line.far)).startswith("flash: ")
        await device.end()
        assert device.flash_path.read_bytes() == before


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"watchdog_ms": 10_000}, "configuration: watchdog_ms is 10000, expected at most 8388, which this board can"),
        ({"flash": {"path": "attic", "sector_count": 8}}, "attic"),
    ],
    ids=["watchdog", "flash"],
)
async def test_what_a_board_does_not_have_is_told_over_its_uart(
    platform: str, change: dict[str, Any], told: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with serial_line() as line:
        (tmp_path / "uart1").write_text(line.near)
        board = Board(platform, micropython, tmp_path, uart("1:4:5"), **change)
        await board.start()
        assert told in await hear(line.far)


@pytest.mark.parametrize(
    ("port", "told"),
    [
        ({"kind": "uart", "path": "line", "baud": 12_345}, "port.baud is 12345, expected a speed"),
        ({"kind": "tls", "host": "127.0.0.1", "port": 9, "ca": "/nowhere/ca.der"}, "port has ca /nowhere/ca.der"),
    ],
    ids=["speed", "certificate"],
)
async def test_port_that_cannot_be_used_ends_the_firmware_with_2(
    port: dict[str, Any], told: str, micropython: MicroPython, tmp_path: Path
) -> None:
    device = Firmware(micropython, tmp_path, port, status="status/garage")
    await device.start()
    code, lines = await device.ended()
    assert code == 2 and any(told in line for line in lines)


def test_line_that_has_hung_up_is_closed_until_it_is_opened_again() -> None:
    """A poll that went on looking at it would return at once, for ever."""
    master, slave = os.openpty()
    poller = select.poll()
    line = Line(Uart(os.ttyname(slave), 115_200, poller, boot_id=1))
    os.close(slave)
    line.advance(0, 0)
    os.close(master)
    ((_, ready),) = poller.poll(0)
    line.advance(ready, 10)
    assert poller.poll(0) == []
    assert line.next_timer_ms() == 10 + WAIT_MS
    line.advance(0, 10 + WAIT_MS)  # it is still gone
    assert line.next_timer_ms() == 10 + 2 * WAIT_MS


async def test_line_that_comes_back_is_told_again(micropython: MicroPython, tmp_path: Path) -> None:
    path = tmp_path / "ttyUSB0"
    device = Firmware(micropython, tmp_path, uart(str(path)), interval_ms="often")
    await device.start()
    for _ in range(2):
        async with serial_line() as line:
            path.symlink_to(line.near)
            assert "interval_ms is" in await hear(line.far)
            path.unlink()
    await device.end()


async def test_file_that_is_no_flash_is_refused_and_left_alone(micropython: MicroPython, tmp_path: Path) -> None:
    device = Firmware(micropython, tmp_path, {"kind": "tcp", "host": "127.0.0.1", "port": 9})
    device.flash_path.write_text("a stranger's letter")
    await device.start()
    code, lines = await device.ended()
    assert code == 2
    assert any("flash.path is" in line and "left alone" in line for line in lines)
    assert device.flash_path.read_text() == "a stranger's letter"
