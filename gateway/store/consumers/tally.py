"""A consumer's backlog, counted as messages come and go.

A message counts from the moment it is stored until it is acknowledged or dropped. Messages that waited before, such as
those at a start, are counted by one walk through the log while the consumer goes on. The walk adds a message only if it
still waits. So a message that is handed out or dropped before the walk has come to it is not subtracted.

Where origins or topic filters have limits, the messages are counted in quotas too.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.message import Message
from gateway.store.consumers.delivery import Backlog, Entry, ReasonToDrop
from gateway.store.consumers.quotas import OriginQuotas, Quotas, TopicQuotas
from gateway.store.tables.drops import EVICTED
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
        topics: counts the messages below topic filters with a limit, None where there are none.

    ``noticed`` is an upper estimate of the backlog, also while nothing is counted. ``changed`` is called whenever the
    count has changed, None: nothing is called. ``quotas`` are ``topics`` and ``origins``, as far as there are any.
    ``arrived`` is how many messages have ended their flight since the start.
    """

    __slots__ = ("_counted", "_walk", "arrived", "changed", "noticed", "origins", "quotas", "topics")

    def __init__(self, counts: bool, topics: TopicQuotas | None = None) -> None:
        self._counted: Backlog | None = Backlog() if counts else None
        self._walk: Walk | None = None
        self.noticed = Backlog()
        self.arrived = 0
        self.changed: Callable[[], None] | None = None
        self.count_in(topics, None)

    def count_in(self, topics: TopicQuotas | None, origins: OriginQuotas | None) -> None:
        """Counts in these quotas from now on; both lanes of a route have the same. Nothing is counted meanwhile."""
        self.topics, self.origins = topics, origins
        self.quotas: tuple[Quotas[Any], ...] = tuple(one for one in (topics, origins) if one is not None)

    @property
    def backlog(self) -> Backlog | None:
        """The backlog, None where it is not counted, or where a walk has not ended yet."""
        return None if self._walk is not None else self._counted

    @property
    def kept(self) -> Backlog | None:
        """The backlog without the messages that are beyond the limits of their quotas, None where it is not counted."""
        if not self.quotas or (backlog := self.backlog) is None:
            return self.backlog
        excess = [quotas.excess for quotas in self.quotas]
        return Backlog(
            backlog.messages - sum([one.messages for one in excess]), backlog.bytes - sum([one.bytes for one in excess])
        )

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
        return self._walk is not None or bool(self.quotas)

    def drops(self, reason: ReasonToDrop | None) -> ReasonToDrop | None:
        """Returns why messages that wait are dropped: a quota of one is beyond its limit, or there is this reason."""
        if not self.quotas:
            return reason

        def drop(message: Message) -> str | None:
            if any(quotas.is_over(message) for quotas in self.quotas):
                return EVICTED
            return reason(message) if reason is not None else None

        return drop

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
            for quotas in self.quotas:
                quotas.clear()

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
        is_ahead = self._is_ahead(position)
        if self._counted is not None and is_ahead:
            self._counted.add(message.content_size)
        for quotas in self.quotas:
            quotas.hand_out(position, message, has_waited=self._counted is not None and not is_ahead)

    def note_dropped(self, position: int, message: Message) -> None:
        """A message that waited does so no more."""
        self.note_left_out([(position, message)])

    def note_left_out(self, messages: Sequence[tuple[int, Message]]) -> None:
        """Messages that waited, each with its position, do so no more."""
        if self._counted is None:
            return
        gone = messages if self._walk is None else [one for one in messages if not self._is_ahead(one[0])]
        self._counted.subtract(sum([message.content_size for _, message in gone]), len(gone))
        for quotas in self.quotas:
            for _, message in gone:
                quotas.subtract(message)
        if gone:
            self._tell()

    def note_arrived(self, deliveries: Sequence[Entry]) -> None:
        """These deliveries are no longer in flight."""
        if self.topics is not None:
            for position, _, size, _ in deliveries:
                self.topics.acknowledge(position, size)
        size = sum([size for _, _, size, _ in deliveries]) if self._counted is not None else 0
        self.note_acknowledged(len(deliveries), size)

    def note_acknowledged(self, messages: int, size: int) -> None:
        """Messages that no limit below a topic filter counts are no longer in flight."""
        self.arrived += messages
        if self._counted is not None:
            self._counted.subtract(size, messages)
            self._tell()

    def give(self, backlog: Backlog, other: "Tally") -> None:
        """Moves waiting messages to the other lane's count; both lanes must be counting."""
        assert self._counted is not None and other._counted is not None
        self._counted.subtract(backlog.bytes, backlog.messages)
        other._counted.add(backlog.bytes, backlog.messages)
        self._tell()

    def _add(self, part: Part) -> None:
        if self._counted is not None:
            self._counted.add(part.content_size, part.count)
            for quotas in self.quotas:
                quotas.add(part)

    def _is_ahead(self, position: int) -> bool:
        """Whether a walk is to come to a position."""
        return self._walk is not None and self._walk.position < position <= self._walk.end

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()
