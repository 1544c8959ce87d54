"""What a shared consumer was read past, as the member that fetched may not have it: it waits for another member."""

from collections.abc import Container


class SetAside(dict[str, tuple[int, int]]):
    """By topic name from which position to which all its messages wait."""

    @property
    def first(self) -> int:
        """The first position where one may wait; there must be one."""
        return min(first for first, _ in self.values())

    @property
    def last(self) -> int:
        """The last position where one may wait; there must be one."""
        return max(last for _, last in self.values())

    def holds(self, position: int, topic: str) -> bool:
        """Whether a topic name's message at a position waits."""
        found = self.get(topic)
        return found is not None and found[0] <= position <= found[1]

    def next_of(self, topics: Container[str]) -> int | None:
        """Returns the first position where a message of some topics may wait."""
        return min((first for topic, (first, _) in self.items() if topic in topics), default=None)

    def extend(self, position: int, topic: str) -> None:
        """A topic name's newest message waits too."""
        self[topic] = self.get(topic, (position, position))[0], position

    def move_on(self, position: int, topics: Container[str]) -> bool:
        """Up to a position nothing of some topics waits any more; returns whether one of them waits nowhere now."""
        is_over = False
        for topic, (first, last) in list(self.items()):
            if topic not in topics or first > position:
                continue
            if last > position:
                self[topic] = position + 1, last
            else:
                del self[topic]
                is_over = True
        return is_over
