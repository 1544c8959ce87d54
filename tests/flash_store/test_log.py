"""What the log promises, without cuts."""

import contextlib
import random
import struct
from binascii import crc32

import pytest

from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull
from flash_store.flash import Flash
from flash_store.index import Index
from flash_store.log import Log, packet_identifier
from flash_store.mount import Mount
from flash_store.sector import read_open
from tests.flash_store.workload import Model, Workload
from tools.lab.sim.nor import NorFlash, Operation

EPOCH = 0x12345678
GRANULES = [8, 16, 32, 256]


def formatted(granule: int = 16, sector_size: int = 1024, sector_count: int = 8) -> NorFlash:
    flash = NorFlash(sector_size, sector_count, granule)
    Log.format(flash, EPOCH, granule)
    return flash


def mounted(*geometry: int, **named: int) -> tuple[NorFlash, Log]:
    flash = formatted(*geometry, **named)
    return flash, Log(flash)


def flash_of(image: bytes) -> NorFlash:
    return NorFlash(512, 8, 16, image=image)


def fill(log: Log) -> list[int]:
    stored = []
    with contextlib.suppress(StoreFull):
        while True:
            stored.append(log.append("t", b"x" * 100))
    return stored


@pytest.mark.parametrize("granule", GRANULES)
def test_messages_come_back_in_order_after_a_mount(granule: int) -> None:
    flash, log = mounted(granule, 4096)
    sent = [("a/b", bytes([n]) * n, n % 3, n % 2 == 0) for n in range(20)]
    ids = [log.append(topic, payload, qos, retain) for topic, payload, qos, retain in sent]
    assert ids == list(range(1, 21))
    found = list(Log(flash).messages())
    assert found == [(n + 1, qos, retain, topic, payload) for n, (topic, payload, qos, retain) in enumerate(sent)]
    assert list(Log(flash).messages(after=18)) == found[18:]


def test_an_acknowledged_message_is_gone_and_stays_gone_once_flushed() -> None:
    flash, log = mounted()
    for _ in range(5):
        log.append("t", b"x")
    assert log.acknowledge(2)
    assert not log.acknowledge(2)
    assert not log.acknowledge(77)
    assert [m[0] for m in log.messages()] == [1, 3, 4, 5]
    assert [m[0] for m in Log(flash).messages()] == [1, 2, 3, 4, 5]
    log = Log(flash)
    log.acknowledge(2)
    log.flush()
    assert [m[0] for m in Log(flash).messages()] == [1, 3, 4, 5]


def test_acknowledgements_of_a_batch_take_one_record() -> None:
    flash, log = mounted()
    for _ in range(8):
        log.append("t", b"x")
    before = len(flash.operations)
    for message_id in range(1, 9):
        log.acknowledge(message_id)
    assert len(flash.operations) - before == 1
    assert len(Log(flash)) == 0


def test_every_mount_has_its_own_boot_id_and_the_same_epoch() -> None:
    flash = formatted()
    boots = []
    for _ in range(400):  # more STATE records than two sectors hold
        log = Log(flash)
        boots.append(log.boot_id)
        assert log.epoch == EPOCH
    assert boots == list(range(1, 401))


def test_ids_go_on_when_no_message_is_left_on_flash() -> None:
    flash, log = mounted()
    for _ in range(100):
        log.acknowledge(log.append("t", b"x" * 50))
        log.idle()
    log.flush()
    for _ in range(800):
        log = Log(flash)
        log.idle()
    assert log.append("t", b"y") == 101


def test_a_full_store_refuses_new_messages_and_keeps_the_old_ones() -> None:
    flash, log = mounted()
    stored = fill(log)
    assert stored == [m[0] for m in log.messages()] == [m[0] for m in Log(flash).messages()]
    with pytest.raises(StoreFull, match=f"{len(stored)} unacknowledged messages fill the store"):
        log.append("t", b"x" * 100)
    for message_id in stored[:10]:
        log.acknowledge(message_id)
    log.idle()
    assert log.append("t", b"x" * 100) == stored[-1] + 1


def test_one_message_that_is_never_acknowledged_does_not_wedge_the_ring() -> None:
    flash, log = mounted()
    straggler = log.append("t", b"straggler")
    for _ in range(2000):
        log.acknowledge(log.append("t", b"x" * 100))
        log.idle()
    assert [m[0] for m in log.messages()] == [straggler]
    assert [m[0] for m in Log(flash).messages()] == [straggler]
    assert max(flash.erase_counts) - min(flash.erase_counts) <= 1
    assert flash.violations == 0


def test_append_erases_nothing_while_idle_is_called_between() -> None:
    flash, log = mounted()
    for _ in range(500):
        before = len(flash.operations)
        message_id = log.append("t", b"x" * 100)
        assert not any(operation.is_erase for operation in flash.operations[before:])
        log.acknowledge(message_id)
        log.idle()


@pytest.mark.parametrize("granule", GRANULES)
def test_the_largest_message_is_stored_and_one_byte_more_is_refused(granule: int) -> None:
    flash, log = mounted(granule, 4096)
    fits = 4096 - 2 * max(16, granule) - (20 + granule - 1) // granule * granule - 16 - len("t")
    assert log.append("t", b"x" * fits) == 1
    with pytest.raises(MessageTooLarge, match=f"{fits + 2} bytes of topic and payload, {fits + 1} fit"):
        log.append("t", b"x" * (fits + 1))
    assert len(next(Log(flash).messages())[4]) == fits


def test_a_corrupt_last_record_is_skipped_and_counted_and_its_id_not_used_again() -> None:
    flash, log = mounted()
    for _ in range(3):
        log.append("t", b"payload")
    at = flash.image.rindex(b"payload")
    flash.image[at] ^= 0x10
    log = Log(flash)
    assert [m[0] for m in log.messages()] == [1, 2]
    assert log.stats()["bad_records"] == 1
    assert log.append("t", b"next") == 4
    assert [m[0] for m in Log(flash).messages()] == [1, 2, 4]


def test_a_corrupt_record_costs_no_other_one(seed: int) -> None:
    flash, log = mounted()
    payloads = [b"payload %02d" % n for n in range(1, 21)]
    for payload in payloads:
        log.append("t", payload)
    rng = random.Random(seed)
    for number in range(1, 21):
        image = bytearray(flash.image)
        start = image.rindex(payloads[number - 1]) - 17
        image[start + rng.choice([0, 1, *range(4, 27)])] ^= 1 << rng.randrange(8)
        log = Log(NorFlash(1024, 8, 16, image=bytes(image)))
        assert [m[0] for m in log.messages()] == [n for n in range(1, 21) if n != number]
        assert log.stats()["bad_records"] == 1
        assert log.append("t", b"next") == 21


def test_a_record_that_rots_while_mounted_is_skipped_and_counted() -> None:
    flash, log = mounted()
    for _ in range(3):
        log.append("t", b"payload")
    flash.image[flash.image.index(b"payload")] ^= 1
    assert [m[0] for m in log.messages()] == [2, 3]
    assert log.stats()["bad_records"] == 1


def test_a_sector_that_takes_no_programs_any_more_is_left_for_the_next_one() -> None:
    flash, log = mounted()
    log.append("t", b"before")
    flash.bad_programs.add(flash.operations[-1].sector)
    flash.silent = True
    ids = [log.append("t", b"after %d" % n) for n in range(3)]
    assert [m[0] for m in log.messages()] == [1, *ids]
    assert [m[4] for m in Log(flash).messages()] == [b"before", b"after 0", b"after 1", b"after 2"]


def test_a_sector_that_cannot_be_erased_is_left_out_of_the_ring() -> None:
    flash, log = mounted()
    flash.bad_erases.add(0)
    flash.silent = True
    for _ in range(100):
        log.acknowledge(log.append("t", b"x" * 100))
        log.idle()
    assert log.append("t", b"after") == 101
    assert log.stats()["bad"] == 1
    assert [m[4] for m in Log(flash).messages()][-1] == b"after"


def test_what_is_no_store_is_refused_with_the_reason() -> None:
    with pytest.raises(StoreCorrupt, match="no sector has a valid header: the device is not formatted"):
        Log(NorFlash(1024, 8, 16))
    with pytest.raises(StoreCorrupt, match="not formatted"):
        Log(NorFlash(1024, 8, 16, image=random.Random(1).randbytes(8192)))


def test_a_newer_format_version_is_refused_and_left_untouched() -> None:
    flash = formatted()
    for index in range(8):
        fields = bytes(flash.image[index * 1024 : index * 1024 + 12])
        newer = fields[:2] + b"\x03" + fields[3:]
        flash.image[index * 1024 : index * 1024 + 16] = newer + struct.pack("<I", crc32(newer))
    image = bytes(flash.image)
    with pytest.raises(StoreCorrupt, match="sector 0 has format version 3, expected at most 2"):
        Log(flash)
    assert bytes(flash.image) == image


def test_a_record_left_from_another_sector_or_life_never_validates() -> None:
    flash, log = mounted()
    log.append("t", b"stale payload")
    start = flash.image.index(b"stale payload") - 17
    stale = bytes(flash.image[start : start + 32])
    log.acknowledge(1)
    log.flush()
    log.append("t", b"x" * 900)  # fits the next sector only
    head = flash.image.index(b"x" * 900) // 1024
    flash.image[(head + 1) * 1024 - 32 : (head + 1) * 1024] = stale
    assert [m[0] for m in Log(flash).messages()] == [2]


def test_a_sector_is_erased_only_when_the_flash_says_that_nothing_in_it_counts(seed: int) -> None:
    flash = formatted(16, 512)
    model = Model()
    work = Workload(Log(flash), model, seed, 150)
    before = bytes(flash.image)
    erased = 0

    def check(operation: Operation) -> None:
        nonlocal before, erased
        index = operation.sector
        opened = read_open(Flash(flash_of(before)), index, 16, EPOCH)[0]
        if operation.is_erase and opened:
            assert not (Mount(Flash(flash_of(before)), Index(Flash(flash_of(before))), {})).ring.is_used(index)
            erased += 1
        before = bytes(flash.image)

    flash.after_operation = check
    for _ in range(600):
        work.step()
    assert erased > 8


@pytest.mark.parametrize("granule", [8, 16, 32, 256])
def test_the_log_agrees_with_the_model_over_a_long_workload(granule: int, seed: int) -> None:
    flash = formatted(granule, 4096 if granule == 256 else 512)
    model = Model()
    work = Workload(Log(flash), model, seed, 150)
    for number in range(3000):
        work.step()
        if number % 100 == 0:
            model.check(work.log)
            work.flush()
            assert work.log.stats()["waiting"] == 0, "no state is a dead end"
            work.log = Log(flash)
            model.check(work.log)
            assert [m[0] for m in work.log.messages()] == model.live()
    assert flash.violations == 0
    assert max(flash.erase_counts) - min(flash.erase_counts) <= 1


def test_packet_identifiers_are_in_range_and_stay_the_same() -> None:
    assert packet_identifier(1) == 2
    assert packet_identifier(65534) == 65535
    assert packet_identifier(65535) == 1
    assert packet_identifier(65536) == 2


def test_mounting_an_empty_store_of_64_sectors_reads_at_most_8_kb() -> None:
    flash = formatted(16, 4096, 64)
    Log(flash)
    flash.bytes_read = 0
    Log(flash)
    assert flash.bytes_read <= 8192
