"""Where in the log something may be for one consumer."""

from collections.abc import Iterator

STRETCHES_MAX = 100  # of 64 bytes or more each, for every session that is away; beyond it the newest two become one


class Stretches:
    """Positions of messages, those that follow one another as one stretch. None begins before those already there."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] | None = None  # most consumers wait for nothing

    def add(self, first: int, last: int) -> None:
        """Messages at these positions may be for the consumer."""
        if self._found is None:
            self._found = []
        if self._found and (self._found[-1][1] >= first - 1 or len(self._found) >= STRETCHES_MAX):
            first, before = self._found.pop()
            last = max(last, before)
        self._found.append((first, last))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._found or ())

    def behind(self, position: int) -> int | None:
        """Returns the next position behind one where something may be, or None; what is before it is forgotten."""
        while self._found and self._found[0][1] <= position:
            self._found.pop(0)
        if not self._found:
            self._found = None
            return None
        return max(self._found[0][0], position + 1)
