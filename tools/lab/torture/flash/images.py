"""Ruined images: random, bit-flipped, spliced. A store mounts or is refused untouched, and invents nothing."""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from flash_store.errors import StoreCorrupt, StoreError
from flash_store.incoming import Incoming
from flash_store.log import Log
from tools.lab.sim.nor import NorFlash
from tools.lab.torture.flash.model import IDENTIFIERS, KEYS, expect
from tools.lab.torture.flash.power import Torture
from tools.lab.torture.flash.workload import EPOCH, SCENARIOS, Scenario, Workload

READS_OF_IMAGE_MAX = 100  # how often a mount and some use may read as much as the image is
STEPS = 300
STORES = 12
STORES_OF_SCENARIO = 4  # every second one has another epoch


class BoundedFlash(NorFlash):
    """A flash that counts it as broken promise if the store reads more than this."""

    bytes_read_max = 0

    def readblocks(self, block: int, buffer: bytearray | memoryview, offset: int = 0) -> None:
        super().readblocks(block, buffer, offset)
        expect(self.bytes_read <= self.bytes_read_max, f"{self.bytes_read} bytes were read, there seems no end")


class Original:
    """A store's image and all messages ever appended to it; `live` are not acknowledged."""

    def __init__(self, scenario: Scenario, seed: int, epoch: int) -> None:
        work = Workload(scenario, seed, epoch)
        for _ in range(STEPS):
            work.step()
        work.flush()
        self.scenario, self.epoch, self.model, self.ever = scenario, epoch, work.model, work.ever
        self.image, self.operations = bytes(work.flash.image), work.flash.operations

    def flash(self, image: bytes | bytearray) -> NorFlash:
        """A device that holds another image."""
        size = self.scenario.sector_size
        flash = BoundedFlash(size, len(image) // size, self.scenario.granule, 0, bytes(image))
        flash.bytes_read_max = READS_OF_IMAGE_MAX * len(image)
        return flash


def originals(count: int, seed: int) -> list[Original]:
    """Stores of several granules, some of one epoch."""
    return [Original(SCENARIOS[n // STORES_OF_SCENARIO], seed * count + n, EPOCH + n % 2) for n in range(count)]


def fuzz(torture: Torture, images: int, seed: int) -> None:
    """Mount ruined images; each message that is found was once appended there, byte for byte."""
    rng = random.Random(seed)
    stores = originals(STORES, seed)
    for number in range(images):
        first = rng.randrange(STORES)
        second = first // STORES_OF_SCENARIO * STORES_OF_SCENARIO + rng.randrange(STORES_OF_SCENARIO)
        one, other = stores[first], stores[second]
        ruin = RUINS[number % len(RUINS)]
        image = ruin(one, other.image, rng)
        torture.counts["images"] += 1
        torture.attempt(partial(_mount, torture, one, other, image), image=ruin.__name__, number=number, seed=seed)


def _mount(torture: Torture, one: Original, other: Original, image: bytes) -> None:
    flash = one.flash(image)
    try:
        log = Log(flash, one.scenario.on_full)
    except StoreCorrupt:
        torture.counts["images_refused"] += 1
        expect(not flash.operations, "a refused image was written to")
        return
    allowed = [store.ever for store in (one, other) if store.epoch == log.epoch]
    for message_id, *message in log.messages():
        expect(tuple(message) in [ever.get(message_id) for ever in allowed], f"{message_id} was invented")
    use(log)


def use(log: Log) -> None:
    """All calls answer, or raise what is documented."""
    calls: list[Callable[[], object]] = [lambda key=key: log.settings.get(key) for key in KEYS]  # type: ignore[misc]
    calls += [log.settings.keys, log.gaps, log.stats, log.idle, log.flush]
    calls += [lambda: log.append("topic", b"payload"), lambda: log.settings.set(KEYS[0], b"new")]
    calls += [lambda: log.note_pubrec(log.last_id), lambda: Incoming(log.settings).add(IDENTIFIERS[0])]
    calls += [lambda: [log.acknowledge(message[0]) for message in log.messages()], log.flush, log.idle]
    calls += [lambda: log.append("topic", b"payload"), lambda: log.forget_gaps(log.gaps())]
    for call in calls:
        with suppress(StoreError):
            call()


def random_bytes(one: Original, other: bytes, rng: random.Random) -> bytes:
    """Nothing but noise."""
    return rng.randbytes(len(one.image))


def flipped_bits(one: Original, other: bytes, rng: random.Random) -> bytes:
    """A few flipped bits, or many."""
    image = bytearray(one.image)
    for _ in range(rng.choice((1, 2, 8, 64, 1000))):
        image[rng.randrange(len(image))] ^= 1 << rng.randrange(8)
    return bytes(image)


def flipped_headers(one: Original, other: bytes, rng: random.Random) -> bytes:
    """Flipped bits where they tell most: at the sectors' beginnings."""
    image = bytearray(one.image)
    for _ in range(rng.choice((1, 4, 16))):
        sector = rng.randrange(len(image) // one.scenario.sector_size)
        image[sector * one.scenario.sector_size + rng.randrange(96)] ^= 1 << rng.randrange(8)
    return bytes(image)


def spliced_sectors(one: Original, other: bytes, rng: random.Random) -> bytes:
    """Some sectors of the other store, some in the wrong place."""
    size = one.scenario.sector_size
    count = len(one.image) // size
    sectors = [one.image[at * size : (at + 1) * size] for at in range(count)]
    for at in range(count):
        if rng.randrange(3) == 0:
            source = rng.choice((at, rng.randrange(count)))
            sectors[at] = rng.choice((one.image, other))[source * size : (source + 1) * size]
    return b"".join(sectors)


def spliced_granules(one: Original, other: bytes, rng: random.Random) -> bytes:
    """Pieces of the one in the other, at the same or another place."""
    image = bytearray(one.image)
    granule = one.scenario.granule
    for _ in range(rng.choice((1, 4, 32))):
        size = granule * rng.randrange(1, 16)
        target, source = (rng.randrange((len(image) - size) // granule) * granule for _ in range(2))
        source = rng.choice((source, target))
        image[target : target + size] = rng.choice((one.image, other))[source : source + size]
    return bytes(image)


def stuffed(one: Original, other: bytes, rng: random.Random) -> bytes:
    """Stretches of zeros, ones or noise."""
    image = bytearray(one.image)
    for _ in range(rng.choice((1, 4, 16))):
        size = rng.randrange(1, one.scenario.sector_size)
        at = rng.randrange(len(image) - size)
        image[at : at + size] = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    return bytes(image)


RUINS = (flipped_bits, spliced_sectors, stuffed, flipped_headers, spliced_granules, random_bytes)
