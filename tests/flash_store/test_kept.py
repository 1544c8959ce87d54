"""A log that keeps acknowledged messages until their room is needed."""

import random

import pytest

from flash_store.errors import StoreFull
from flash_store.kept import KeepingLog
from flash_store.log import Log
from tests.flash_store.support import formatted
from tests.flash_store.workload import Model, Workload
from tools.lab.sim.nor import NorFlash

SECTORS = 8


def kept(log: KeepingLog, first: int = 1, last: int = 1 << 31) -> dict[int, bytes]:
    """The messages by their ids, in order."""
    found: dict[int, bytes] = {}
    seq = log.sector_from(1)
    while seq:
        found.update({number: bytes(payload) for number, _, _, _, payload in log.kept(seq, first, last)})
        seq = log.sector_from(seq + 1)
    return found


def acknowledged(log: Log, count: int) -> None:
    for _ in range(count):
        log.acknowledge(log.append("topic", b"%d" % (log.last_id + 1)))
        log.idle()
    log.flush()


def test_what_is_kept_is_there_after_each_mount_though_new_sectors_were_opened() -> None:
    flash = formatted(sector_count=16)
    log = KeepingLog(flash)
    acknowledged(log, 60)
    for count in (60, 70, 80):
        log = KeepingLog(flash)
        assert kept(log) == {number: b"%d" % number for number in range(1, count + 1)}
        assert (len(log), log.gaps()) == (0, [])
        acknowledged(log, 10)


def test_the_oldest_goes_first_and_what_is_left_has_no_hole() -> None:
    flash = formatted()
    log = KeepingLog(flash)
    for _ in range(20):
        acknowledged(log, 30)
        found = list(kept(log))
        assert found == list(range(found[0], log.last_id + 1))
        log = KeepingLog(flash)
        assert list(kept(log)) == found
    assert found[0] > 500


def test_only_acknowledged_messages_in_the_range_are_told() -> None:
    log = KeepingLog(formatted())
    for _ in range(9):
        log.append("topic", b"x")
    for number in (2, 3, 5, 8):
        log.acknowledge(number)
    assert list(kept(log, 3, 7)) == [3, 5]


def test_a_message_that_was_refused_does_not_go_out_beside_its_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    flash = formatted()
    log = KeepingLog(flash)
    program, left = flash.writeblocks, 2

    def fail_twice(block: int, buffer: bytes, offset: int = 0) -> None:
        nonlocal left
        program(block, buffer, offset)
        if left and b"refused" in bytes(buffer):
            left -= 1
            raise MemoryError

    monkeypatch.setattr(flash, "writeblocks", fail_twice)
    with pytest.raises(StoreFull):
        log.append("topic", b"refused")
    number = log.append("topic", b"taken")
    log.acknowledge(number)
    log.flush()
    assert kept(log) == {number: b"taken"}
    assert kept(KeepingLog(flash)) == {number: b"taken"}


@pytest.mark.parametrize("granule", [8, 16])
def test_what_is_kept_is_true_and_nothing_is_lost_by_a_cut_at_any_operation(granule: int, seed: int) -> None:
    flash = NorFlash(512, SECTORS, granule)
    Log.format(flash, 0x12345678, granule)
    before = flash.copy()
    models: list[Model] = []
    flash.operations.clear()
    model = Model()
    flash.after_operation = lambda operation: models.append(model.copy())
    work = Workload(KeepingLog(flash), model, seed, 150)
    while min(flash.erase_counts) < 3:
        work.step()
    rng = random.Random(seed)
    for operation, then in zip(list(flash.operations), models, strict=True):
        log = KeepingLog(before.torn(operation, rng.randrange(before.size_of(operation))))
        then.check(log)
        for number, payload in kept(log).items():
            assert payload == payload_of_any(then, number)
        before.redo(operation)


def payload_of_any(model: Model, number: int) -> bytes | None:
    """What a message has, also one that was being appended when the power went."""
    if model.in_hand and model.in_hand[0] == number:
        return model.in_hand[1]
    return model.stored.get(number)
