"""What a full store drops while it is on its way to a client: it may arrive yet, and leaves a range once it cannot.

The identities are in a row of ``ending`` until then, which is written with the eviction: after a kill the next start
writes the range.
"""

from collections.abc import Callable

from gateway.message import Message
from gateway.store.endings import Identity, StoredEnding, Write, remove, save


class Unsettled:
    """What one consumer had on its way when the store dropped it.

    Args:
        number: what the row is stored by.
        consumer: the consumer.
        drop: notes that the consumer does not get a message.
        later: writes something with the next commit.
    """

    def __init__(
        self, number: int, consumer: str, drop: Callable[[str, Message], None], later: Callable[[Write], None]
    ) -> None:
        self.consumer = consumer
        self._number = number
        self._drop = drop
        self._later = later
        self._identities: list[Identity] = []
        self._left = 0
        self._is_saved = False

    def add(self, message: Message) -> "Missing":
        """Returns what is told how it ends with a message."""
        identity = Identity(message.publisher, message.origin, message.epoch, message.seq)
        self._identities.append(identity)
        self._left += 1
        return Missing(self, identity)

    def save(self) -> None:
        """Writes the row with the next commit, unless it is known of all messages already."""
        if not self._left:
            return
        self._is_saved = True
        self._later(save(self._number, StoredEnding(self.consumer, 0, [], [], [], [], evicted=self._identities)))

    def settle(self, missed: Identity | None) -> None:
        """It is known of one more message whether it has arrived; None where it has."""
        if missed is not None:
            self._drop(self.consumer, missed.message())
        self._left -= 1
        if not self._left and self._is_saved:
            self._later(remove(self._number))


class Missing:
    """One message that the store has dropped while it was on its way; one of the methods is called, once."""

    __slots__ = ("_identity", "_unsettled")

    def __init__(self, unsettled: Unsettled, identity: Identity) -> None:
        self._unsettled = unsettled
        self._identity = identity

    def arrived(self) -> None:
        """The client has acknowledged it, or another range tells of it."""
        self._unsettled.settle(None)

    def missed(self) -> None:
        """It cannot be acknowledged any more: a range says so."""
        self._unsettled.settle(self._identity)
