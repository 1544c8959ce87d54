"""Bit rot: a flipped bit costs at most the record that it hit, a dead sector what was in it."""

import random
import struct
from collections import Counter
from dataclasses import dataclass
from functools import partial

from flash_store import record
from flash_store.incoming import Incoming
from flash_store.log import Log
from tools.lab.sim.nor import NorFlash
from tools.lab.torture.flash.images import STORES, Original, originals
from tools.lab.torture.flash.model import IDENTIFIERS, KEYS, expect
from tools.lab.torture.flash.power import Torture

DEAD = ("zeros", "ones", "noise")


@dataclass(frozen=True)
class Place:
    """A record in an unharmed image, without its padding; `number` is what it says there."""

    sector: int
    start: int
    end: int
    kind: int
    number: int
    seq: int


def rot(torture: Torture, bits: int, seed: int) -> None:
    """Flip `bits` single bits, evenly over the images of some stores (each bit, if `bits` is that large), and
    kill each sector of each store."""
    stores = originals(STORES, seed)
    share = bits // STORES + 1
    for number, store in enumerate(stores):
        places = find_records(store)
        size = 8 * len(store.image)
        for bit in range(seed % max(1, size // share), size, max(1, size // share)):
            torture.counts["flipped_bits"] += 1
            torture.attempt(partial(_flip, store, places, bit), rot="bit", bit=bit, store=number, seed=seed)
        for dead in range(len(store.image) // store.scenario.sector_size):
            for content in DEAD:
                torture.counts["dead_sectors"] += 1
                where = {"rot": f"sector {dead} all {content}", "store": number, "seed": seed}
                torture.attempt(partial(_kill, store, places, dead, content), **where)


def find_records(store: Original) -> list[Place]:
    """All records of the store that count, oldest first, as they were programmed."""
    size = store.scenario.sector_size
    places: dict[int, list[Place]] = {}
    programs: Counter[int] = Counter()  # since the erase: FREE, OPEN, then records
    seqs: dict[int, int] = {}
    tail = 0
    for number, offset, content in store.operations:
        if not content:
            programs[number] = 0
            places[number] = []
            continue
        programs[number] += 1
        if programs[number] == 2:
            seqs[number], opened_tail = struct.unpack_from("<II", content)
            tail = max(tail, opened_tail)
        elif programs[number] > 2:
            kind, length, message_id, aux = struct.unpack_from("<BxHII", content)
            start = number * size + offset
            end = start + record.HEADER_SIZE + length
            if store.image[start:end] == content[: end - start]:
                places[number].append(Place(number, start, end, kind, message_id, seqs[number]))
                tail = max(tail, aux if kind == record.STATE else 0)
    found = [place for in_sector in places.values() for place in in_sector if place.seq >= tail]
    return sorted(found, key=lambda place: (place.seq, place.start))


def _flip(store: Original, places: list[Place], bit: int) -> None:
    image = bytearray(store.image)
    image[bit >> 3] ^= 1 << (bit & 7)
    hit = next((place for place in places if place.start <= bit >> 3 < place.end), None)
    kind = hit.kind if hit else None
    log = Log(store.flash(image), store.scenario.on_full)
    found = {message[0]: tuple(message[1:]) for message in log.messages()}
    lost = set(store.model.stored) - set(found)
    is_message = kind in (record.MSG, record.MOVE)
    expect(not lost or (is_message and hit is not None and lost == {hit.number}), f"lost {lost}, hit was {hit}")
    expect(all(store.ever.get(message_id) == found[message_id] for message_id in found), "a message was invented")
    came_back = set(found) - set(store.model.stored) - set(store.model.acknowledged)
    expect(not came_back or kind == record.ACK, f"{came_back} came back, hit was {hit}")
    expect(log.stats()["bad_records"] >= (hit is not None), f"not counted: {hit}")
    expect(log.boot_id > store.model.boot_id, f"boot_id {log.boot_id} after {store.model.boot_id}, hit was {hit}")
    if kind != record.SET:
        expect(all(log.settings.get(key) == store.model.settings.get(key) for key in KEYS), f"a setting, hit was {hit}")
        incoming = Incoming(log.settings)
        for identifier in IDENTIFIERS:
            expect((identifier in incoming) == (identifier in store.model.remembered), f"{identifier}, hit was {hit}")
    if not is_message and kind != record.REC:
        for message_id in set(found) & set(store.model.stored):
            expected = message_id in store.model.received
            expect(log.has_pubrec(message_id) == expected, f"PUBREC of {message_id}, hit was {hit}")
    expect(log.last_id >= store.model.last_id, f"id {log.last_id + 1} is to be given out again, hit was {hit}")


def _kill(store: Original, places: list[Place], dead: int, content: str) -> None:
    size = store.scenario.sector_size
    garbage = {"zeros": bytes(size), "ones": b"\xff" * size, "noise": random.Random(dead).randbytes(size)}[content]
    image = store.image[: dead * size] + garbage + store.image[(dead + 1) * size :]
    flash: NorFlash = store.flash(image)
    flash.bad_erases.add(dead)
    flash.bad_programs.add(dead)
    log = Log(flash, store.scenario.on_full)
    found = {message[0]: tuple(message[1:]) for message in log.messages()}
    sector_of = {place.number: place.sector for place in places if place.kind in (record.MSG, record.MOVE)}
    lost = {message_id for message_id in set(store.model.stored) - set(found) if sector_of[message_id] != dead}
    expect(not lost, f"lost {lost}, which are in other sectors")
    expect(all(store.ever.get(message_id) == found[message_id] for message_id in found), "a message was invented")
    for message_id in found:
        log.acknowledge(message_id)
    log.flush()
    log.idle()
    log.append("topic", b"still writable")
