"""A full store is no dead end: whatever fills what was left, acknowledgements empty it again."""

import contextlib
import itertools
import random

import pytest

from flash_store.errors import StoreFull
from flash_store.incoming import Incoming
from flash_store.log import Log
from tools.lab.sim.nor import NorFlash, Operation, PowerCut

GEOMETRIES = [(8, 512, 6), (16, 512, 8), (32, 512, 8), (64, 1024, 6), (256, 4096, 6)]
LENGTHS = [(1, 30), (60, 61), (1, 160), (150, 160)]


def filled(log: Log, rng: random.Random) -> None:
    lengths = rng.choice(LENGTHS)
    with contextlib.suppress(StoreFull):
        while True:
            log.append("t", bytes(rng.randrange(*lengths)), qos=2)


def churn(log: Log, device: NorFlash, rng: random.Random) -> Log:
    """What may go on for long while no message can be sent: settings change, commands come, the power goes."""
    for _ in range(rng.randrange(60)):
        what, name, identifier = rng.randrange(5), rng.choice("abc"), rng.randrange(1, 9)
        with contextlib.suppress(StoreFull):
            if what == 0:
                log.settings.set(name, bytes(rng.randrange(device.sector_size // 16)))
            elif what == 1:
                log.settings.remove(name)
            elif what == 2:
                Incoming(log.settings).add(identifier)
            elif what == 3:
                Incoming(log.settings).remove(identifier)
            else:
                log = Log(device)
    return log


@pytest.mark.parametrize(("granule", "sector_size", "sector_count"), GEOMETRIES)
@pytest.mark.parametrize("has_straggler", [False, True])
def test_a_full_store_can_always_be_drained(
    granule: int, sector_size: int, sector_count: int, has_straggler: bool, seed: int
) -> None:
    rng = random.Random(seed)
    device = NorFlash(sector_size, sector_count, granule)
    Log.format(device, 1, granule)
    log = Log(device)
    filled(log, rng)
    straggler = log.last_id // 2 if has_straggler else 0
    while waiting := [message[0] for message in log.messages() if message[0] != straggler]:
        log = churn(log, device, rng)
        for message_id in waiting[:8]:
            assert log.note_pubrec(message_id)
            if rng.random() < 0.7:
                log.acknowledge(message_id)
        log.flush()
        assert log.stats()["waiting"] == 0
    log.append("t", bytes(160))
    assert [message[0] for message in log.messages() if message[0] <= straggler] == [straggler] * has_straggler
    assert device.violations == 0


def fill(log: Log) -> None:
    with contextlib.suppress(StoreFull):
        while True:
            log.append("t", bytes(60), qos=2)


def deliver(log: Log, windows: int) -> None:
    """What connections do with QoS 2 messages: release those with a PUBREC, then send windows of eight."""
    for message_id in log.pubrecs():
        log.acknowledge(message_id)
    log.flush()
    for _ in range(windows):
        received = []
        with contextlib.suppress(StoreFull):
            for message_id, *_ in itertools.islice(log.messages(), 8):
                log.note_pubrec(message_id)
                received.append(message_id)
        for message_id in received:
            log.acknowledge(message_id)
        log.flush()
        log.idle()


def test_a_life_of_cuts_that_once_left_no_room_for_a_pubrec_empties_the_store() -> None:
    life = random.Random(58)
    flash = NorFlash(512, 12, 32, 58)
    Log.format(flash, 1, 32)
    log = Log(flash)
    fill(log)
    life.randrange(50)
    for boots in range(700):
        flash.cut_at(life.randrange(1200))
        with contextlib.suppress(PowerCut):
            log = Log(flash)
            if boots < 99 and life.random() < 0.3:
                fill(log)
            deliver(log, life.randrange(1, 6))
        if not len(log):
            return
    raise AssertionError(f"{len(log)} messages are left")


def flip_a_length(flash: NorFlash, sector: int, record: int) -> None:
    """One bit of the length of a record of 48 bytes drifts, so that its header claims 2 KiB more."""
    flash.image[sector * flash.sector_size + 48 + 48 * record + 3] ^= 8


def small_messages(sectors: int = 12, on_full: str = "reject_new") -> tuple[NorFlash, Log]:
    """A store, full if new messages are refused then."""
    flash = NorFlash(4096, sectors, 16)
    Log.format(flash, 1)
    log = Log(flash, on_full)
    with contextlib.suppress(StoreFull):
        while on_full == "reject_new" or log.stats()["free"] > 4:
            log.append("t/x", b"v" * 20)
    return flash, log


def limit_erases(flash: NorFlash) -> None:
    def count(operation: Operation) -> None:
        assert sum(flash.erase_counts) < 12 + 2 * 12, "the store erases more than it has sectors"

    flash.after_operation = count


@pytest.mark.parametrize("payload", [20, 3000])
def test_lengths_that_drift_make_no_endless_erasing(payload: int) -> None:
    flash, log = small_messages()
    for sector in (1, 2):
        flip_a_length(flash, sector, 3)
    log = Log(flash)
    log.acknowledge(log.ids(6)[-1])
    log.flush()
    limit_erases(flash)
    log.idle()
    with contextlib.suppress(StoreFull):
        log.append("t/x", bytes(payload))


def test_a_setting_whose_length_drifts_makes_no_endless_erasing() -> None:
    flash = NorFlash(4096, 12, 16)
    Log.format(flash, 1)
    log = Log(flash)
    for number in range(3):
        log.settings.set("key", b"%d" % number)
        flash.image[flash.image.rindex(b"key") - 13] ^= 8
    with contextlib.suppress(StoreFull):
        while True:
            log.append("t/x", b"v" * 20)
    for message_id in log.ids(60):
        log.acknowledge(message_id)
    limit_erases(flash)
    log.idle()
    with contextlib.suppress(StoreFull):
        log.append("t/x", bytes(3000))


def test_bits_that_drift_in_a_full_store_make_no_endless_erasing(seed: int) -> None:
    rng = random.Random(seed)
    flash, log = small_messages()
    for _ in range(40):
        for _ in range(rng.randrange(6)):
            flash.image[rng.randrange(len(flash.image))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.5:
            log = Log(flash)
        ids = log.ids(200)
        for message_id in rng.sample(ids, min(len(ids), rng.randrange(30))):
            log.acknowledge(message_id)
        before = sum(flash.erase_counts)
        flash.operations.clear()
        log.idle()
        with contextlib.suppress(StoreFull):
            log.append("t/x", bytes(rng.choice((20, 1000, 3000))))
        assert sum(flash.erase_counts) - before <= 3 * 12


@pytest.mark.parametrize("is_mounted_again", [False, True])
def test_a_number_that_drifts_drops_no_more_than_a_sector(is_mounted_again: bool) -> None:
    flash, log = small_messages(32, "drop_oldest")
    flash.image[4096 + 48 + 48 * 2 + 5] ^= 4  # message 3 becomes message 1027
    if is_mounted_again:
        log = Log(flash, "drop_oldest")
    while not (dropped := [gap for gap in log.gaps() if gap[3] == "dropped"]):
        log.append("t/x", b"v" * 20)
    assert dropped[0][1] < 4096 // 48


def test_acknowledgements_in_a_full_store_do_not_make_it_read_all_of_it() -> None:
    def read_in_a_turn(sectors: int) -> int:
        flash, log = small_messages(sectors, "drop_oldest")
        most = 0
        for _ in range(4):
            flash.bytes_read = 0
            sent = [message[0] for message in itertools.islice(log.messages(), 8)]
            for _ in range(2):
                log.append("t/x", b"v" * 20)
            for message_id in sent:
                log.acknowledge(message_id)
            log.flush()
            assert not log.erase_due
            most = max(most, flash.bytes_read)
        return most

    assert read_in_a_turn(100) <= 1.5 * read_in_a_turn(12)
