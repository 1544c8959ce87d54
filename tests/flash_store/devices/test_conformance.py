"""One conformance suite, every kind of flash; on CPython here, and the store on the real VM at the end."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from flash_store.errors import DeviceFailed
from flash_store.log import Log, is_blank
from tests.flash_store.devices.board import KINDS, SECTORS
from tests.flash_store.devices.conftest import SHIM
from tests.flash_store.devices.on_micropython import use
from tests.flash_store.support import read
from tools.lab.micropython import MicroPython

PROGRAM = str(Path(__file__).with_name("on_micropython.py"))


@pytest.fixture(params=KINDS)
def flash(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


def test_a_new_device_reads_as_erased_and_tells_its_geometry(flash: Any) -> None:
    assert (flash.ioctl(4, 0), flash.ioctl(5, 0)) == (SECTORS, 4096)
    assert all(read(flash, block, 0, 4096) == b"\xff" * 4096 for block in range(SECTORS))
    assert is_blank(flash)


def test_programmed_granules_read_back_and_leave_the_others_alone(flash: Any) -> None:
    content = bytes(range(1, 9)) * (flash.granule // 8)
    flash.writeblocks(3, content, 2 * flash.granule)
    assert read(flash, 3, 0, 4 * flash.granule) == b"\xff" * 2 * flash.granule + content + b"\xff" * flash.granule
    assert read(flash, 2, 0, 4096) == read(flash, 4, 0, 4096) == b"\xff" * 4096


def test_any_bytes_of_a_sector_can_be_read(flash: Any) -> None:
    flash.writeblocks(1, bytes(range(256)) * 3, 512)
    sector = b"\xff" * 512 + bytes(range(256)) * 3 + b"\xff" * (4096 - 1280)
    for offset, length in [(505, 20), (511, 1), (512, 1), (1270, 33), (1279, 2), (0, 4096), (4095, 1)]:
        assert read(flash, 1, offset, length) == sector[offset : offset + length]


def test_a_long_program_arrives_whole(flash: Any) -> None:
    content = bytes((at * 7 + at // 256) & 0xFF for at in range(2048))
    flash.writeblocks(0, content, 256)
    assert read(flash, 0, 256, 2048) == content


def test_an_erase_clears_its_sector_and_no_other(flash: Any) -> None:
    for block in range(SECTORS):
        flash.writeblocks(block, b"a" * 4096, 0)
    assert flash.ioctl(6, 5) == 0
    for block in range(SECTORS):
        assert read(flash, block, 0, 4096) == (b"\xff" if block == 5 else b"a") * 4096
    flash.writeblocks(5, b"b" * flash.granule, 4096 - flash.granule)
    assert read(flash, 5, 4096 - flash.granule, flash.granule) == b"b" * flash.granule


def test_a_program_takes_whole_granules_within_one_sector_of_the_device(flash: Any) -> None:
    whole = flash.granule
    for block, offset, length in [(0, 0, whole - 1), (0, 1, whole), (0, whole, whole + 8)]:
        with pytest.raises(DeviceFailed, match=f"sector {block} at {offset} is not made of whole granules"):
            flash.writeblocks(block, b"a" * length, offset)
    for block, offset in [(0, 4096 - whole), (0, 4096), (0, -whole)]:
        with pytest.raises(DeviceFailed, match=f"in sector {block} at {offset} go beyond the sector"):
            flash.writeblocks(block, b"a" * 2 * whole, offset)
    for block in (SECTORS, -1):
        with pytest.raises(DeviceFailed, match=f"there is no sector {block}: the device has {SECTORS}"):
            flash.writeblocks(block, b"a" * whole, 0)
    assert all(read(flash, block, 0, 4096) == b"\xff" * 4096 for block in range(SECTORS))


def test_a_read_and_an_erase_keep_to_the_device(flash: Any) -> None:
    with pytest.raises(DeviceFailed):
        read(flash, SECTORS, 0, 16)
    with pytest.raises(DeviceFailed):
        read(flash, 0, 4090, 16)
    for block in (SECTORS, -1):
        with pytest.raises(DeviceFailed):
            flash.ioctl(6, block)


def test_a_store_lives_on_it_over_many_laps_and_mounts(flash: Any, seed: int) -> None:
    Log.format(flash, 0x12345678, flash.granule)
    use(flash, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_lives_on_it_on_the_real_vm(kind: str, micropython: MicroPython, seed: int) -> None:
    environment = micropython.environment()
    environment["MICROPYPATH"] = f"{SHIM}:{environment['MICROPYPATH']}"
    command = [*micropython.argv, "-X", "heapsize=1024wk", PROGRAM, kind, str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "holds\n"), done.stdout + done.stderr
