"""The device's measurements: a compiled firmware runs in a limited heap and says what it did."""

import asyncio
from pathlib import Path

from tools import device_build
from tools.bench.device_run import Board
from tools.micropython import MicroPython
from tools.romfs import encode_image
from tools.sim.mosquitto import Mosquitto


def test_a_compiled_device_empties_its_flash_and_dies_in_a_heap_too_small(
    micropython: MicroPython, tmp_path: Path
) -> None:
    firmware = tmp_path / "firmware"
    device_build.build_board(device_build.Board.UNIX, firmware)
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        board = Board(tmp_path, firmware, broker.port, client_id="bench", qos=2)
        assert asyncio.run(board.run(micropython, 16, 200)) is None
        traffic = asyncio.run(board.run(micropython, 512, 200))
    finally:
        broker.stop()
    assert traffic is not None and traffic.first_publish is not None
    assert board.made() >= 200
    assert traffic.up > 200 * len('{"n":"load","v":0}')


def test_device_runs_in_place_in_a_heap_too_small_for_its_modules(micropython: MicroPython, tmp_path: Path) -> None:
    image = tmp_path / device_build.IMAGE
    image.write_bytes(encode_image(device_build.compile_board(device_build.Board.UNIX, keeps_names=False)))
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        board = Board(tmp_path, image, broker.port, client_id="in-place", qos=2)
        traffic = asyncio.run(board.run(micropython, 100, 200))
    finally:
        broker.stop()
    assert traffic is not None and traffic.first_publish is not None
    assert board.made() >= 200
