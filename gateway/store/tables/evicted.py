"""Messages that a full store has evicted while they were in flight to a consumer.

Such a message may still be acknowledged; it leaves a range once that has become impossible. Until then its identity is
in the table ``ending``, in a row that is written with the eviction. So the next start after a kill writes the range.
"""

from collections.abc import Callable

from gateway.message import Message
from gateway.store.tables import endings
from gateway.store.tables.endings import Identity, StoredEnding, Write

MESSAGES_MAX = 32  # in one row, which is rewritten for each of them


class EvictedInFlight:
    """One row: up to ``MESSAGES_MAX`` messages that were evicted while they were in flight to one consumer.

    Args:
        number: the number of the row.
        consumer: the consumer's name.
        drop: notes that a consumer does not get a message.
        defer: writes a work with the next commit, together with the ranges noted before.
    """

    def __init__(
        self, number: int, consumer: str, drop: Callable[[str, Message], None], defer: Callable[[Write], None]
    ) -> None:
        self.consumer = consumer
        self._number = number
        self._drop = drop
        self._defer = defer
        self._open: dict[int, Identity] = {}
        self._count = 0
        self._is_saved = False

    @property
    def is_full(self) -> bool:
        """Whether it takes no more messages."""
        return self._count >= MESSAGES_MAX

    def add(self, message: Message) -> "EvictedMessage":
        """Adds a message; returns the object that is told how its delivery ends."""
        self._count += 1
        self._open[self._count] = Identity(message.publisher, message.origin, message.epoch, message.seq)
        return EvictedMessage(self, self._count)

    def save(self) -> None:
        """Writes the row with the next commit, or removes it if the delivery of each message has ended."""
        if self._open:
            self._is_saved = True
            identities = list(self._open.values())
            self._defer(endings.save(self._number, StoredEnding(self.consumer, 0, [], [], [], [], evicted=identities)))
        elif self._is_saved:
            self._defer(endings.remove(self._number))

    def end(self, key: int, *, is_lost: bool) -> None:
        """Notes that the delivery of a message has ended; if the client did not get it, a range says so."""
        identity = self._open.pop(key)
        if is_lost:
            self._drop(self.consumer, identity.message())
        if self._is_saved:
            self.save()


class EvictedMessage:
    """An evicted message in flight to a consumer. Exactly one of the two methods is called, once."""

    __slots__ = ("_key", "_row")

    def __init__(self, row: EvictedInFlight, key: int) -> None:
        self._row = row
        self._key = key

    def arrived(self) -> None:
        """The client has acknowledged the message, or another range counts it."""
        self._row.end(self._key, is_lost=False)

    def lost(self) -> None:
        """The message can no longer be acknowledged: a range says that the consumer does not get it."""
        self._row.end(self._key, is_lost=True)
