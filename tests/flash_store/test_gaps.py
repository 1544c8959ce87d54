"""Messages that are gone without an acknowledgement are never gone in silence."""

import random

import pytest

from flash_store.errors import StoreFull
from flash_store.log import Log
from tests.flash_store.support import formatted, ids, mounted
from tests.flash_store.workload import payload_of
from tools.lab.sim.nor import NorFlash, Operation


def append_for_ever(log: Log) -> None:
    while True:
        log.append("t", b"x" * 60)


def accounted(log: Log) -> None:
    """What is there and what the gaps count are all that was ever appended."""
    gaps = log.gaps()
    found = ids(log)
    assert sum(count for _, _, count, _ in gaps) + len(found) == log.last_id
    assert not [number for number in found for first, last, _, _ in gaps if first <= number <= last]


@pytest.mark.parametrize(("granule", "sector_size"), [(8, 512), (16, 512), (32, 512), (64, 1024), (256, 4096)])
def test_a_full_store_drops_its_oldest_by_policy_and_says_which(granule: int, sector_size: int) -> None:
    flash = formatted(granule, sector_size)
    log = Log(flash, on_full="drop_oldest")
    for number in range(1, 600):
        assert log.append("t", b"x" * 60) == number
    (gap,) = log.gaps()
    assert gap == (1, gap[1], gap[1], "dropped")
    assert ids(log) == list(range(gap[1] + 1, 600))
    accounted(log)
    again = Log(flash)
    assert again.gaps() == [gap]
    assert ids(again) == ids(log)


def test_gaps_stay_until_they_were_told() -> None:
    flash = formatted()
    log = Log(flash, on_full="drop_oldest")
    for _ in range(100):
        log.append("t", b"x" * 60)
    ((_, last, _, _),) = told = log.gaps()
    log.forget_gaps([(1, last - 1, last - 1, "dropped")])
    assert log.gaps() == told, "it has grown since"
    log.forget_gaps(told)
    assert log.gaps() == Log(flash).gaps() == []
    assert min(ids(Log(flash))) == last + 1


@pytest.mark.parametrize(("granule", "sector_size"), [(8, 512), (16, 512), (64, 1024)])
def test_a_cut_while_messages_are_dropped_loses_none_that_no_gap_tells(
    granule: int, sector_size: int, seed: int
) -> None:
    flash = formatted(granule, sector_size)
    log = Log(flash, on_full="drop_oldest")
    rng = random.Random(seed)
    while not log.gaps():
        log.append("t", b"x" * 60)
    before = flash.copy()
    flash.operations.clear()
    for number in range(log.last_id + 1, log.last_id + 60):
        log.append("t", payload_of(number, 60))
        if number % 5 == 0:
            log.idle()
    for operation in flash.operations:
        cut = before.torn(operation, rng.randrange(before.size_of(operation)))
        again = Log(cut, on_full="drop_oldest")
        accounted(again)
        for _ in range(20):
            again.append("t", b"x" * 60)
        accounted(again)
        assert cut.violations == 0
        before.redo(operation)


def test_a_forsaken_message_is_a_gap_and_gone() -> None:
    flash, log = mounted()
    for _ in range(6):
        log.append("t", b"x", 2)
    log.forsake([2, 3, 5])
    for again in (log, Log(flash)):
        assert again.gaps() == [(2, 3, 2, "forsaken"), (5, 5, 1, "forsaken")]
        assert ids(again) == [1, 4, 6]


def test_a_cut_while_messages_are_forsaken_leaves_none_without_message_or_gap(seed: int) -> None:
    flash, log = mounted()
    for _ in range(6):
        log.append("t", b"x", 2)
    before = flash.copy()
    flash.operations.clear()
    log.forsake([2, 3])
    for operation in flash.operations:
        again = Log(before.torn(operation, random.Random(seed).randrange(before.size_of(operation))))
        again.forsake([number for number in (2, 3) if again.holds(number)])
        assert [gap for gap in again.gaps() if gap[3] == "forsaken"] == [(2, 3, 2, "forsaken")]
        accounted(again)
        before.redo(operation)


def test_nothing_is_dropped_before_it_was_said_and_where_that_has_no_room() -> None:
    flash = formatted()
    log = Log(flash, on_full="drop_oldest")
    said: list[tuple[int, list[int]]] = []
    log.before_drop = lambda last_id: said.append((last_id, log.ids(2)))
    while not log.gaps():
        log.append("t", b"x" * 60)
    ((_, last, _, _),) = log.gaps()
    assert said == [(last, [1, 2])]

    def refuse(last_id: int) -> None:
        raise StoreFull("no room to note it")

    log.before_drop = refuse
    before = log.gaps()
    with pytest.raises(StoreFull):
        append_for_ever(log)
    assert log.gaps() == before and Log(flash).gaps() == before


def test_a_message_that_rots_is_a_gap() -> None:
    flash, log = mounted()
    log.append("t", b"first")
    log.append("t", b"precious")
    log.append("t", b"last")
    flash.image[flash.image.index(b"precious")] ^= 1
    assert ids(log) == [1, 3]
    assert log.gaps() == [(2, 2, 1, "unreadable")]
    log.flush()
    assert Log(flash).gaps() == [(2, 2, 1, "unreadable")]


def test_an_id_that_is_left_out_after_a_torn_record_is_a_gap() -> None:
    flash, log = mounted()
    log.append("t", b"first")
    log.append("t", b"precious")
    flash.image[flash.image.index(b"precious")] ^= 1
    log = Log(flash)
    assert ids(log) == [1]
    assert log.gaps() == [(2, 2, 1, "torn")]
    assert log.append("t", b"next") == 3
    assert Log(flash).gaps() == [(2, 2, 1, "torn")]


def test_many_gaps_become_few_without_a_wrong_count(seed: int) -> None:
    flash = formatted()
    log = Log(flash, on_full="drop_oldest")
    rng = random.Random(seed)
    acknowledged = 0
    for _ in range(3000):
        log.append("t", b"x" * 60)
        while rng.random() < 0.4 and len(log):
            acknowledged += log.acknowledge(rng.choice(ids(log)[-4:]))
    gaps = log.gaps()
    assert sum(count for _, _, count, _ in gaps) + len(log) + acknowledged == log.last_id
    assert len(gaps) <= 8
    assert Log(flash).gaps() == gaps


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="on_full is 'drop', expected one of reject_new, drop_oldest"):
        Log(formatted(), on_full="drop")


def accounted_in_sum(log: Log) -> bool:
    return sum(gap[2] for gap in log.gaps()) + len(log) == log.last_id


def with_gaps_that_were_merged() -> tuple[NorFlash, Log]:
    flash, log = mounted(sector_count=16)
    for number in range(60):
        log.append("t", b"payload %02d" % number)
    for message_id in range(1, 50, 3):
        log.forsake([message_id])
    assert log.gaps()[0][2] < log.gaps()[0][1]
    return flash, log


def test_a_message_that_goes_missing_within_a_merged_range_is_told() -> None:
    flash, log = with_gaps_that_were_merged()
    at = flash.image.index(b"payload 02") - 17
    flash.image[at : at + 32] = bytes(32)
    again = Log(flash)
    assert not again.holds(3)
    assert accounted_in_sum(again)
    assert sum(gap[2] for gap in again.gaps()) == sum(gap[2] for gap in log.gaps()) + 1
    assert Log(flash).gaps() == again.gaps()


def test_a_message_that_is_forsaken_within_a_merged_range_is_told() -> None:
    flash, log = with_gaps_that_were_merged()
    log.forsake([2])
    assert accounted_in_sum(log)
    assert accounted_in_sum(Log(flash))


def test_messages_that_rot_are_told_once_however_many(seed: int) -> None:
    rng = random.Random(seed)
    flash, log = mounted(sector_count=16)
    for number in range(60):
        log.append("t", b"payload %02d" % number)
    for number in rng.sample(range(60), 20):
        flash.image[flash.image.index(b"payload %02d" % number)] ^= 1
    ids(log)
    log.flush()
    for again in (log, Log(flash), Log(flash)):
        assert accounted_in_sum(again)


def test_gaps_are_forgotten_for_good_though_another_one_is_found_meanwhile() -> None:
    flash, log = mounted()
    for number in range(20):
        log.append("t", b"payload %02d" % number)
    for number in (5, 9):
        flash.image[flash.image.index(b"payload %02d" % number)] ^= 1
    ids(log)
    log.flush()
    told = log.gaps()
    flash.image[flash.image.index(b"payload 02")] ^= 1

    def find(operation: Operation) -> None:
        flash.after_operation = lambda operation: None
        ids(log)

    flash.after_operation = find
    log.forget_gaps(told)
    log.flush()
    assert Log(flash).gaps() == log.gaps() == [(3, 3, 1, "unreadable")]
