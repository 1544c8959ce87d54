"""Topic names in order."""

from bisect import bisect_left, insort
from collections.abc import Iterator

BLOCK_MAX = 1000  # names; a larger block becomes two
BEHIND_SLASH = "0"  # the character behind "/": names below "a/" are those from "a/" to "a0"
BEHIND_DOLLAR = "%"  # the character behind "$"


class SortedNames:
    """A set of topic names. Names with the same first levels stand together, so a filter finds its names quickly.

    The names are in blocks: a list of all of them would be moved with each change.
    """

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []  # none of them is empty
        self._lasts: list[str] = []  # the last name of each block

    def add(self, name: str) -> None:
        """Adds a name that is not there."""
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        number = min(bisect_left(self._lasts, name), len(self._blocks) - 1)
        block = self._blocks[number]
        insort(block, name)
        if len(block) > BLOCK_MAX:
            half = len(block) // 2
            self._blocks[number : number + 1] = [block[:half], block[half:]]
            self._lasts.insert(number, block[half - 1])
            number += 1
        self._lasts[number] = self._blocks[number][-1]

    def remove(self, name: str) -> None:
        """Removes a name that is there."""
        number = bisect_left(self._lasts, name)
        block = self._blocks[number]
        del block[bisect_left(block, name)]
        if block:
            self._lasts[number] = block[-1]
        else:
            del self._blocks[number], self._lasts[number]

    def matching(self, topic_filter: str) -> Iterator[str]:
        """Yields the names that a topic filter matches [MQTT 5.0, section 4.7]."""
        waiting = [("", topic_filter)]  # the first levels of some names, and the filter of their other levels
        while waiting:
            before, rest = waiting.pop()
            head, plus, tail = rest.partition("+")
            start = before + head
            if plus:
                for name, is_whole in self._forks(start):
                    if is_whole:
                        yield from [name] if tail in ("", "/#") else []
                    elif tail:
                        waiting.append((name, tail[1:]))
            elif head.endswith("#"):
                yield from self._at_or_below(start[:-1], is_parent_in=head != "#")
            else:
                yield from [start] if self._next(start) == start else []

    def _forks(self, start: str) -> Iterator[tuple[str, bool]]:
        """Yields what stands at the level behind ``start``: whole names, and the first levels of longer ones."""
        name = self._next(start)
        while name is not None and name.startswith(start):
            level, slash, _ = name[len(start) :].partition("/")
            if not start and level.startswith("$"):  # [MQTT-4.7.2-1]
                name = self._next(BEHIND_DOLLAR)
                continue
            yield start + level + slash, not slash
            name = self._next(start + level + BEHIND_SLASH if slash else name + "\0")

    def _at_or_below(self, start: str, is_parent_in: bool) -> Iterator[str]:
        """Yields the names that begin with ``start``, which is empty or ends with a slash, and the one without it."""
        if not start:
            yield from self._between("", "$")
            yield from self._between(BEHIND_DOLLAR, None)
            return
        parent = start[:-1]
        if is_parent_in and self._next(parent) == parent:
            yield parent
        yield from self._between(start, parent + BEHIND_SLASH)

    def _between(self, first: str, behind: str | None) -> Iterator[str]:
        for number in range(bisect_left(self._lasts, first), len(self._blocks)):
            block = self._blocks[number]
            end = len(block) if behind is None else bisect_left(block, behind)
            yield from block[bisect_left(block, first) : end]
            if end < len(block):
                return

    def _next(self, name: str) -> str | None:
        """Returns the first name that is not before ``name``, None if there is none."""
        number = bisect_left(self._lasts, name)
        if number == len(self._blocks):
            return None
        block = self._blocks[number]
        return block[bisect_left(block, name)]
