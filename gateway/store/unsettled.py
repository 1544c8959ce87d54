"""What a full store drops while it is on its way to a client: it may arrive yet, and leaves a range once it cannot.

The identities are in a row of ``ending`` until then, which is written with the eviction: after a kill the next start
writes the range.
"""

from collections.abc import Callable

from gateway.message import Message
from gateway.store.endings import Identity, StoredEnding, Write, remove, save

MESSAGES_MAX = 32  # in one row, which is written anew with each of them


class Unsettled:
    """Some messages that one consumer had on their way when the store dropped them, at most ``MESSAGES_MAX``.

    Args:
        number: what the row is stored by.
        consumer: the consumer.
        drop: notes that the consumer does not get a message.
        later: writes something with the next commit, with the ranges of what was noted before.
    """

    def __init__(
        self, number: int, consumer: str, drop: Callable[[str, Message], None], later: Callable[[Write], None]
    ) -> None:
        self.consumer = consumer
        self._number = number
        self._drop = drop
        self._later = later
        self._open: dict[int, Identity] = {}
        self._count = 0
        self._is_saved = False

    @property
    def is_full(self) -> bool:
        """Whether it takes no more messages."""
        return self._count >= MESSAGES_MAX

    def add(self, message: Message) -> "Missing":
        """Returns what is told how it ends with a message."""
        self._count += 1
        self._open[self._count] = Identity(message.publisher, message.origin, message.epoch, message.seq)
        return Missing(self, self._count)

    def save(self) -> None:
        """Writes the row with the next commit, unless it is known of all messages already."""
        if self._open:
            self._is_saved = True
            open_ones = list(self._open.values())
            self._later(save(self._number, StoredEnding(self.consumer, 0, [], [], [], [], evicted=open_ones)))
        elif self._is_saved:
            self._later(remove(self._number))

    def settle(self, key: int, *, is_missed: bool) -> None:
        """It is known of one more message whether it has arrived."""
        identity = self._open.pop(key)
        if is_missed:
            self._drop(self.consumer, identity.message())
        if self._is_saved:
            self.save()


class Missing:
    """One message that the store has dropped while it was on its way; one of the methods is called, once."""

    __slots__ = ("_key", "_unsettled")

    def __init__(self, unsettled: Unsettled, key: int) -> None:
        self._unsettled = unsettled
        self._key = key

    def arrived(self) -> None:
        """The client has acknowledged it, or another range tells of it."""
        self._unsettled.settle(self._key, is_missed=False)

    def missed(self) -> None:
        """It cannot be acknowledged any more: a range says so."""
        self._unsettled.settle(self._key, is_missed=True)
