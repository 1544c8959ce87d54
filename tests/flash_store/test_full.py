"""A full store is no dead end: whatever fills what was left, acknowledgements empty it again."""

import contextlib
import itertools
import random

import pytest

from flash_store.errors import StoreFull
from flash_store.log import Log
from tests.flash_store.simulated_nor import SimulatedNor
from tools.sim.flash import NorFlash, PowerCut

GEOMETRIES = [(8, 512, 6), (16, 512, 8), (32, 512, 8), (64, 1024, 6), (256, 4096, 6)]
LENGTHS = [(1, 30), (60, 61), (1, 160), (150, 160)]


def filled(log: Log, rng: random.Random) -> None:
    lengths = rng.choice(LENGTHS)
    with contextlib.suppress(StoreFull):
        while True:
            log.append("t", bytes(rng.randrange(*lengths)), qos=2)


def churn(log: Log, device: SimulatedNor, rng: random.Random) -> Log:
    """What may go on for long while no message can be sent: settings change, commands come, the power goes."""
    for _ in range(rng.randrange(60)):
        what, name, identifier = rng.randrange(5), rng.choice("abc"), rng.randrange(1, 9)
        with contextlib.suppress(StoreFull):
            if what == 0:
                log.settings.set(name, bytes(rng.randrange(device.sector_size // 16)))
            elif what == 1:
                log.settings.remove(name)
            elif what == 2:
                log.remember(identifier)
            elif what == 3:
                log.release(identifier)
            else:
                log = Log(device)
    return log


@pytest.mark.parametrize(("granule", "sector_size", "sector_count"), GEOMETRIES)
@pytest.mark.parametrize("has_straggler", [False, True])
def test_a_full_store_can_always_be_drained(
    granule: int, sector_size: int, sector_count: int, has_straggler: bool, seed: int
) -> None:
    rng = random.Random(seed)
    device = SimulatedNor(sector_size, sector_count, granule)
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
