"""A store with something of everything in it, and what a medium may do to its pages."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.message import Message
from gateway.store import Cursor, qos2, sessions, wills
from gateway.store.repair.pages import Pages
from gateway.store.tables.retained import Keep
from gateway.subscriptions import Subscription
from tests.gateway.store.support import opened, stored
from wire.codec.packets import Publish

COUNT = 120
TABLES = ("cursor", "incoming", "flow", "retained", "session", "will", "dropped")
Corrupt = Callable[[random.Random, bytearray], None]


async def fill(folder: Path, rng: random.Random) -> None:
    """A store of a gateway that was in use, and from which nothing was taken yet."""
    async with opened(folder) as log:
        route = Cursor(log, "route/central", ["#"])
        Cursor(log, "session/s 0", ["#"]).close()
        for number in range(COUNT):
            message = Message(f"site/{number % 9}", rng.randbytes(rng.choice((10, 300, 9000))), publisher="device")
            if number % 10 == 0:
                message.origin, message.epoch, message.seq = "device", 3, number + 1
            await log.submit([message])
        for number in range(40):
            kept = Message(
                f"kept/{number}", rng.randbytes(rng.choice((10, 300, 9000))), retain=True, publisher="device"
            )
            await log.submit([Keep(kept)])
            will = wills.StoredWill(f"client {number}", None, Publish("will", rng.randbytes(200), 1), 0)
            flow = qos2.Flow("s 0", 60_000 - number, "session/s 0", number + 1)
            await log.submit([wills.save(will), qos2.note_incoming(f"p {number}", [7, 9]), qos2.begin([flow])])
            session: dict[str, sessions.SessionEntry | None] = {
                "": sessions.SessionDescription(60, None),
                "#": Subscription("#"),
            }
            await log.submit([sessions.SaveSession(f"s {number}", session)])
        log.drop("evicted", "gateway", message)
        route.close()


def rows_in(folder: Path) -> dict[str, set[tuple[Any, ...]]]:
    return {table: set(stored(folder, f"SELECT * FROM {table}")) for table in TABLES}


def zero(_: random.Random, page: bytearray) -> None:
    page[:] = bytes(len(page))


def noise(rng: random.Random, page: bytearray) -> None:
    page[:] = rng.randbytes(len(page))


def flip(rng: random.Random, page: bytearray) -> None:
    for _ in range(rng.choice((1, 8))):
        page[rng.randrange(len(page))] ^= rng.randrange(1, 256)


def corrupt_pages(path: Path, numbers: list[int], rng: random.Random, how: Corrupt) -> None:
    size = Pages(path).size
    data = bytearray(path.read_bytes())
    for number in numbers:
        page = data[(number - 1) * size : number * size]
        how(rng, page)
        data[(number - 1) * size : number * size] = page
    path.write_bytes(data)


def corrupt_beginning(path: Path, rng: random.Random, how: Corrupt) -> None:
    data = bytearray(path.read_bytes())
    first = data[:4096]
    how(rng, first)
    path.write_bytes(first + data[4096:])
