"""The table ``seen``: the identities of messages that came over links, as bitmaps of consecutive numbers.

A row has the numbers ``chunk * CHUNK`` to ``chunk * CHUNK + CHUNK - 1`` of an origin's epoch; bit n of ``bits``, from
the lowest of the first byte on, is the n-th of them. ``touched_ms`` is when the newest of them was stored (Unix time).
When the row was written, the table had all that the log has up to ``position``.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.store.sqlite.rows import sealed

SCHEMA = """
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
"""
# The row stays where it is: rows that were begun together, as those of one moment are, share pages.
SAVE = """
INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    bits = excluded.bits, touched_ms = excluded.touched_ms, position = excluded.position, crc = excluded.crc
"""
REMOVE = "DELETE FROM seen WHERE origin = ? AND epoch = ? AND chunk = ?"
LOAD = "SELECT origin, epoch, chunk, bits, touched_ms, position FROM seen ORDER BY touched_ms"
CHUNK_BITS = 12
CHUNK = 1 << CHUNK_BITS  # numbers in a row

Key = tuple[str, int, int]
"""Origin, epoch and chunk."""
Masks = dict[Key, int]
"""Identities: the bits of each chunk."""


class SeenChunk(NamedTuple):
    """What a row says of its chunk."""

    bits: int
    touched_ms: int


@dataclass(frozen=True)
class SeenRows:
    """The contents of the table; the chunk that was touched first comes first."""

    chunks: dict[Key, SeenChunk]
    position: int


@dataclass(frozen=True)
class SaveSeen:
    """The work that writes chunks, and removes others; ``position`` as in a row."""

    chunks: list[tuple[Key, SeenChunk]]
    removed: list[Key]
    position: int

    def __call__(self, connection: sqlite3.Connection) -> None:
        connection.executemany(REMOVE, self.removed)
        connection.executemany(SAVE, self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for key, (bits, touched_ms) in self.chunks:
            encoded = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
            yield sealed((*key, encoded, touched_ms, self.position))


def load(connection: sqlite3.Connection) -> SeenRows:
    """Returns the contents of the table."""
    chunks: dict[Key, SeenChunk] = {}
    position = 0
    for origin, epoch, chunk, bits, touched_ms, up_to in connection.execute(LOAD):
        chunks[origin, epoch, chunk] = SeenChunk(int.from_bytes(bits, "little"), touched_ms)
        position = max(position, up_to)
    return SeenRows(chunks, position)


def masks_of(identities: Iterable[tuple[str, int, int]]) -> Masks:
    """Returns the bits of identities (origin, epoch, seq)."""
    masks: Masks = {}
    for origin, epoch, seq in identities:
        key = origin, epoch, seq >> CHUNK_BITS
        masks[key] = masks.get(key, 0) | 1 << (seq & CHUNK - 1)
    return masks
