"""Images of stores, made by the store itself."""

import random
from collections.abc import Callable, Iterator

from flash_store.log import Log
from tests.flash_store.workload import Model, Workload
from tools.lab.sim.nor import NorFlash

SECTORS = 10
STEPS = 400


def sector_size_of(granule: int) -> int:
    """Small sectors come round soon; with large granules they hold a few records at least."""
    return max(1024, 16 * granule)


def formatted(granule: int = 16, epoch: int = 0xC0FFEE) -> NorFlash:
    flash = NorFlash(sector_size_of(granule), SECTORS, granule)
    Log.format(flash, epoch, granule)
    return flash


def flash_with(image: bytes, granule: int, sector_size: int = 0) -> NorFlash:
    size = sector_size or sector_size_of(granule)
    return NorFlash(size, len(image) // size, granule, image=image)


def of_workload(flash: NorFlash, seed: int) -> Iterator[bytes]:
    """The image after every 10th step of a workload with mounts in it: messages, settings, both sides of QoS 2."""
    work = Workload(Log(flash), Model(), seed, 200)
    for number in range(STEPS):
        if number % 61 == 60:
            work.flush()
            work.log = Log(flash)
        work.step()
        if number % 10 == 0:
            yield bytes(flash.image)


def of_full_store(flash: NorFlash, seed: int) -> Iterator[bytes]:
    """The image after every 10th append to a store that drops its oldest and at times forgets its gaps."""
    log = Log(flash, on_full="drop_oldest")
    for number in range(STEPS):
        if number % 61 == 60:
            log = Log(flash, on_full="drop_oldest")
        log.append("t", b"x" * (seed * number % 150))
        if number % 7 == 0:
            log.acknowledge(log.last_id - 3)
        if number % 150 == 149:
            log.forget_gaps(log.gaps()[:-1] or log.gaps())
        if number % 10 == 0:
            yield bytes(flash.image)


def of_rotting_store(flash: NorFlash, seed: int) -> Iterator[bytes]:
    """The image after every 10th append to a store of which a bit flips now and then, before a mount or after it."""
    rng = random.Random(seed)
    log = Log(flash)
    for number in range(STEPS):
        if number % 20 == 19:
            flash.image[rng.randrange(len(flash.image))] ^= 1 << rng.randrange(8)
            flash.image[flash.image.rindex(b"x" * 8)] ^= rng.randrange(2)  # the last message is often the next to go
        if number % 40 == 39:
            log = Log(flash)
        message_id = log.append("t", b"x" * rng.randrange(8, 150))
        log.note_pubrec(message_id - rng.randrange(4))
        log.acknowledge(message_id - rng.randrange(2, 12))
        if number % 50 == 49:
            for message in list(log.messages())[:-5]:
                log.acknowledge(message[0])
        if number % 10 == 0:
            yield bytes(flash.image)


LIVES: list[Callable[[NorFlash, int], Iterator[bytes]]] = [of_workload, of_full_store, of_rotting_store]
