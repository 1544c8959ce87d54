"""The firmware as `holdfast device build` makes it."""

from pathlib import Path

from tests.device.firmware import Firmware, published, tcp
from tests.support.scripted_broker import scripted_broker
from tools.device_build import Board, build_board
from tools.micropython import MicroPython


async def test_built_firmware_delivers_readings(micropython: MicroPython, tmp_path: Path) -> None:
    build_board(Board.UNIX, tmp_path / "lib")
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        device._environment["MICROPYPATH"] = f"{tmp_path / 'lib'}:.frozen"
        await device.start()
        await published(broker, 0, 10)
        await device.end()
