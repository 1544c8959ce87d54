"""Messages that the cursor of a share group holds back: the fetching member may not have them, another one may.

A message that was handed out before and that the member may not have is refused, and waits for another member as well.
"""

from collections.abc import Container


class HeldBack(dict[str, tuple[int, int]]):
    """By topic name, the first and the last position between which all messages of the name are held back."""

    @property
    def first(self) -> int:
        """The first position where a message may be held back. Raises ValueError if no topic name is here."""
        return min(first for first, _ in self.values())

    @property
    def last(self) -> int:
        """The last position where a message may be held back. Raises ValueError if no topic name is here."""
        return max(last for _, last in self.values())

    def holds(self, position: int, topic: str) -> bool:
        """Whether the message of a topic name at a position is held back."""
        found = self.get(topic)
        return found is not None and found[0] <= position <= found[1]

    def next_of(self, topics: Container[str]) -> int | None:
        """Returns the first position where a message of some topic names may be held back, None if there is none."""
        return min((first for topic, (first, _) in self.items() if topic in topics), default=None)

    def extend(self, position: int, topic: str) -> None:
        """Holds back the message of a topic name at a position, which is behind all others."""
        self[topic] = self.get(topic, (position, position))[0], position

    def move_on(self, position: int, topics: Container[str]) -> bool:
        """Removes messages of some topic names up to a position; returns whether one of the names has none left."""
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
