"""What was stored or read last, in memory: consumers that keep up, or go side by side, never wait for the disk."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator

from gateway.store.groups import Group

TAIL_GROUPS_MAX = 1024
TAIL_MESSAGES_MAX = 20_000
TAIL_BYTES_MAX = 4 * 1024 * 1024


class Tail:
    """Groups of messages; those used longest ago leave first."""

    def __init__(self) -> None:
        self._groups: OrderedDict[int, Group] = OrderedDict()  # by their last position, latest use last
        self._lasts: list[int] = []
        self._messages = 0
        self._bytes = 0

    def add(self, group: Group) -> None:
        """Adds a group that is as it is in the file."""
        if group.last in self._groups:
            return
        self._groups[group.last] = group
        self._lasts.insert(bisect_left(self._lasts, group.last), group.last)
        self._messages += group.message_count
        self._bytes += group.size
        while self._is_full() and len(self._groups) > 1:
            last, oldest = self._groups.popitem(last=False)
            del self._lasts[bisect_left(self._lasts, last)]
            self._messages -= oldest.message_count
            self._bytes -= oldest.size

    def behind(self, position: int) -> Iterator[Group]:
        """Yields groups that follow one another, from that of the next message on: none where that is not here."""
        index = bisect_left(self._lasts, position + 1)
        while index < len(self._lasts):
            group = self._groups[self._lasts[index]]
            if group.first > position + 1:
                break
            self._groups.move_to_end(group.last)
            yield group
            position = group.last
            index += 1

    def _is_full(self) -> bool:
        return len(self._groups) > TAIL_GROUPS_MAX or self._messages > TAIL_MESSAGES_MAX or self._bytes > TAIL_BYTES_MAX
