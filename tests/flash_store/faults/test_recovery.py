"""What SPEC.md's rules of mounting say of cuts and flipped bits, each by an image made for it."""

import pytest

from flash_store import record
from flash_store.log import Log
from flash_store.sector import Open, encode_open
from tests.flash_store.support import formatted, mounted
from tools.lab.sim.nor import NorFlash, Operation

SECTOR_SIZE, GRANULE = 512, 16
FIRST_USED = SECTOR_SIZE  # the first mount opens sector 1
FREE_SIZE, OPEN_AT, OPEN_SIZE, RECORDS_AT = 16, 16, 20, 48


def with_messages(count: int) -> NorFlash:
    flash, log = mounted()
    for number in range(count):
        log.append("t", b"payload %d" % number)
    return flash


def image_before_an_erase(flash: NorFlash, log: Log, turns: int) -> tuple[bytes, int]:
    """Uses the store for `turns` erases; returns the image before the last one, and the sector that it erased."""
    images = [bytes(flash.image)]
    erased: list[tuple[bytes, int]] = []

    def look(operation: Operation) -> None:
        if operation.is_erase:
            erased.append((images[-1], operation.sector))
        images[:] = [bytes(flash.image)]

    flash.after_operation = look
    while len(erased) < turns:
        log.acknowledge(log.append("t", b"x" * 60))
        log.flush()
        log.idle()
    return erased[-1]


@pytest.mark.parametrize("bit", range(8 * FREE_SIZE))
def test_one_flipped_bit_in_free_costs_nothing(bit: int) -> None:
    flash = with_messages(4)
    flash.image[FIRST_USED + bit // 8] ^= 1 << bit % 8
    log = Log(flash)
    assert [message[4] for message in log.messages()] == [b"payload %d" % number for number in range(4)]
    assert log.append("t", b"x") == 5


@pytest.mark.parametrize("bit", range(8 * OPEN_SIZE))
def test_one_flipped_bit_in_open_costs_nothing(bit: int) -> None:
    flash = with_messages(4)
    flash.image[FIRST_USED + OPEN_AT + bit // 8] ^= 1 << bit % 8
    log = Log(flash)
    assert [message[4] for message in log.messages()] == [b"payload %d" % number for number in range(4)]
    assert log.append("t", b"x") == 5


def test_a_free_sector_that_is_not_blank_is_erased_before_its_use() -> None:
    flash = with_messages(1)
    for sector in range(2, 8):
        flash.image[sector * SECTOR_SIZE + 200] = 0
    flash = NorFlash(SECTOR_SIZE, 8, GRANULE, image=bytes(flash.image))  # granules that are not blank are programmed
    log = Log(flash)
    for _ in range(30):
        log.acknowledge(log.append("t", b"x" * 60))
        log.idle()
    assert flash.violations == 0
    assert [message[0] for message in Log(flash).messages()][:1] == [1]


def test_what_an_erase_that_was_cut_left_blank_is_erased_again() -> None:
    flash, log = mounted()
    log.append("t", b"a straggler, so that lives end one by one")
    image, cut = image_before_an_erase(flash, log, 20)
    start = cut * SECTOR_SIZE
    blank = b"\xff" * (SECTOR_SIZE - OPEN_AT)
    image = image[: start + OPEN_AT] + blank + image[start + SECTOR_SIZE :]
    flash = NorFlash(SECTOR_SIZE, 8, GRANULE, image=image)
    log = Log(flash)
    assert [message[0] for message in log.messages()][:1] == [1]
    for _ in range(60):
        log.acknowledge(log.append("t", b"x" * 60))
        log.flush()
        log.idle()
    assert next(operation for operation in flash.operations if operation.sector == cut).is_erase


def test_a_boot_id_is_not_given_twice_when_the_record_of_a_boot_rots() -> None:
    flash = formatted()
    boots = [Log(flash).boot_id for _ in range(4)]
    assert boots == [1, 2, 3, 4]
    last = RECORDS_AT + 2 * 16  # the first boot is in OPEN, the next three are STATEs
    flash.image[FIRST_USED + last + 4] ^= 0x10
    assert Log(flash).boot_id == 5
    assert Log(flash).boot_id > 5


def test_a_torn_record_costs_one_id_however_often_the_power_goes() -> None:
    flash = with_messages(3)
    flash.image[flash.image.index(b"payload 2")] ^= 1
    assert Log(flash).last_id == 3
    for _ in range(5):
        log = Log(flash)
        assert log.gaps() == [(3, 3, 1, "torn")]
    assert log.append("t", b"x") == 4


def test_a_sector_that_reads_as_noise_costs_its_own_records_only(seed: int) -> None:
    flash, log = mounted()
    for number in range(16):
        log.append("t", b"payload %d" % number + b"x" * 50)
    per_sector: dict[int, list[int]] = {}
    for message in log.messages():
        at = flash.image.index(message[4]) // SECTOR_SIZE
        per_sector.setdefault(at, []).append(message[0])
    for dead, lost in per_sector.items():
        for noise in (b"\x00", b"\xff", bytes([seed & 0xFF])):
            hurt = flash.copy()
            hurt.image[dead * SECTOR_SIZE : (dead + 1) * SECTOR_SIZE] = noise * SECTOR_SIZE
            log = Log(hurt)
            assert [message[0] for message in log.messages()] == [n for n in range(1, 17) if n not in lost]
            log.append("t", b"x")


@pytest.mark.parametrize("sector_seq", [1, 2])
def test_a_head_whose_erase_may_have_been_cut_is_read_and_takes_no_record(sector_seq: int) -> None:
    flash = formatted()
    Log(flash).append("t", b"1")
    erase = record.encode(record.ERASE, 0, 2, 1, (), record.seed(1, 1), GRANULE)
    message = record.encode(record.MSG, 1, 2, 1, (b"t", b"2"), record.seed(1, sector_seq), GRANULE)
    flash.writeblocks(1, erase, RECORDS_AT + 2 * GRANULE)
    # The erase was cut, or the next one went well after FREE was lost: it counts from the highest one known.
    flash.writeblocks(2, encode_open(Open(sector_seq, 1, 2, 1), 1, GRANULE), OPEN_AT)
    flash.writeblocks(2, message, RECORDS_AT)
    flash.operations.clear()
    log = Log(flash)
    assert [message[4] for message in log.messages()] == [b"1", b"2"]
    while not any(operation.sector == 2 for operation in flash.operations):
        for message_id in log.ids(9):
            log.acknowledge(message_id)
        log.append("t", b"x" * 60)
        log.idle()
    assert next(operation for operation in flash.operations if operation.sector == 2).is_erase
