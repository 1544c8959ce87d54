"""A heap that is full at any moment of an append: the message is stored, or told as dropped, and never both."""

import random
from contextlib import suppress
from copy import deepcopy

import pytest

from flash_store.errors import HeapFull, StoreFull
from flash_store.ids import Ids
from flash_store.log import Log
from tests.flash_store.support import payloads
from tools.lab.sim.nor import NorFlash

SECTOR_SIZE, SECTORS, GRANULE = 512, 8, 16


class Tight(NorFlash):
    """A device whose driver gets no memory in `fails` calls, after `calls` more."""

    calls = fails = 0

    def scarce(self, calls: int, fails: int) -> None:
        self.calls, self.fails = calls, fails

    def _allocate(self) -> None:
        self.calls -= 1
        if self.calls < 0 and self.fails:
            self.fails -= 1
            raise MemoryError

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        self._allocate()
        super().readblocks(block, buffer, offset)

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        super().writeblocks(block, buffer, offset)
        self._allocate()

    def ioctl(self, operation: int, argument: int) -> int:
        done = super().ioctl(operation, argument)
        self._allocate()
        return done


def with_messages(rounds: int) -> tuple[Tight, Log, list[bytes]]:
    """A store, after messages of which each fifth stays; and what is left of them."""
    device = Tight(SECTOR_SIZE, SECTORS, GRANULE)
    Log.format(device, 1)
    log = Log(device)
    left = []
    for number in range(rounds):
        message_id = log.append("t", b"before %03d" % number)
        if number % 5:
            log.acknowledge(message_id)
        else:
            left.append(b"before %03d" % number)
    log.flush()
    return device, log, left


@pytest.mark.parametrize("rounds", [1, 13, 52])
@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_message_is_stored_or_told_as_dropped_whenever_the_heap_is_full(rounds: int, fails: int) -> None:
    calls = dropped = 0
    before = with_messages(rounds)
    while True:
        device, log, expected = deepcopy(before)
        device.scarce(calls, fails)
        crashed = False
        try:
            log.append("t", b"reading")
            expected.append(b"reading")
        except HeapFull:
            dropped += 1
        except MemoryError:  # the device starts anew
            crashed = True
        if not device.calls < 0:
            break
        device.scarce(0, 0)
        if crashed:
            log = Log(device)
            assert payloads(log) in (expected, [*expected, b"reading"])
            expected = payloads(log)
        log.append("t", b"next")
        expected.append(b"next")
        for again in (log, Log(device)):
            assert payloads(again) == expected
            assert [gap[3] for gap in again.gaps() if not crashed] in ([], ["memory"])
            assert not [one for one in again.ids(99) for gap in again.gaps() if gap[0] <= one <= gap[1]]
        assert device.violations == 0
        calls += 1 + calls // 5
    assert calls > 1
    assert dropped or fails != 2


def test_a_message_that_was_told_as_dropped_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device, log, _ = with_messages(1)
    with monkeypatch.context() as patched:
        patched.setattr(Ids, "add", lambda *ids: exec("raise MemoryError"))
        with pytest.raises(HeapFull, match="no RAM to store message 2"):
            log.append("t", b"reading")
    assert Log(device).gaps() == [(2, 2, 1, "memory")]
    assert log.append("t", b"reading") == 3
    assert payloads(Log(device)) == [b"before 000", b"reading"]


def test_power_that_goes_while_a_drop_is_noted_leaves_the_message_or_its_gap(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    device, log, _ = with_messages(1)
    before = device.copy()
    device.operations.clear()
    with monkeypatch.context() as patched:
        patched.setattr(Ids, "add", lambda *ids: exec("raise MemoryError"))
        with suppress(HeapFull):
            log.append("t", b"reading")
    for operation in device.operations:
        log = Log(before.torn(operation, random.Random(seed).randrange(before.size_of(operation))))
        assert log.append("t", b"next") <= 4
        told = sum(count for _, _, count, _ in log.gaps())
        assert len(log) + told == log.last_id
        before.redo(operation)


def test_a_message_that_was_refused_does_not_come_back_when_it_reads_well_later() -> None:
    class Flickers(NorFlash):
        """Reads fail in a sector, behind what is there."""

        sector, end = -1, 0

        def readblocks(self, block: int, buffer, offset: int = 0) -> None:
            if block == self.sector and offset >= self.end:
                raise OSError(5)
            super().readblocks(block, buffer, offset)

    device = Flickers(SECTOR_SIZE, SECTORS, GRANULE)
    Log.format(device, 1)
    log = Log(device)
    while log.stats()["free"] > 4 or device.operations[-1].offset < SECTOR_SIZE // 2:
        log.append("t", b"before")
    device.sector, before, record = device.operations[-1]
    device.end = before + len(record)
    with pytest.raises(StoreFull):
        log.append("t", b"reading")
    assert device.operations[-1].sector != device.sector, "something was written behind it"
    device.sector = -1
    again = Log(device)
    assert set(payloads(again)) == {b"before"}
    assert sum(gap[2] for gap in again.gaps()) + len(again) == again.last_id
