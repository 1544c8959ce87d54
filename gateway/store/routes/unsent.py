"""What a route that keeps came past without handing it on: rules leave it out, or a limit or a condition dropped it.

The broker has acknowledged nothing of this, so it is not kept, and does not go again. Rules such as "every tenth"
cannot be asked twice: what they said is noted, one bit for each position of the log.
"""

from collections.abc import Iterable, Iterator

from gateway.store.tables.log_rows import Work
from gateway.store.tables.routes import CHUNK, CHUNK_BITS, remove_unsent, save_unsent


class Unsent:
    """The messages that one route did not hand on, by their positions.

    Args:
        consumer: the name of the route's cursor.
        chunks: those in the file, as bits by chunk.
    """

    def __init__(self, consumer: str, chunks: dict[int, int]) -> None:
        self._consumer = consumer
        self._chunks = chunks
        self._changed: set[int] = set()
        self._failed_saves = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, positions: Iterable[int]) -> None:
        """The route came past the messages at these positions."""
        for position in positions:
            chunk = position >> CHUNK_BITS
            self._chunks[chunk] = self._chunks.get(chunk, 0) | 1 << position % CHUNK
            self._changed.add(chunk)

    def sent_between(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the first and last positions of the runs between two that have no unsent message, in order."""
        begin = first
        for position in self._between(first, last):
            if position > begin:
                yield begin, position - 1
            begin = position + 1
        if begin <= last:
            yield begin, last

    def works(self, failed_saves: int) -> list[Work]:
        """Returns the work that writes what the file lacks; it goes with the place of the route's cursor.

        ``failed_saves`` is how often such a save has failed so far.
        """
        if failed_saves != self._failed_saves:
            self._changed, self._failed_saves = set(self._chunks), failed_saves
        changed, self._changed = sorted(self._changed), set()
        return [save_unsent(self._consumer, [(one, self._chunks[one]) for one in changed])] if changed else []

    def forget(self, position: int) -> list[Work]:
        """Forgets whole chunks up to a position; returns the work that removes them from the file."""
        before = (position + 1) >> CHUNK_BITS
        gone = [one for one in self._chunks if one < before]
        for one in gone:
            del self._chunks[one]
            self._changed.discard(one)
        return [remove_unsent(self._consumer, before)] if gone else []

    def forget_all(self) -> list[Work]:
        """Forgets everything."""
        return self.forget((max(self._chunks, default=0) + 1) * CHUNK)

    def _between(self, first: int, last: int) -> Iterator[int]:
        """Yields the positions of unsent messages between two, in order."""
        for chunk in range(first >> CHUNK_BITS, (last >> CHUNK_BITS) + 1) if self._chunks else ():
            position = max(first, chunk * CHUNK)
            end = min(last, chunk * CHUNK + CHUNK - 1)
            bits = self._chunks.get(chunk, 0) >> position % CHUNK & (1 << end - position + 1) - 1
            while bits:
                skipped = (bits & -bits).bit_length()
                yield position + skipped - 1
                position, bits = position + skipped, bits >> skipped
