"""The chunks of numbers that came over links, in memory: which numbers, and a short digest of the message of each."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.store.tables.seen import CHUNK_BITS, DIGEST, UNKNOWN, Key, Mask, Masks, SeenChunk

FORGET_AFTER_MS = 7 * 24 * 3600 * 1000


class Forgotten(NamedTuple):
    """The chunks that are known no longer, and the chunks whose digests alone are known no longer."""

    chunks: list[Key]
    digests: list[Key]


class ChunkSet:
    """Messages in chunks. Chunks that were touched longest ago are forgotten first, and their digests before them.

    Args:
        most: how many chunks it keeps.
        most_digests: how many bytes of digests it keeps.
        chunks: the first ones, in the order in which they were touched.
    """

    def __init__(self, most: int, most_digests: int, chunks: Iterable[tuple[Key, SeenChunk]] = ()) -> None:
        self._most = most
        self._most_digests = most_digests
        self._chunks: OrderedDict[Key, SeenChunk] = OrderedDict(chunks)
        self._size = sum(len(chunk.digests) for chunk in self._chunks.values())

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, key: Key) -> SeenChunk:
        return self._chunks[key]

    def bits_of(self, key: Key) -> int:
        """Returns the bits of a chunk, 0 if it has none."""
        chunk = self._chunks.get(key)
        return 0 if chunk is None else chunk.bits

    def has_other(self, key: Key, mask: Mask) -> bool:
        """Whether a number of the mask is known with another digest: it was given to another message."""
        chunk = self._chunks.get(key)
        if chunk is None or not chunk.digests or not chunk.bits & mask.bits:
            return False
        at = 0
        for low, count in _runs(mask.bits):
            size = DIGEST * count
            if _differs(chunk, low, count, mask.digests[at : at + size]):
                return True
            at += size
        return False

    def highest(self, origin: str, epoch: int) -> int:
        """Returns the highest sequence number of an origin's epoch, 0 if it has none."""
        number, bits = max(
            ((key[2], chunk.bits) for key, chunk in self._chunks.items() if key[:2] == (origin, epoch)), default=(0, 1)
        )
        return (number << CHUNK_BITS) + bits.bit_length() - 1

    @property
    def newest(self) -> Key:
        """The chunk that was touched last."""
        return next(reversed(self._chunks))

    def add(self, masks: Masks, now_ms: int) -> Forgotten:
        """Adds messages; returns what is forgotten for them, as it is too much or too old.

        The newest chunk stays, however old it is. Where a number is known already, its newest digest counts.
        """
        for key, mask in masks.items():
            before = self._chunks.get(key) or SeenChunk(0, 0)
            bits, digests = join(before.bits, before.digests, mask)
            self._chunks[key] = SeenChunk(bits, now_ms, digests)
            self._chunks.move_to_end(key)
            self._size += len(digests) - len(before.digests)
        forgotten = []
        while len(self._chunks) > 1 and self._is_over(now_ms):
            key, chunk = self._chunks.popitem(last=False)
            self._size -= len(chunk.digests)
            forgotten.append(key)
        return Forgotten(forgotten, self._forget_digests() if self._size > self._most_digests else [])

    def _is_over(self, now_ms: int) -> bool:
        oldest = next(iter(self._chunks.values()))
        return len(self._chunks) > self._most or oldest.touched_ms < now_ms - FORGET_AFTER_MS

    def _forget_digests(self) -> list[Key]:
        """Forgets the oldest digests, an eighth of all, as it looks at each chunk that is older."""
        forgotten = []
        for key, chunk in self._chunks.items():
            if self._size <= self._most_digests * 7 // 8 or key == self.newest:
                break
            if chunk.digests:
                self._size -= len(chunk.digests)
                forgotten.append(key)
        for key in forgotten:
            self._chunks[key] = self._chunks[key]._replace(digests=b"")
        return forgotten


def join(bits: int, digests: bytes, mask: Mask) -> tuple[int, bytes]:
    """Returns the bits and the digests of messages with those of a mask among them, which count where both have one."""
    if not bits:
        return mask
    digests = digests or UNKNOWN * bits.bit_count()
    at = 0
    for low, count in _runs(mask.bits):
        first, end = _place(bits, low), _place(bits, low + count)
        size = DIGEST * count
        digests = b"".join((digests[:first], mask.digests[at : at + size], digests[end:]))
        bits |= (1 << count) - 1 << low
        at += size
    return bits, digests


def _differs(chunk: SeenChunk, low: int, count: int, digests: bytes) -> bool:
    """Whether one of the numbers from a place on is known with another digest than it has here."""
    first, end = _place(chunk.bits, low), _place(chunk.bits, low + count)
    if chunk.digests[first:end] == digests:
        return False
    for place in range(count):
        if chunk.bits >> low + place & 1:
            known, own = chunk.digests[first : first + DIGEST], digests[DIGEST * place : DIGEST * place + DIGEST]
            if UNKNOWN not in (known, own) and known != own:
                return True
            first += DIGEST
    return False


def _place(bits: int, number: int) -> int:
    """Returns where the digest of a number is, or would be, among those of all bits."""
    return DIGEST * (bits & (1 << number) - 1).bit_count()


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """Yields the place of the first of consecutive bits, and how many they are."""
    while bits:
        low = (bits & -bits).bit_length() - 1
        rest = bits >> low
        count = (~rest & rest + 1).bit_length() - 1
        yield low, count
        bits &= ~((1 << count) - 1 << low)
