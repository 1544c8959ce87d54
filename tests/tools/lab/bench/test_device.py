"""The device's measurements: a compiled firmware runs in a limited heap and says what it did."""

from pathlib import Path
from typing import Any

import pytest

from tools.cli.device import build
from tools.lab.bench.device.figures import BAR_KIB
from tools.lab.bench.device.run import Board
from tools.lab.micropython import MicroPython, MicroPythonUnavailable, find_32_bit
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.process import ProcessFailed


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a build, which is no part of a test, whose time is limited."""
    folder = tmp_path_factory.mktemp("firmware")
    build.build_board(build.Board.UNIX, folder)
    return folder


async def test_a_compiled_device_empties_its_flash_and_dies_in_a_heap_too_small(
    firmware: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        board = Board(tmp_path, firmware / build.LIB, broker.port, client_id="bench", qos=2)
        assert await board.run(micropython, 16, 200) is None
        traffic = await board.run(micropython, 512, 200)
    finally:
        broker.stop()
    assert traffic is not None and traffic.first_publish is not None
    assert board.made() >= 200
    assert traffic.up > 200 * len('{"n":"load","v":0}')


async def test_a_device_that_fails_for_another_reason_than_its_heap_is_an_error_and_no_figure(
    firmware: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    broken = Board(tmp_path, firmware / build.LIB, 1, client_id="bench", qos=7)
    with pytest.raises(ProcessFailed, match=r"the device has ended: .*qos is 7"):
        await broken.run(micropython, 512, 200)
    slow = Board(tmp_path, firmware / build.LIB, 1, client_id="bench")
    with pytest.raises(ProcessFailed, match=r"the device has made \d+ of 100000 readings in 0\.5 s"):
        await slow.run(micropython, 512, 100_000, stuck_s=0.5)


async def test_device_runs_in_place_in_64_kib_of_a_32_bit_board(image: Path, tmp_path: Path) -> None:
    """Three sensors, QoS 2; it starts a second time on a store that has wrapped, in the session that it had."""
    try:
        vm = find_32_bit()
    except MicroPythonUnavailable as error:
        pytest.skip(f"no words of 32 bits here: {error}")
    await run_twice(vm, image, tmp_path)


async def test_device_with_commands_and_status_runs_in_place_in_64_kilowords(
    image: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    await run_twice(
        micropython, image, tmp_path, commands="to/in-place", status="status/in-place", health_interval_ms=1000
    )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / build.IMAGE
    path.write_bytes(build.make_image(build.Board.UNIX))
    return path


async def run_twice(vm: MicroPython, image: Path, folder: Path, **keys: Any) -> None:
    flash = {"path": str(folder / "flash.bin"), "sector_count": 8}
    broker = Mosquitto(folder)
    broker.start()
    try:
        board = Board(folder, image, broker.port, client_id="in-place", qos=2, flash=flash, **keys)
        assert await board.run(vm, 512, 1) is not None  # to make the file takes more
        for readings in (700, 1400):
            traffic = await board.run(vm, BAR_KIB, readings)
            assert traffic is not None and traffic.first_publish is not None
    finally:
        broker.stop()
    assert board.made() >= 1400
