"""What keeps messages in the log besides the places of its consumers: QoS 2 flows, refused messages, scans."""

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.message import Message
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.qos2 import Flow


class Pinned(Protocol):
    """Messages that the log keeps wherever the cursors are: a QoS 2 flow's, or one that a route has set aside.

    ``source`` is the consumer.
    """

    @property
    def positions(self) -> Iterable[int]: ...

    @property
    def source(self) -> str: ...

    def note_evicted(self, message: EvictedMessage) -> None:
        """A full store evicts a message."""


class Keeper(Protocol):
    """An object that needs the messages behind a position for a while, and is not a consumer."""

    @property
    def position(self) -> int: ...

    def evict(self, position: int) -> None:
        """The log drops the messages up to a position."""


class Keepers:
    """What keeps messages besides the consumers' places.

    Args:
        flows: the QoS 2 flows in the file; their cursors are past their messages.
        gone: the last position that no consumer gets any more.
        changed: called when messages may be kept no longer.
    """

    def __init__(self, flows: Iterable[Flow], gone: int, changed: Callable[[], None]) -> None:
        self._gone = gone
        self._changed = changed
        self._keepers: set[Keeper] = set()
        self._soft: list[Keeper] = []
        self._pinned: dict[int, list[Pinned]] = {}
        for flow in flows:
            if flow.needs_message:
                self.pin(flow)

    def pin(self, pinned: Pinned) -> None:
        """Keeps messages until ``unpin``, wherever the cursors are; no effect on messages that are already evicted."""
        for position in pinned.positions:
            if position > self._gone:
                self._pinned.setdefault(position, []).append(pinned)

    def unpin(self, pinned: Pinned) -> None:
        """Ends ``pin``."""
        for position in pinned.positions:
            if others := self._pinned.get(position):
                others[:] = [other for other in others if other is not pinned]
                if not others:
                    del self._pinned[position]
        self._changed()

    def keep_for(self, keeper: Keeper) -> None:
        """Keeps all messages behind a keeper's position until ``keep_no_longer``."""
        self._keepers.add(keeper)

    def keep_no_longer(self, keeper: Keeper) -> None:
        """Ends ``keep_for``."""
        self._keepers.remove(keeper)
        self._changed()

    def keep_softly(self, keeper: Keeper) -> None:
        """Asks to keep the messages behind a keeper's position; evicting them is not recorded as a drop."""
        self._soft.append(keeper)

    def keep_softly_no_longer(self, keeper: Keeper) -> None:
        """Ends ``keep_softly``."""
        self._soft.remove(keeper)
        self._changed()

    def trim(self, last: int) -> None:
        """No consumer gets the messages up to a position."""
        self._gone = max(self._gone, last)

    def evict(
        self, messages: dict[int, Message], last: int, note_evicted: Callable[[str, Message], EvictedMessage]
    ) -> None:
        """The log drops messages, by position, up to ``last``.

        ``note_evicted`` makes the object that learns how the delivery of a pinned one ends.
        """
        for position in [position for position in self._pinned if position <= last]:
            for pinned in self._pinned.pop(position):
                if position in messages:
                    pinned.note_evicted(note_evicted(pinned.source, messages[position]))
        for keeper in (*self._keepers, *self._soft):
            keeper.evict(last)

    def pinned_between(self, first: int, last: int) -> set[int]:
        """Returns the pinned positions between two."""
        return {position for position in self._pinned if first <= position <= last}

    @property
    def pinned_from(self) -> int | None:
        """The first pinned position, None if there is none."""
        return min(self._pinned, default=None)

    def kept_from(self, head: int) -> int:
        """Returns the position behind which every message is kept, for objects that are no consumers."""
        return min([head, *(keeper.position for keeper in self._keepers)])

    def kept_softly_from(self, head: int) -> int:
        """Returns the position behind which every message stays in the log, unless it is evicted."""
        return min([head, *(keeper.position for keeper in self._soft)])
