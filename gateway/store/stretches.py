"""Where in the log something may be for one consumer."""

from collections.abc import Iterable, Iterator

STRETCHES_MAX = 100  # of 64 bytes or more each, for every session that is away; beyond it the newest two become one


class Stretches:
    """Positions of messages, those that follow one another as one stretch. Each comes in behind where others begin."""

    __slots__ = ("_found",)

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        self._found: list[tuple[int, int]] | None = None  # most consumers wait for nothing
        for first, last in sorted(stretches):
            self.add(first, last)

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

    def next_behind(self, position: int) -> tuple[int, int] | None:
        """Returns the next stretch behind a position, or what is left of it; what is before it is forgotten."""
        first = self.behind(position)
        return (first, self._found[0][1]) if first is not None and self._found else None

    def behind(self, position: int) -> int | None:
        """Returns the next position behind one where something may be, or None; what is before it is forgotten."""
        while self._found and self._found[0][1] <= position:
            self._found.pop(0)
        if not self._found:
            self._found = None
            return None
        return max(self._found[0][0], position + 1)
