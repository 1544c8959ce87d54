"""Messages of a simulated fleet: new, repeated, poisoned, with an identity that came before; and what they become."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from cloud.landing.file import Row

BASE_MS = 1_760_000_000_000
ORIGINS = ("attic", "cellar", "garage")
DECODER = """
from cloud import Record, decoder

@decoder("meters/#")
def meter(message):
    yield Record(metric="count", value=float(len(message.payload)))
"""
"""The decoder that `requarantine` has, and `ingest` not."""
METER = "meters/7"
POISON = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"no SenML",
    b"[" * 5_000,
    b"{" + b'"a":{' * 200,
    b'[{"n":"a","v":1e999}]',
    b'[{"bn":"\xff","v":1}]',
    b"\x9f\x9f\x9f",
    b'[{"n":"a","bver":99}]',
    b"NaN",
)
BEYOND_MS = 253_402_300_800_000  # the end of the year 9999


class Fleet:
    """Draws messages. `readings` says how many readings each (identity, payload) becomes: -1 for one that only the
    decoder of one's own knows, None for one that stays in quarantine."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._next = dict.fromkeys(ORIGINS, 1)
        self._sent: list[Row] = []
        self.kinds: dict[Key, int | None] = {}

    def draw(self, count: int) -> list[Row]:
        """Returns ``count`` messages as a lander gets them."""
        return [self._draw() for _ in range(count)]

    def _draw(self) -> Row:
        kind = self._chance.random()
        if self._sent and kind < 0.15:
            return self._chance.choice(self._sent)
        if self._sent and kind < 0.2:
            earlier = self._chance.choice(self._sent)
            payload = b"another %d" % self._chance.randrange(3)
            return self._add(earlier._replace(payload=payload), -1 if earlier.topic == METER else None)
        origin = self._chance.choice(ORIGINS)
        seq = self._next[origin]
        self._next[origin] += 1 if self._chance.random() < 0.95 else 2
        return self._new(origin, seq)

    def _new(self, origin: str, seq: int) -> Row:
        kind = self._chance.random()
        records = self._chance.randint(1, 3)
        values = [{"n": f"m{number}", "v": seq + number} for number in range(records)]
        values[0] |= {"bn": f"{origin}:", "bt": BASE_MS / 1000 + seq}
        row = Row(
            origin=origin,
            epoch=0xCAFE,
            seq=seq,
            received_ms=BASE_MS + seq,
            gateway="gateway-1",
            landed_ms=BASE_MS + seq + 9,
            topic=f"telemetry/{origin}",
            qos=1,
            retain=False,
            content_type="application/senml+json",
            payload=json.dumps(values).encode(),
            lander="lander-1",
        )
        if kind < 0.1:
            return self._add(row._replace(payload=self._chance.choice(POISON)), None)
        if kind < 0.12:
            return self._add(row._replace(received_ms=self._chance.choice((BEYOND_MS, -1, 2**62))), None)
        if kind < 0.25:
            meter = bytes([0xFF]) + self._chance.randbytes(self._chance.randint(1, 9))
            return self._add(row._replace(payload=meter, topic=METER, content_type=None), -1)
        return self._add(row, records)

    def _add(self, row: Row, readings: int | None) -> Row:
        self._sent.append(row)
        self.kinds[key_of(row)] = readings
        return row


class Key(NamedTuple):
    """What tells messages apart: the identity, and the payload."""

    origin: str
    epoch: int
    seq: int
    payload: bytes

    @property
    def identity(self) -> tuple[str, int, int]:
        return self[:3]


def key_of(row: Row) -> Key:
    return Key(row.origin, row.epoch, row.seq, row.payload)


def by_identity(keys: Iterator[Key]) -> dict[tuple[str, int, int], set[bytes]]:
    """Returns the payloads of each identity."""
    found: dict[tuple[str, int, int], set[bytes]] = {}
    for key in keys:
        found.setdefault(key.identity, set()).add(key.payload)
    return found
