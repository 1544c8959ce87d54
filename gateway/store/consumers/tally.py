"""A consumer's backlog, counted as messages come and go.

A message counts from the moment it is stored until it is acknowledged or dropped. Messages that waited before, such as
those at a start, are counted by one walk through the log while the consumer goes on. The walk adds a message only if it
still waits. So a message that is handed out or dropped before the walk has come to it is not subtracted.

Where a route has limits for each origin, the messages that wait are counted by origin too, so that no origin pushes out
all others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway.message import Message
from gateway.store.consumers.delivery import Backlog
from gateway.store.consumers.redelivery import InFlight
from gateway.store.tables.log_rows import Part, PublishBatch

ORIGINS_MAX = 10_000  # of which messages wait; further ones are counted together, as one origin, until none waits
OTHERS = ""


def identifiers_used(in_flight: Mapping[int, InFlight], taken: int) -> int:
    """Returns how many packet identifiers are in use after so many messages, in order with those that were dropped."""
    for _, _, _, before in in_flight.values():
        return taken - before
    return 0


class Walk:
    """A walk through the log up to the position ``end``; it has counted the messages up to ``position``."""

    __slots__ = ("end", "position")

    def __init__(self, position: int, end: int) -> None:
        self.position = position
        self.end = end


class OriginShares:
    """The messages that wait for one consumer, by origin.

    Args:
        max_messages: the most messages of one origin, None: no limit.
        max_bytes: the most bytes of these.

    ``excess`` is how many messages, and how many bytes of these, are beyond the limits of their origins. Which messages
    these are shows when the consumer comes to them: of an origin that is beyond a limit the oldest one is dropped.
    Where bytes decide, their number is an estimate.
    """

    def __init__(self, max_messages: int | None, max_bytes: int | None) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._of: dict[str, Backlog] = {}
        self.excess = Backlog()

    def is_over(self, origin: str) -> bool:
        """Whether an origin is beyond a limit."""
        share = self._of.get(origin) or self._of.get(OTHERS)
        return share is not None and share.exceeds(self._max_messages, self._max_bytes)

    def add(self, part: Part) -> None:
        """Counts a message, or all messages of a batch."""
        if not isinstance(part, PublishBatch):
            self._add(part.origin, part.count, part.content_size)
        elif not part.bring_identities:
            self._add(part.gateway, part.count, part.content_size)
        else:
            for message in part.messages():
                self._add(message.origin, 1, message.content_size)

    def subtract(self, message: Message) -> None:
        """A message waits no more."""
        origin = message.origin if message.origin in self._of else OTHERS
        if share := self._of.get(origin):
            self._change(origin, share, -1, -message.content_size)

    def clear(self) -> None:
        """Begins anew, with nothing."""
        self._of.clear()
        self.excess = Backlog()

    def _add(self, origin: str, messages: int, size: int) -> None:
        # An origin is either among the others or by itself: it does not become one of its own while others wait.
        if origin not in self._of and (OTHERS in self._of or len(self._of) >= ORIGINS_MAX):
            origin = OTHERS
        self._change(origin, self._of.setdefault(origin, Backlog()), messages, size)

    def _change(self, origin: str, share: Backlog, messages: int, size: int) -> None:
        before = self._excess_of(share)
        share.add(size, messages)
        after = self._excess_of(share)
        self.excess.add(after.bytes - before.bytes, after.messages - before.messages)
        if not share.messages:
            del self._of[origin]

    def _excess_of(self, share: Backlog) -> Backlog:
        if not share.exceeds(self._max_messages, self._max_bytes):
            return Backlog()
        kept = 1.0
        if self._max_messages is not None:
            kept = min(kept, self._max_messages / share.messages)
        if self._max_bytes is not None and share.bytes:
            kept = min(kept, self._max_bytes / share.bytes)
        return Backlog(share.messages - int(kept * share.messages), share.bytes - int(kept * share.bytes))


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
