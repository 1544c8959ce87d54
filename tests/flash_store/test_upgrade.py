"""Stores that version 1 of the format wrote: real images, each with what was in it."""

import json
import random
from pathlib import Path

import pytest

from flash_store.flash import Flash
from flash_store.log import Log
from flash_store.sector import read_free
from tools.lab.sim.nor import NorFlash

IMAGES = sorted(Path(__file__).with_name("images").glob("version-1-*.json"))


def flash_of(image: Path) -> tuple[NorFlash, dict]:
    known = json.loads(image.read_text())
    content = image.with_suffix(".bin").read_bytes()
    size = known["sector_size"]
    return NorFlash(size, len(content) // size, known["granule"], image=content), known


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_a_store_of_version_1_mounts_with_all_that_was_in_it(image: Path) -> None:
    flash, known = flash_of(image)
    log = Log(flash)
    found = [(number, qos, retain, topic, payload.hex()) for number, qos, retain, topic, payload in log.messages()]
    assert found == [tuple(message) for message in known["messages"]]
    assert (log.epoch, log.last_id, log.boot_id) == (known["epoch"], known["last_id"], known["boot_id"] + 1)


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_its_sectors_become_version_2_as_they_are_erased_and_nothing_is_lost(image: Path) -> None:
    flash, _ = flash_of(image)
    log = Log(flash)
    kept, *others = log.messages()
    for message in others:
        log.acknowledge(message[0])
    log.flush()
    for number in range(150):
        if number % 10 == 0:
            log = Log(flash)
        log.acknowledge(log.append("t", b"x" * 40))
        log.flush()
        log.idle()
    frees = [read_free(Flash(flash), index) for index in range(flash.sector_count)]
    assert {free.version for free in frees if free} == {2}
    assert list(Log(flash).messages()) == [kept]
    assert flash.violations == 0


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_a_cut_at_any_operation_of_the_upgrade_costs_nothing(image: Path, seed: int) -> None:
    flash, known = flash_of(image)
    rng = random.Random(seed)
    before = flash.copy()
    log = Log(flash)
    log.idle()
    for operation in flash.operations:
        found = [
            message[0] for message in Log(before.torn(operation, rng.randrange(before.size_of(operation)))).messages()
        ]
        assert found == [message[0] for message in known["messages"]]
        before.redo(operation)
