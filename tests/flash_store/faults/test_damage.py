"""What bits that drift take is told as a range, and no identity is given twice."""

import random
from itertools import islice

import pytest

from flash_store.log import Log
from tests.flash_store.support import formatted, ids, mounted
from tools.lab.sim.nor import NorFlash

SECTOR_SIZE, GRANULE, SECTORS = 512, 16, 12
OPEN_AT, RECORDS_AT = 16, 48


def with_messages(count: int) -> NorFlash:
    flash, log = mounted(sector_count=SECTORS)
    for number in range(1, count + 1):
        log.append("t", b"payload %02d" % number)
    return flash


def flip(flash: NorFlash, at: int, *bits: int) -> None:
    for bit in bits:
        flash.image[at + bit // 8] ^= 1 << bit % 8


def opened(flash: NorFlash) -> list[int]:
    """The sectors in use, oldest first."""
    starts = [sector * SECTOR_SIZE + OPEN_AT for sector in range(SECTORS)]
    used = [at for at in starts if flash.image[at : at + 20] != b"\xff" * 20]
    return [at // SECTOR_SIZE for at in sorted(used, key=lambda at: flash.image[at : at + 4][::-1])]


@pytest.mark.parametrize("which", [0, 1, -1])
def test_two_bits_that_drift_in_an_open_cost_nothing(which: int, seed: int) -> None:
    rng = random.Random(seed)
    flash = with_messages(40)
    Log(flash)
    assert len(opened(flash)) > 2
    sector = opened(flash)[which]
    for _ in range(40):
        hurt = flash.copy()
        flip(hurt, sector * SECTOR_SIZE + OPEN_AT, *rng.sample(range(8 * 20), 2))
        log = Log(hurt)
        assert (ids(log), log.gaps(), log.last_id) == (list(range(1, 41)), [], 40)
        assert log.append("t", b"next") == 41
        again = Log(hurt)
        assert (ids(again), again.gaps()) == (list(range(1, 42)), [])
        assert again.boot_id > log.boot_id > 2


def test_a_sector_of_which_nothing_can_be_read_is_a_range_and_its_ids_are_not_used_again() -> None:
    flash = with_messages(40)
    middle = opened(flash)[1]
    flash.image[middle * SECTOR_SIZE : (middle + 1) * SECTOR_SIZE] = bytes(SECTOR_SIZE)
    log = Log(flash)
    ((first, last, count, reason),) = log.gaps()
    assert (count, reason) == (last - first + 1, "damaged")
    assert sorted([*ids(log), *range(first, last + 1)]) == list(range(1, 41))
    assert log.append("t", b"next") == 41
    assert Log(flash).gaps() == log.gaps()


@pytest.mark.parametrize("bits", [(130,), (5, 6), (33, 200)])
def test_a_message_of_which_bits_flip_is_a_range(bits: tuple[int, ...]) -> None:
    flash = with_messages(20)
    flip(flash, flash.image.index(b"payload 07") - 17, *bits)
    log = Log(flash)
    assert ids(log) == [one for one in range(1, 21) if one != 7]
    assert log.gaps() == [(7, 7, 1, "damaged")]
    assert log.append("t", b"next") == 21


def test_a_damaged_message_is_told_once_and_stays_gone() -> None:
    flash = with_messages(20)
    at = flash.image.index(b"payload 07")
    flip(flash, at, 0, 9)
    log = Log(flash)
    log.forget_gaps(log.gaps())
    for _ in range(3):
        assert Log(flash).gaps() == []
    flip(flash, at, 0, 9)  # its bits have drifted back
    assert 7 not in ids(Log(flash))


def moved(flash: NorFlash) -> tuple[Log, int]:
    """A store whose oldest message was moved, and where its copy is; the original is erased."""
    log = Log(flash)
    log.append("t", b"a straggler")
    original = flash.image.index(b"a straggler")
    while flash.image.find(b"a straggler", original, original + 11) >= 0:
        log.acknowledge(log.append("t", b"x" * 60))
        log.idle()
    log.flush()
    return log, flash.image.index(b"a straggler") - 17


@pytest.mark.parametrize("bits", [(130, 150), (40,), (100,)])
def test_a_moved_message_of_which_bits_drift_is_a_range(bits: tuple[int, ...]) -> None:
    flash = formatted(sector_count=SECTORS)
    _, at = moved(flash)
    assert flash.image[at] == ord("V")
    flip(flash, at, *bits)
    log = Log(flash)
    assert 1 not in ids(log)
    assert log.gaps() == [(1, 1, 1, "damaged")]


def test_an_acknowledgement_that_a_cut_may_have_torn_does_not_come_back_when_it_drifts() -> None:
    flash = with_messages(3)
    log = Log(flash)
    log.acknowledge(2)
    log.flush()
    at = next(at for at in range(SECTOR_SIZE, len(flash.image), GRANULE) if flash.image[at] == ord("A"))
    assert ids(Log(flash)) == [1, 3]
    flip(flash, at, 33, 70)
    for _ in range(2):
        assert ids(Log(flash)) == [1, 3]


def test_the_ids_that_a_window_of_acknowledgements_left_are_no_damage(seed: int) -> None:
    rng = random.Random(seed)
    flash, log = mounted(sector_count=SECTORS)
    for _ in range(400):
        log.append("t", b"x" * rng.randrange(60))
        waiting = [message[0] for message in islice(log.messages(), 8)]
        if len(log) > 12:
            log.acknowledge(rng.choice(waiting))
        if rng.random() < 0.1:
            log.flush()
            log = Log(flash)
        log.idle()
        assert log.gaps() == []
