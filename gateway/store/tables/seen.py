"""The tables ``seen`` and ``seen_digest``: which messages came over links, and a short digest of what each one was.

A row of ``seen`` has the numbers ``chunk * CHUNK`` to ``chunk * CHUNK + CHUNK - 1`` of an origin's epoch; bit n of
``bits``, from the lowest of the first byte on, is the n-th of them. ``touched_ms`` is when the newest of them was
stored (Unix time). When the row was written, the table had all that the log has up to ``position``.

A row of ``seen_digest`` has the numbers ``slice * SLICE`` to ``slice * SLICE + SLICE - 1``: the digests, DIGEST bytes
each, of the numbers that have a bit, in their order. A slice is smaller than a chunk: a save writes little for each
origin.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.store.sqlite.rows import sealed

DIGEST_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen_digest (
    origin TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    slice INTEGER NOT NULL,
    digests BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (origin, epoch, slice)
) STRICT;
"""
SCHEMA = f"""
CREATE TABLE seen (
    origin TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    bits BLOB NOT NULL,
    touched_ms INTEGER NOT NULL,
    position INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (origin, epoch, chunk)
) STRICT;
{DIGEST_SCHEMA}
"""
# The row stays where it is: rows that were begun together, as those of one moment are, share pages.
SAVE = """
INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    bits = excluded.bits, touched_ms = excluded.touched_ms, position = excluded.position, crc = excluded.crc
"""
SAVE_DIGESTS = """
INSERT INTO seen_digest VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET digests = excluded.digests, crc = excluded.crc
"""
REMOVE = "DELETE FROM seen WHERE origin = ? AND epoch = ? AND chunk = ?"
REMOVE_DIGESTS = "DELETE FROM seen_digest WHERE origin = ? AND epoch = ? AND slice BETWEEN ? AND ?"
LOAD = "SELECT origin, epoch, chunk, bits, touched_ms, position FROM seen ORDER BY touched_ms"
LOAD_DIGESTS = "SELECT origin, epoch, slice, digests FROM seen_digest"
CHUNK_BITS = 12
CHUNK = 1 << CHUNK_BITS  # numbers in a row
SLICE_BITS = 8
SLICE = 1 << SLICE_BITS
SLICES = CHUNK // SLICE
DIGEST = 2
"""Bytes of a digest that are kept: another message under the same number is taken for the same once in 65,536 times."""
UNKNOWN = bytes(DIGEST)
"""The digest of a message that has none here: nothing differs from it."""

Key = tuple[str, int, int]
"""Origin, epoch and chunk."""


class Mask(NamedTuple):
    """Messages of a chunk: a bit for each, and their digests, DIGEST bytes each, in the order of their numbers."""

    bits: int
    digests: bytes


Masks = dict[Key, Mask]
"""Messages by chunk."""


class SeenChunk(NamedTuple):
    """What is known of a chunk. ``digests`` has one for each bit, as a `Mask` has them, or is empty: none is known."""

    bits: int
    touched_ms: int
    digests: bytes = b""


@dataclass(frozen=True)
class SeenRows:
    """The contents of the tables; the chunk that was touched first comes first."""

    chunks: dict[Key, SeenChunk]
    position: int


@dataclass(frozen=True)
class SaveSeen:
    """The work that writes chunks, each with the bits whose digests the file lacks, and removes others.

    ``bare`` are chunks whose digests alone are removed. ``position`` goes into each row.
    """

    chunks: list[tuple[Key, SeenChunk, int]]
    removed: list[Key]
    bare: list[Key]
    position: int

    def __call__(self, connection: sqlite3.Connection) -> None:
        connection.executemany(REMOVE, self.removed)
        for origin, epoch, chunk in (*self.removed, *self.bare):
            connection.execute(REMOVE_DIGESTS, (origin, epoch, chunk * SLICES, chunk * SLICES + SLICES - 1))
        connection.executemany(SAVE, self._rows())
        connection.executemany(SAVE_DIGESTS, self._digest_rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for key, (bits, touched_ms, _), _ in self.chunks:
            encoded = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
            yield sealed((*key, encoded, touched_ms, self.position))

    def _digest_rows(self) -> Iterator[tuple[object, ...]]:
        for (origin, epoch, chunk), (bits, _, digests), changed in self.chunks:
            at = 0
            for number, some in enumerate(_slices(bits)):
                end = at + DIGEST * some.bit_count()
                if digests and changed >> number * SLICE & (1 << SLICE) - 1:
                    yield sealed((origin, epoch, chunk * SLICES + number, digests[at:end]))
                at = end


def load(connection: sqlite3.Connection) -> SeenRows:
    """Returns the contents of the tables."""
    sliced: dict[Key, dict[int, bytes]] = defaultdict(dict)
    for origin, epoch, number, digests in connection.execute(LOAD_DIGESTS):
        sliced[origin, epoch, number // SLICES][number % SLICES] = digests
    chunks: dict[Key, SeenChunk] = {}
    position = 0
    for origin, epoch, chunk, encoded, touched_ms, up_to in connection.execute(LOAD):
        key, bits = (origin, epoch, chunk), int.from_bytes(encoded, "little")
        chunks[key] = SeenChunk(bits, touched_ms, _join_slices(bits, sliced.pop(key, {})))
        position = max(position, up_to)
    return SeenRows(chunks, position)


def masks_of(messages: Iterable[tuple[str, int, int, bytes]]) -> Masks:
    """Returns messages (origin, epoch, seq, digest) by chunk. Of two with the same number the later one counts."""
    found: dict[Key, dict[int, bytes]] = {}
    for origin, epoch, seq, digest in messages:
        found.setdefault((origin, epoch, seq >> CHUNK_BITS), {})[seq & CHUNK - 1] = digest[:DIGEST]
    masks: Masks = {}
    for key, digests in found.items():
        places = sorted(digests)
        masks[key] = Mask(sum(1 << place for place in places), b"".join([digests[place] for place in places]))
    return masks


def _slices(bits: int) -> Iterator[int]:
    """Yields the bits of each slice of a chunk."""
    return ((bits >> number * SLICE) & (1 << SLICE) - 1 for number in range(SLICES))


def _join_slices(bits: int, found: dict[int, bytes]) -> bytes:
    """Returns the digests of a chunk. A slice whose row is gone, or is not for these bits, has none that is known."""
    if not found:
        return b""
    parts = []
    for number, some in enumerate(_slices(bits)):
        size = DIGEST * some.bit_count()
        digests = found.get(number, b"")
        parts.append(digests if len(digests) == size else bytes(size))
    return b"".join(parts)
