"""The independent reader and the store agree on what an image says, whatever happened to it."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flash_store.errors import StoreError
from flash_store.incoming import Incoming
from flash_store.log import Log
from tests.house.repository import ROOT
from tests.tools.cli.flash.images import LIVES, flash_with, formatted, of_full_store, of_workload, sector_size_of
from tools.cli.flash.reader import read_store
from tools.cli.flash.store import DAMAGED, TORN, NoStore, Store
from tools.lab.sim.nor import NorFlash, Operation

Life = Callable[[NorFlash, int], Iterator[bytes]]
OLD_IMAGES = sorted((ROOT / "tests/flash_store/images").glob("version-1-*.json"))


def said_by_reader(store: Store) -> dict[str, object]:
    """What a mount of the image must find."""
    gaps = [(gap.first, gap.last, gap.count, gap.reason) for gap in store.gaps]
    left_out = store.next_mount.leaves_out
    return {
        "messages": [
            (found.id, found.qos, found.retain, found.topic, found.payload) for found in store.messages.values()
        ],
        "pubrec": [found.id for found in store.messages.values() if found.pubrec],
        "settings": {key: found.value for key, found in sorted(store.settings.items())},
        "received": store.received,
        "gaps": with_new(gaps, store.next_mount.damaged, left_out),
        "boot_id": store.next_mount.boot_id,
        "last_id": left_out or store.last_id,
    }


def with_new(gaps: list[tuple], damaged: list[int], left_out: int | None) -> list[tuple]:
    """Ranges of one reason that touch become one [G1]."""
    found = gaps
    for one, reason in [*((one, DAMAGED) for one in damaged), *([(left_out, TORN)] if left_out else [])]:
        for number, (first, last, count, why) in enumerate(found):
            if why == reason and last + 1 == one:
                found = [*found[:number], (first, one, count + 1, reason), *found[number + 1 :]]
                break
        else:
            found = sorted([*found, (one, one, 1, reason)])
    return found


def said_by_store(log: Log) -> dict[str, object]:
    messages = list(log.messages())
    return {
        "messages": messages,
        "pubrec": [message[0] for message in messages if log.has_pubrec(message[0])],
        "settings": {key: log.settings.get(key) for key in log.settings.keys()},  # noqa: SIM118
        "received": Incoming(log.settings).identifiers,
        "gaps": log.gaps(),
        "boot_id": log.boot_id,
        "last_id": log.last_id,
    }


def check(image: bytes, granule: int, sector_size: int = 0) -> None:
    """Both refuse the image, or both find the same in it."""
    size = sector_size or sector_size_of(granule)
    try:
        log = Log(flash_with(image, granule, size))
    except StoreError:
        with pytest.raises(NoStore):
            read_store(image, size)
        return
    assert said_by_reader(read_store(image, size)) == said_by_store(log)


def corrupted(image: bytes, bits: int, rng: random.Random) -> bytes:
    content = bytearray(image)
    for _ in range(bits):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("granule", [8, 16, 32, 256])
def test_they_agree_at_any_time_of_a_life(life: Life, granule: int, seed: int) -> None:
    for image in life(formatted(granule), seed):
        check(image, granule)


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("granule", [8, 16, 32, 256])
def test_they_agree_on_what_flipped_bits_left(life: Life, granule: int, seed: int) -> None:
    rng = random.Random(seed)
    for image in life(formatted(granule), seed):
        check(corrupted(image, rng.randrange(1, 5), rng), granule)


def test_they_agree_that_what_is_missing_between_dropped_messages_was_dropped() -> None:
    # With this seed a bit flips in a message whose gap has been merged with its neighbours'.
    test_they_agree_on_what_flipped_bits_left(of_full_store, 16, seed=986076662)


def operations_of(
    life: Callable[[NorFlash, int], Iterator[bytes]], flash: NorFlash, seed: int
) -> Iterator[tuple[NorFlash, Operation]]:
    """Each operation of a life, with the flash as it was before it."""
    before = flash.copy()
    flash.operations.clear()
    for _ in life(flash, seed):
        pass
    for operation in flash.operations:
        yield before, operation
        before.redo(operation)


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("granule", [8, 16, 32, 256])
def test_they_agree_on_what_a_cut_left(life: Life, granule: int, seed: int) -> None:
    rng = random.Random(seed)
    for before, operation in operations_of(life, formatted(granule), seed):
        if operation.is_erase or rng.randrange(48) == 0:
            cut = before.torn(operation, rng.randrange(before.size_of(operation)))
            check(bytes(cut.image), granule)


def is_erased_before_use(flash: NorFlash, number: int) -> bool:
    """The store erases this sector before it writes to it."""
    log = Log(flash, on_full="drop_oldest")
    for _ in range(150):
        log.acknowledge(log.append("t", b"x" * 60))
        log.idle()
    return next((operation.is_erase for operation in flash.operations if operation.sector == number), True)


def test_a_sector_that_is_foretold_to_be_erased_again_is_erased_before_its_use(seed: int) -> None:
    rng = random.Random(seed)
    distrusted = 0
    for life in LIVES:
        for before, operation in operations_of(life, formatted(), seed):
            for _ in range(3 * operation.is_erase):
                image = bytes(before.torn(operation, rng.randrange(before.size_of(operation))).image)
                for number in read_store(image, sector_size_of(16)).next_mount.erases:
                    distrusted += 1
                    assert is_erased_before_use(flash_with(image, 16), number)
    assert distrusted


def rot(flash: NorFlash, content: bytes) -> None:
    """Flip a bit of the last record with this content."""
    flash.image[flash.image.rindex(content)] ^= 1


def test_they_agree_that_an_id_left_out_once_is_not_all_that_may_be_lost() -> None:
    flash = formatted()
    Log(flash).append("t", b"perhaps sent")
    rot(flash, b"perhaps sent")
    assert Log(flash).append("t", b"sent for sure") == 2
    rot(flash, b"sent for sure")
    check(bytes(flash.image), 16)
    assert read_store(bytes(flash.image), sector_size_of(16)).next_mount.leaves_out == 2


def test_they_agree_that_a_bad_record_behind_a_lost_message_does_not_hide_it() -> None:
    flash = formatted()
    log = Log(flash)
    log.append("t", b"kept", qos=2)
    log.append("t", b"sent for sure")
    log.note_pubrec(1)
    log.settings.set("key", b"not durable")
    rot(flash, b"sent for sure")
    rot(flash, b"not durable")
    check(bytes(flash.image), 16)
    assert read_store(bytes(flash.image), sector_size_of(16)).next_mount.leaves_out == 2


def test_any_bytes_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    stores = list(of_workload(formatted(), seed))
    size = sector_size_of(16)
    for _ in range(300):
        pieces = [rng.choice(stores), rng.choice(stores), rng.randbytes(len(stores[0]))]
        spliced = b"".join(rng.choices(pieces, [5, 5, 1])[0][at : at + size] for at in range(0, len(pieces[0]), size))
        check(spliced, 16)


@pytest.mark.parametrize("known", OLD_IMAGES, ids=lambda path: path.stem)
def test_a_store_of_version_1_is_read_with_all_that_was_in_it(known: Path) -> None:
    was_in_it = json.loads(known.read_text())
    image = known.with_suffix(".bin").read_bytes()
    store = read_store(image, was_in_it["sector_size"])
    assert [
        [found.id, found.qos, found.retain, found.topic, found.payload.hex()] for found in store.messages.values()
    ] == was_in_it["messages"]
    assert (store.epoch, store.granule) == (was_in_it["epoch"], was_in_it["granule"])
    assert (store.boot_id, store.last_id) == (was_in_it["boot_id"], was_in_it["last_id"])


@pytest.mark.parametrize("known", OLD_IMAGES, ids=lambda path: path.stem)
def test_they_agree_while_a_store_of_version_1_becomes_one_of_version_2_sector_by_sector(
    known: Path, seed: int
) -> None:
    rng = random.Random(seed)
    was_in_it = json.loads(known.read_text())
    granule, size = was_in_it["granule"], was_in_it["sector_size"]
    flash = flash_with(known.with_suffix(".bin").read_bytes(), granule, size)
    versions = set()
    log = Log(flash)
    for number in range(200):
        log.acknowledge(log.append("t", b"x" * 40))
        log.idle()
        if number % 5 == 0:
            check(bytes(flash.image), granule, size)
            check(corrupted(bytes(flash.image), 1, rng), granule, size)
            store = read_store(bytes(flash.image), size)
            versions.add(frozenset(sector.free.version for sector in store.sectors if sector.free))
    assert versions >= {frozenset({1, 2}), frozenset({2})}
