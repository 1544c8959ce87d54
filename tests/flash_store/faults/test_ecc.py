"""A medium that raises where its ECC cannot set a granule right: the granule is bad, and the store goes on."""

import errno

import pytest

from flash_store.flash import Flash
from flash_store.log import Log
from flash_store.record import mended, seed
from tests.flash_store.support import mounted, payloads
from tools.lab.sim.nor import NorFlash

SECTOR_SIZE = 512


def spoil(flash: NorFlash, content: bytes) -> None:
    """The granule in which this begins cannot be read any more."""
    flash.cells.uncorrectable.add(flash.image.rindex(content) // flash.granule * flash.granule)


@pytest.mark.parametrize("granule", [8, 16, 32])
def test_a_torn_program_that_reads_as_an_error_costs_its_record_only(granule: int) -> None:
    flash, log = mounted(granule)
    for number in range(4):
        log.append("t", b"payload %d" % number)
    spoil(flash, b"payload 3")
    for _ in range(3):
        log = Log(flash)
        assert payloads(log) == [b"payload %d" % number for number in range(3)]
    assert payloads(Log(flash)) == [b"payload 0", b"payload 1", b"payload 2"]
    log = Log(flash)
    log.append("t", b"after")
    assert payloads(Log(flash))[-1] == b"after"
    assert flash.violations == 0


@pytest.mark.parametrize("granule", [8, 16, 32])
def test_any_granule_may_become_unreadable_and_all_others_are_found(granule: int) -> None:
    flash, log = mounted(granule)
    for number in range(10):
        log.append("t", b"payload %d %s" % (number, b"x" * 40))
    found = payloads(log)
    used = [at for at in range(0, len(flash.image), granule) if flash.image[at : at + granule].strip(b"\xff")]
    for at in used:
        flash.cells.uncorrectable = {at}
        left = payloads(Log(flash.copy()))
        assert set(left) <= set(found)
        is_header = at % SECTOR_SIZE < 48 + granule
        assert is_header or len(left) >= len(found) - 1


def test_a_relocation_leaves_out_what_cannot_be_read_and_says_so() -> None:
    flash, log = mounted()
    straggler = log.append("t", b"precious")
    other = log.append("t", b"other straggler")
    spoil(flash, b"precious")
    while flash.erase_counts[1] < 3:
        log.acknowledge(log.append("t", b"x" * 60))
        log.idle()
    assert [message[0] for message in log.messages()][:1] == [other]
    assert (straggler, straggler, 1, "unreadable") in log.gaps()


def test_an_unreadable_message_is_a_gap_when_its_turn_comes() -> None:
    flash, log = mounted()
    for payload in (b"first", b"precious", b"last"):
        log.append("t", payload)
    spoil(flash, b"precious")
    assert payloads(log) == [b"first", b"last"]
    assert log.gaps() == [(2, 2, 1, "unreadable")]


@pytest.mark.parametrize("length", [0, 20, 1000, 3900])
@pytest.mark.parametrize("flips", [1, 2])
def test_a_torn_record_is_read_once_to_say_whether_one_bit_is_wrong(length: int, flips: int) -> None:
    flash = NorFlash(4096, 8, 16)
    Log.format(flash, 1, 16)
    Log(flash).append("t", b"p" * length)
    start = flash.image.index(b"M", 4096 + 48)
    for bit in range(8 * 16):
        hurt = flash.copy()
        hurt.image[start + bit // 8] ^= 1 << bit % 8
        hurt.image[start + 16 + length // 2] ^= (flips - 1) << 3
        found = mended(Flash(hurt), 1, start - 4096, seed(1, 1))
        assert (found is not None and (found.number, found.length) == (1, length + 1)) == (flips == 1), bit
        assert hurt.reads <= 4096 // 64 + 1


class Flickers(NorFlash):
    """Some reads fail, `fails` of them behind the next `left`, and then never again."""

    left = fails = 0

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        self.left -= 1
        if -self.fails <= self.left < 0:
            raise OSError(errno.EIO, "uncorrectable")
        super().readblocks(block, buffer, offset)


@pytest.mark.parametrize("fails", [1, 2, 3, 8])
def test_reads_that_fail_for_a_while_as_a_sector_is_relocated_lose_no_message_without_a_range(fails: int) -> None:
    reads = 0
    while True:
        flash = Flickers(512, 10, 16)
        Log.format(flash, 1)
        log = Log(flash)
        kept = [log.append("t", b"kept")]
        while log.stats()["free"] > 4:
            kept.append(log.append("t", bytes(40)))
        for message_id in kept[1:-3]:
            log.acknowledge(message_id)
        log.flush()
        erases = log.stats()["erases"]
        flash.left, flash.fails = reads, fails
        log.idle()
        assert log.stats()["erases"] > erases
        if flash.left >= 0:
            break
        flash.left = flash.fails = 0
        again = Log(flash)
        told = {one for first, last, _, _ in again.gaps() for one in range(first, last + 1)}
        assert {1, *kept[-3:]} == set(again.ids(9)) | told
        assert not told or fails > 1
        reads += 1
    assert reads > 20
