"""A consumer's backlog, counted as messages come and go.

A message counts from the moment it is stored until it is acknowledged or dropped. Messages that waited before, such as
those at a start, are counted by one walk through the log while the consumer goes on. The walk adds a message only if it
still waits. So a message that is handed out or dropped before the walk has come to it is not subtracted.
"""

from collections.abc import Callable, Iterable, Sequence

from gateway.message import Message
from gateway.store.consumers.delivery import Backlog
from gateway.store.consumers.origins import OriginShares
from gateway.store.tables.log_rows import Part


class Walk:
    """A walk through the log up to the position ``end``; it has counted the messages up to ``position``."""

    __slots__ = ("end", "position")

    def __init__(self, position: int, end: int) -> None:
        self.position = position
        self.end = end


class Tally:
    """The count of one consumer's backlog: messages that wait, and messages in flight.

    Args:
        counts: whether it counts from now on, beginning with nothing.

    ``noticed`` is an upper estimate of the backlog, also while nothing is counted. ``changed`` is called whenever the
    count has changed, None: nothing is called. ``origins`` counts the messages that wait by origin, for both lanes
    of a route together; None where no origin has a limit. It is set while nothing is counted. ``arrived`` is how many
    messages have ended their flight since the start.
    """

    __slots__ = ("_counted", "_walk", "arrived", "changed", "noticed", "origins")

    def __init__(self, counts: bool) -> None:
        self._counted: Backlog | None = Backlog() if counts else None
        self._walk: Walk | None = None
        self.noticed = Backlog()
        self.arrived = 0
        self.changed: Callable[[], None] | None = None
        self.origins: OriginShares | None = None

    @property
    def backlog(self) -> Backlog | None:
        """The backlog, None where it is not counted, or where a walk has not ended yet."""
        return None if self._walk is not None else self._counted

    @property
    def so_far(self) -> Backlog:
        """The backlog; where that is not known, an upper estimate of its messages, and the bytes counted so far."""
        return self.backlog or Backlog(self.noticed.messages, self._counted.bytes if self._counted else 0)

    @property
    def counts(self) -> bool:
        """Whether messages that come and go are counted."""
        return self._counted is not None

    @property
    def notes_hand_outs(self) -> bool:
        """Whether ``note_handed_out`` has an effect."""
        return self._walk is not None or self.origins is not None

    @property
    def is_walking(self) -> bool:
        """Whether messages that waited before are still to be counted."""
        return self._walk is not None

    def begin(self, walk: Walk, in_flight: Iterable[int]) -> None:
        """Begins anew, with the sizes of the messages in flight; the walk adds the messages that wait up to its end."""
        self.noticed = self.backlog or self.noticed
        self.stop()
        self._walk, self._counted = walk, Backlog()
        for size in in_flight:
            self._counted.add(size)

    def add_walked(self, walk: Walk, part: Part) -> None:
        """Adds what waits where a walk has come to; no effect if another count has begun meanwhile."""
        if self._walk is walk:
            self._add(part)

    def end(self, walk: Walk) -> None:
        """A walk has come to its end: the count is exact."""
        if self._walk is walk:
            self._walk = None
            self._tell()

    def stop(self, walk: Walk | None = None) -> None:
        """Stops counting; if a walk is given, only if it is the one that counts."""
        if walk is None or self._walk is walk:
            self._counted = self._walk = None
            if self.origins is not None:
                self.origins.clear()

    def estimate(self) -> None:
        """Stops counting; ``noticed`` begins with the backlog, or with nothing."""
        self.noticed = self.backlog or Backlog()
        self.stop()

    def note_stored(self, parts: Iterable[Part]) -> None:
        """Counts messages that were stored behind the end of any walk."""
        for part in parts:
            self._add(part)
        self._tell()

    def note_handed_out(self, position: int, message: Message) -> None:
        """A message that waited is in flight: it counts from now on if the walk has not come to it."""
        if self._counted is None:
            return
        if self._is_ahead(position):
            self._counted.add(message.content_size)
        elif self.origins is not None:
            self.origins.subtract(message)

    def note_dropped(self, position: int, message: Message) -> None:
        """A message that waited does so no more."""
        self.note_left_out([(position, message)])

    def note_left_out(self, messages: Sequence[tuple[int, Message]]) -> None:
        """Messages that waited, each with its position, do so no more."""
        if self._counted is None:
            return
        gone = messages if self._walk is None else [one for one in messages if not self._is_ahead(one[0])]
        self._counted.subtract(sum([message.content_size for _, message in gone]), len(gone))
        if self.origins is not None:
            for _, message in gone:
                self.origins.subtract(message)
        if gone:
            self._tell()

    def note_acknowledged(self, messages: int, size: int) -> None:
        """Messages are no longer in flight."""
        self.arrived += messages
        if self._counted is not None:
            self._counted.subtract(size, messages)
            self._tell()

    def give(self, backlog: Backlog, other: "Tally") -> None:
        """Messages that wait here wait for another consumer from now on; both count exactly, and origins together."""
        assert self._counted is not None and other._counted is not None
        self._counted.subtract(backlog.bytes, backlog.messages)
        other._counted.add(backlog.bytes, backlog.messages)
        self._tell()

    def _add(self, part: Part) -> None:
        if self._counted is not None:
            self._counted.add(part.content_size, part.count)
            if self.origins is not None:
                self.origins.add(part)

    def _is_ahead(self, position: int) -> bool:
        """Whether a walk is to come to a position."""
        return self._walk is not None and self._walk.position < position <= self._walk.end

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()
