"""One conformance suite for block devices."""

from pathlib import Path

import pytest

from flash_store.devices.file import FileFlash
from flash_store.errors import DeviceFailed, StoreCorrupt
from tests.flash_store.support import read


@pytest.fixture(params=[8, 16, 32, 256])
def flash(request: pytest.FixtureRequest, tmp_path: Path):
    device = FileFlash(str(tmp_path / "flash.bin"), 512, 8, request.param)
    yield device
    device.close()


def test_a_new_device_reads_as_erased_and_tells_its_geometry(flash: FileFlash) -> None:
    assert (flash.ioctl(4, 0), flash.ioctl(5, 0)) == (8, 512)
    assert all(read(flash, block, 0, 512) == b"\xff" * 512 for block in range(8))


def test_programmed_granules_read_back_and_leave_the_others_alone(flash: FileFlash) -> None:
    flash.writeblocks(3, b"a" * flash.granule, flash.granule)
    assert read(flash, 3, 0, 3 * flash.granule if flash.granule < 256 else 512)[flash.granule :][:1] == b"a"
    assert read(flash, 3, 0, flash.granule) == b"\xff" * flash.granule
    assert read(flash, 2, 0, 512) == read(flash, 4, 0, 512) == b"\xff" * 512


@pytest.mark.parametrize("content", [b"a", b"\x00", b"\xff"])
def test_a_granule_is_programmed_only_once_per_erase(flash: FileFlash, content: bytes) -> None:
    flash.writeblocks(1, content * flash.granule, 0)
    with pytest.raises(DeviceFailed, match="sector 1 at 0 was programmed since its last erase"):
        flash.writeblocks(1, b"\x00" * flash.granule, 0)
    assert read(flash, 1, 0, flash.granule) == content * flash.granule
    flash.ioctl(6, 1)
    assert read(flash, 1, 0, 512) == b"\xff" * 512
    flash.writeblocks(1, b"b" * flash.granule, 0)


def test_a_program_takes_whole_granules_within_one_sector(flash: FileFlash) -> None:
    for length, offset in [(flash.granule - 1, 0), (flash.granule, 1), (flash.granule * 2, 512 - flash.granule)]:
        with pytest.raises(DeviceFailed, match="not made of whole granules"):
            flash.writeblocks(0, b"a" * length, offset)
    assert read(flash, 0, 0, 512) == b"\xff" * 512


def test_what_is_programmed_is_there_after_the_file_is_opened_again(tmp_path: Path) -> None:
    path = str(tmp_path / "flash.bin")
    first = FileFlash(path, 512, 8)
    first.writeblocks(5, b"a" * 16, 32)
    first.close()
    second = FileFlash(path, 512, 8)
    assert read(second, 5, 32, 16) == b"a" * 16
    with pytest.raises(DeviceFailed):
        second.writeblocks(5, b"\x00" * 16, 32)
    second.close()


def test_a_file_that_was_cut_while_it_was_made_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "flash.bin"
    path.write_bytes(b"\xff" * 700)
    flash = FileFlash(str(path), 512, 8)
    assert read(flash, 7, 0, 512) == b"\xff" * 512
    flash.close()


def test_a_file_that_is_too_long_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "flash.bin"
    path.write_bytes(b"a" * 5000)
    with pytest.raises(StoreCorrupt, match=r"flash\.bin has 5000 bytes, expected at most 4096"):
        FileFlash(str(path), 512, 8)
    assert path.read_bytes() == b"a" * 5000
