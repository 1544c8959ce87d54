"""A power cut at every operation, and one more in the recovery; the model decides what must be there."""

import random

import pytest

from flash_store.errors import StoreCorrupt
from flash_store.log import Log, is_blank
from tests.flash_store.workload import Model, Workload
from tools.lab.sim.nor import NorFlash, Operation

EPOCH = 0x12345678
SECTORS = 8
LAPS = 4  # around the ring of sectors; `torture flash` does many more


class RecordedRun:
    """One run of the workload: its flash operations, and beside each the model as it stood then."""

    def __init__(self, granule: int, sector_size: int, seed: int) -> None:
        self.flash = NorFlash(sector_size, SECTORS, granule)
        Log.format(self.flash, EPOCH, granule)
        self.before = self.flash.copy()
        self.flash.operations.clear()
        self.models: list[Model] = []
        model = Model()
        self.flash.after_operation = lambda operation: self.models.append(model.copy())
        work = Workload(Log(self.flash), model, seed, 150)
        number = 0
        while min(self.flash.erase_counts) < LAPS:
            if number % 37 == 0:
                work.flush()
                work.log = Log(self.flash)
                model.check(work.log)
            work.step()
            number += 1


def check_recovery(flash: NorFlash, model: Model, cuts_left: int, rng: random.Random) -> None:
    """Mounts what a cut left; cuts again at each operation of the recovery; then uses the store."""
    again = flash.copy()
    flash.operations.clear()
    log = Log(flash)
    model.check(log)
    if cuts_left:
        for operation in flash.operations:
            check_recovery(again.torn(operation, rng.randrange(again.size_of(operation))), model, cuts_left - 1, rng)
            again.redo(operation)
    for message in list(log.messages()):
        log.acknowledge(message[0])
    log.flush()
    for _ in range(4):
        log.idle()
        log.append("topic", b"still writable" * 6)
    assert len(log) == 4
    assert flash.violations == 0


@pytest.mark.parametrize(("granule", "sector_size"), [(8, 512), (16, 512), (32, 512), (64, 1024)])
def test_no_durable_append_is_lost_and_none_invented_by_cuts_two_deep(
    granule: int, sector_size: int, seed: int
) -> None:
    run = RecordedRun(granule, sector_size, seed)
    rng = random.Random(seed)
    assert run.flash.violations == 0
    flash = run.before
    for operation, model in zip(run.flash.operations, run.models, strict=True):
        check_recovery(flash.torn(operation, rng.randrange(flash.size_of(operation))), model, 1, rng)
        flash.redo(operation)


def test_a_cut_in_format_leaves_a_device_that_is_formatted_again_or_mounts(seed: int) -> None:
    flash = NorFlash(512, SECTORS, 16)
    Log.format(flash, EPOCH)
    operations: list[Operation] = list(flash.operations)
    rng = random.Random(seed)
    flash = NorFlash(512, SECTORS, 16)
    for operation in operations:
        cut = flash.torn(operation, rng.randrange(flash.size_of(operation)))
        try:
            log = Log(cut)
        except StoreCorrupt:
            assert is_blank(cut)
        else:
            log.append("topic", b"payload")
        flash.redo(operation)
