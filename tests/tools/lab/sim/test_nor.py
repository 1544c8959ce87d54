"""The simulated NOR flash behaves as a real one, and counts its operations."""

import pytest

from flash_store.errors import DeviceFailed
from tools.lab.sim.nor import NorFlash, Operation, PowerCut

SIZE = 512
GRANULE = 16
ERASE = 6


def new_flash(seed: int = 0) -> NorFlash:
    return NorFlash(SIZE, 8, GRANULE, seed)


def read(flash: NorFlash, block: int, length: int = SIZE, offset: int = 0) -> bytes:
    buffer = bytearray(length)
    flash.readblocks(block, buffer, offset)
    return bytes(buffer)


def test_what_was_programmed_is_read_until_the_erase(seed: int) -> None:
    flash = new_flash(seed)
    flash.writeblocks(1, bytes(range(32)), 16)
    assert read(flash, 1, 32, 16) == bytes(range(32))
    flash.ioctl(ERASE, 1)
    assert read(flash, 1) == b"\xff" * SIZE
    assert flash.violations == 0


@pytest.mark.parametrize("content", [bytes(GRANULE), b"\xff" * GRANULE])
def test_a_granule_programmed_twice_is_a_violation_and_fails(content: bytes) -> None:
    flash = new_flash()
    flash.writeblocks(0, content, 0)
    with pytest.raises(DeviceFailed):
        flash.writeblocks(0, bytes(GRANULE), 0)
    assert flash.violations == 1


@pytest.mark.parametrize(("offset", "length"), [(1, 16), (0, 15), (0, 0), (496, 32)])
def test_a_program_of_no_whole_granules_within_a_sector_is_refused(offset: int, length: int) -> None:
    flash = new_flash()
    with pytest.raises(DeviceFailed, match="granules"):
        flash.writeblocks(0, bytes(length), offset)
    assert flash.operations == []


def test_a_cut_program_leaves_its_first_bytes_then_bits_at_random_in_one_granule(seed: int) -> None:
    content = bytes(range(64))
    seen = set()
    for _ in range(20):
        flash = new_flash(seed)
        seed += 1
        torn = flash.torn(Operation(2, 0, content), 37)
        found = read(torn, 2)
        assert found[:37] == content[:37]
        assert found[48:] == b"\xff" * (SIZE - 48)
        assert all(
            byte & ~content[37 + at] & 0xFF == byte - (byte & content[37 + at]) for at, byte in enumerate(found[37:48])
        )
        assert all(byte | content[37 + at] == byte for at, byte in enumerate(found[37:48]))
        seen.add(found)
        assert read(flash, 2) == b"\xff" * SIZE
    assert len(seen) > 1


def test_the_power_goes_at_the_byte_it_was_told_and_what_was_before_is_there(seed: int) -> None:
    flash = new_flash(seed)
    flash.cut_at(40)
    flash.writeblocks(0, bytes(32), 0)
    with pytest.raises(PowerCut):
        flash.writeblocks(1, bytes(32), 0)
    assert read(flash, 0, 32) == bytes(32)
    assert read(flash, 1, 8) == bytes(8)
    assert read(flash, 1, 16, 16) == b"\xff" * 16


def test_a_half_erase_leaves_old_bytes_or_blank_ones_or_something_between(seed: int) -> None:
    flash = new_flash(seed)
    flash.writeblocks(3, bytes(SIZE), 0)
    found = [read(flash.torn(Operation(3, 0, b""), byte), 3) for byte in range(1, SIZE)]
    assert b"\xff" * SIZE in found
    assert any(0 < image.count(0) < SIZE for image in found)
    assert any(image[:32] == bytes(32) and image[64:] == b"\xff" * (SIZE - 64) for image in found)
    assert read(flash.torn(Operation(3, 0, b""), 0), 3) == bytes(SIZE)


def test_what_reads_blank_after_a_half_erase_may_be_weak_and_to_program_it_is_a_violation(seed: int) -> None:
    flash = new_flash(seed)
    flash.writeblocks(3, bytes(SIZE), 0)
    rotten = 0
    for byte in range(1, SIZE):
        torn = flash.torn(Operation(3, 0, b""), byte)
        if torn.image[3 * SIZE : 4 * SIZE] == b"\xff" * SIZE:
            torn.writeblocks(3, b"\xff" * GRANULE, 0)
            assert torn.violations == 1
            rotten += len({read(torn, 3) for _ in range(8)}) > 1
            torn.ioctl(ERASE, 3)
            assert {read(torn, 3) for _ in range(8)} == {b"\xff" * SIZE}
    assert rotten


def test_bad_sectors_fail_and_keep_what_they_hold(seed: int) -> None:
    flash = new_flash(seed)
    flash.writeblocks(0, bytes(GRANULE), 0)
    flash.bad_erases.add(0)
    flash.bad_programs.add(1)
    with pytest.raises(DeviceFailed):
        flash.ioctl(ERASE, 0)
    assert read(flash, 0, GRANULE) == bytes(GRANULE)
    with pytest.raises(DeviceFailed):
        flash.writeblocks(1, bytes(256), 0)
    assert read(flash, 1, 256) != bytes(256)


def test_a_silent_device_does_not_tell_that_it_failed() -> None:
    flash = new_flash()
    flash.silent = True
    flash.bad_erases.add(0)
    flash.writeblocks(0, bytes(GRANULE), 0)
    assert flash.ioctl(ERASE, 0) == 0
    assert read(flash, 0, GRANULE) == bytes(GRANULE)


def test_counters_and_clock_tell_what_was_done() -> None:
    flash = new_flash()
    flash.ioctl(ERASE, 1)
    flash.writeblocks(1, bytes(272), 0)
    read(flash, 1, 100)
    assert (flash.erases, flash.erase_counts[1]) == (1, 1)
    assert (flash.bytes_programmed, flash.pages_programmed, flash.bytes_read, flash.reads) == (272, 2, 100, 1)
    assert flash.time_us == 45_000 + 2 * 700 + 5
    assert [operation.is_erase for operation in flash.operations] == [True, False]


def test_the_same_seed_gives_the_same_faults(seed: int) -> None:
    operation = Operation(0, 0, bytes(SIZE))
    assert new_flash(seed).torn(operation, 100).image == new_flash(seed).torn(operation, 100).image


def test_a_copy_goes_its_own_way(seed: int) -> None:
    flash = new_flash(seed)
    flash.writeblocks(0, bytes(GRANULE), 0)
    other = flash.copy()
    other.ioctl(ERASE, 0)
    assert read(flash, 0, GRANULE) == bytes(GRANULE)
    with pytest.raises(DeviceFailed):
        flash.writeblocks(0, bytes(GRANULE), 0)
    assert other.violations == 0
