"""A bus that returns one wrong bit now and then: no message, and no setting, is ever read or copied wrong."""

import random
from contextlib import suppress

import pytest

from flash_store.errors import StoreCorrupt, StoreFull
from flash_store.log import Log
from tools.lab.sim.nor import NorFlash

SECTOR_SIZE, SECTORS, GRANULE = 512, 12, 16
APPENDS = 1500
MOUNTS_EVERY = 250


def content_of(message_id: int) -> bytes:
    return random.Random(message_id).randbytes(message_id % 60)


def check_messages(log: Log, acknowledged: set[int], told: set[int]) -> int:
    """Every message in the store is what was appended; returns how many were read."""
    read = 0
    for message_id, _, _, topic, payload in log.messages():
        assert (topic, bytes(payload)) == ("t", content_of(message_id)), message_id
        read += 1
    for first, last, _, _ in log.gaps():
        told.update(range(first, last + 1))
    return read


@pytest.mark.parametrize("noise", [0.05, 0.01, 1e-3])
def test_wrong_bit_of_one_read_is_never_taken_for_a_messages_own(noise: float, seed: int) -> None:
    choices = random.Random(seed)
    device = NorFlash(SECTOR_SIZE, SECTORS, GRANULE, seed)
    Log.format(device, 1)
    log, acknowledged, told, read = Log(device), set[int](), set[int](), 0
    log.settings.set("place", b"north wall")
    device.noise = noise
    for number in range(APPENDS):
        if number % MOUNTS_EVERY == 0:
            read += check_messages(log, acknowledged, told)
            try:
                log = Log(device)
            except StoreCorrupt:  # no header could be read this time: a device tries again
                continue
        try:
            message_id = log.last_id + 1
            assert log.append("t", content_of(message_id)) == message_id
        except StoreFull:
            told.add(message_id)
        waiting = log.ids(40)
        if len(waiting) > 12:  # an old one stays for long, so that it is copied again and again
            one = choices.choice(waiting[1:])
            log.acknowledge(one)
            acknowledged.add(one)
        log.idle()
        with suppress(StoreCorrupt):
            assert log.settings.get("place") in (b"north wall", None)
    device.noise = 0
    read += check_messages(log, acknowledged, told)
    assert read > 30
    lost = set(range(1, log.last_id + 1)) - acknowledged - told - set(log.ids(APPENDS))
    assert not lost
