"""A full store is no dead end: whatever fills what was left, acknowledgements empty it again."""

import contextlib
import random

import pytest

from flash_store.errors import StoreFull
from flash_store.log import Log
from tests.flash_store.simulated_nor import SimulatedNor

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
