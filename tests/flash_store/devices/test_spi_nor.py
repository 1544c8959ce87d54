"""The driver of a W25Q chip, and the whole store on one, also when the power goes at each program and erase."""

import random

import pytest

from flash_store.devices.spi_nor import SpiNor, capacity
from flash_store.errors import DeviceFailed
from flash_store.log import Log
from tests.flash_store.devices.board import SECTORS, SMALL_CHIP, wire
from tests.flash_store.support import read
from tests.flash_store.workload import Model, Workload
from tools.lab.sim.spi_nor import W25Q, PowerCut


def small_chip(seed: int = 0) -> W25Q:
    return W25Q(SMALL_CHIP, 1 << 16, seed)


def send(chip: W25Q, command: bytes) -> None:
    chip.select(0)
    chip.take(command)
    chip.select(1)


@pytest.mark.parametrize(
    ("jedec_id", "size"),
    [("ef4014", 1 << 20), ("ef4018", 1 << 24), ("ef4019", 1 << 25), ("ef4020", 1 << 26), ("20ba22", 1 << 28)],
)
def test_the_jedec_id_tells_the_size(jedec_id: str, size: int) -> None:
    assert capacity(bytes.fromhex(jedec_id)) == size


def test_a_chip_that_does_not_say_its_size_is_refused_by_its_id() -> None:
    with pytest.raises(DeviceFailed, match="JEDEC ID 1f8401 does not give the size"):
        wire(W25Q(b"\x1f\x84\x01"))


@pytest.mark.parametrize("level", [b"\x00\x00\x00", b"\xff\xff\xff"])
def test_no_chip_on_the_bus_is_told(level: bytes) -> None:
    with pytest.raises(DeviceFailed, match=f"no flash chip answers: its JEDEC ID reads {level.hex()}"):
        wire(W25Q(level))


def test_the_whole_chip_is_taken_where_no_region_is_named() -> None:
    flash = wire(small_chip(), 0, None)
    assert flash.ioctl(4, 0) == 16
    assert wire(small_chip(), 6, None).ioctl(4, 0) == 10


@pytest.mark.parametrize(("first", "count"), [(0, 17), (16, None), (9, 8), (-1, 4)])
def test_a_region_beyond_the_chip_is_refused(first: int, count: int | None) -> None:
    with pytest.raises(DeviceFailed, match="are not on a chip of 16"):
        wire(small_chip(), first, count)


def test_a_program_is_split_at_page_borders() -> None:
    chip = small_chip()
    flash = wire(chip, 0, None)
    content = bytes(at % 251 for at in range(608))
    flash.writeblocks(0, content, 208)
    assert chip.image[208:816] == content
    assert chip.programs == 4  # 48, 256, 256 and 48 bytes


def test_above_16_mib_an_address_has_four_bytes() -> None:
    chip = W25Q(b"\xef\x40\x19", 1 << 25)
    flash = wire(chip, 0, None)
    block = (1 << 24) // 4096 + 3
    flash.writeblocks(block, b"a" * 16, 32)
    flash.writeblocks(3, b"b" * 16, 32)
    assert (read(flash, block, 32, 16), read(flash, 3, 32, 16)) == (b"a" * 16, b"b" * 16)
    assert chip.image[(1 << 24) + 3 * 4096 + 32] == ord("a")
    flash.ioctl(6, block)
    assert (read(flash, block, 32, 16), read(flash, 3, 32, 16)) == (b"\xff" * 16, b"b" * 16)


def test_a_program_and_an_erase_are_waited_for() -> None:
    chip = small_chip()
    flash = wire(chip)
    flash.writeblocks(0, b"a" * 256, 0)
    assert 700 <= chip.time_us < 2_000
    chip.time_us = 0
    flash.ioctl(6, 0)
    assert 45_000 <= chip.time_us < 48_000
    assert read(flash, 0, 0, 256) == b"\xff" * 256


def test_a_reset_in_an_erase_waits_for_the_chip() -> None:
    chip = small_chip()
    chip.image[:] = b"a" * len(chip.image)
    send(chip, b"\x06")
    send(chip, b"\x20\x00\x00\x00")
    flash = wire(chip, 0, None)
    assert chip.time_us >= 45_000
    assert read(flash, 1, 0, 16) == b"a" * 16


@pytest.mark.parametrize(("operation", "limit_ms"), [("program", 15), ("erase", 2000)])
def test_a_chip_that_stays_busy_is_told_after_the_longest_wait(operation: str, limit_ms: int) -> None:
    chip = small_chip()
    flash = wire(chip)
    chip.is_stuck = True
    with pytest.raises(DeviceFailed, match=f"{operation} in sector 1 at 0: still busy after {limit_ms} ms"):
        change(flash, operation)
    assert limit_ms * 1000 <= chip.time_us < limit_ms * 1100


@pytest.mark.parametrize("operation", ["program", "erase"])
def test_a_chip_that_takes_no_write_enable_is_told(operation: str) -> None:
    chip = small_chip()
    flash = wire(chip)
    chip.is_locked = True
    with pytest.raises(DeviceFailed, match="ignores write enable, its status is 0x00"):
        change(flash, operation)


@pytest.mark.parametrize("operation", ["program", "erase"])
def test_a_protected_sector_is_told(operation: str) -> None:
    chip = small_chip()
    flash = wire(chip, 0, None)
    flash.writeblocks(1, b"a" * 16, 16)
    chip.protected.append(1)
    with pytest.raises(DeviceFailed, match=f"{operation} in sector 1 at 0: write-protected"):
        change(flash, operation)
    assert read(flash, 1, 0, 32) == b"\xff" * 16 + b"a" * 16


def change(flash: SpiNor, operation: str) -> None:
    if operation == "erase":
        flash.ioctl(6, 1)
    else:
        flash.writeblocks(1, b"b" * 16, 0)


def test_a_store_goes_on_around_a_protected_sector() -> None:
    chip = small_chip()
    chip.protected.append(5)
    Log.format(wire(chip), 1)
    log = Log(wire(chip))
    for _ in range(300):
        log.acknowledge(log.append("topic", b"payload" * 30))
        log.idle()
    log.flush()
    log.append("topic", b"kept")
    assert [message[4] for message in Log(wire(chip)).messages()] == [b"kept"]
    assert chip.image[5 * 4096 : 6 * 4096] == b"\xff" * 4096
    assert chip.rewrites == 0


class Run:
    """A workload on a chip, and at each of its programs and erases: the chip's image, the command, the model."""

    def __init__(self, seed: int) -> None:
        self.chip = small_chip()
        flash = wire(self.chip)
        Log.format(flash, 0x12345678)
        self.moments: list[tuple[bytes, bytes, Model]] = []
        model = Model()
        self.chip.erases = 0
        self.chip.before_change = lambda command: self.moments.append((bytes(self.chip.image), command, model.copy()))
        work = Workload(Log(flash), model, seed, 900)
        number = 0
        while self.chip.erases <= SECTORS:  # until each sector had its turn
            number += 1
            if number % 97 == 96:
                work.flush()
                work.log = Log(flash)
            work.step()


def torn(image: bytes, command: bytes, seed: int) -> W25Q:
    """A chip that lost its power in this command."""
    chip = small_chip(seed)
    chip.image[:] = image
    chip.cut_at = 1
    send(chip, b"\x06")
    with pytest.raises(PowerCut):
        send(chip, command)
    chip.restart()
    return chip


def test_nothing_durable_is_lost_when_the_power_goes_in_any_program_or_erase(seed: int) -> None:
    run = Run(seed)
    assert run.chip.rewrites == 0
    rng = random.Random(seed)
    for image, command, model in run.moments[seed % 3 :: 3]:
        chip = torn(image, command, rng.getrandbits(32))
        chip.operations, chip.cut_at = 0, rng.randrange(1, 4)  # and once more in the recovery
        try:
            Log(wire(chip)).idle()
        except PowerCut:
            chip.restart()
        chip.cut_at = 0
        log = Log(wire(chip))
        model.check(log)
        for message in list(log.messages()):
            log.acknowledge(message[0])
        log.flush()
        log.idle()
        assert log.append("topic", b"still writable") > 0
        assert chip.rewrites == 0
