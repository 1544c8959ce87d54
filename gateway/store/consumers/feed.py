"""What is published from now on, for a part of the gateway itself: stored messages, and those of QoS 0 as they come."""

from collections import deque
from collections.abc import Sequence

from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.log_reader import LogReader
from gateway.store.tables.drops import EVICTED

FETCH_MOST = 250  # stored messages at a time
WAITING_MOST = 10_000  # messages of QoS 0


class Feed:
    """The messages that match filters, until ``close``. Nothing waits for a feed: it is not durable.

    Args:
        log: the message log.
        consumer: the feed's name there.
        topics: the filters.
    """

    def __init__(self, log: LogReader[Cursor], consumer: str, topics: Sequence[str]) -> None:
        self._log = log
        self._waiting: deque[Message] = deque()
        self._news = Signal()
        self._cursor = Cursor(log, consumer, topics, durable=False)
        self._cursor.offered = self._offer
        self._cursor.wake_with(self._news.set)

    def _offer(self, message: Message) -> None:
        if len(self._waiting) >= WAITING_MOST:
            self.drop(EVICTED, message)
            return
        self._waiting.append(message)
        self._news.set()

    def wake(self) -> None:
        """Ends ``wait``, though there may be no message."""
        self._news.set()

    async def wait(self) -> None:
        """Waits until there may be messages."""
        await self._news.wait()
        self._news.clear()

    async def take(self) -> list[Message]:
        """Returns the next messages, none if there are no more. Raises sqlite3.Error."""
        if self._waiting:
            messages = list(self._waiting)
            self._waiting.clear()
            return messages
        deliveries = await self._cursor.fetch_now(FETCH_MOST)
        self._cursor.acknowledge_all([one.packet_identifier for one in deliveries])
        return [one.message for one in deliveries]

    def drop(self, reason: str, message: Message) -> None:
        """Counts a message that its consumer does not get."""
        self._log.drop(reason, self._cursor.consumer, message)

    def close(self) -> None:
        """Ends; what waits is forgotten."""
        self._cursor.wake_with(None)
        self._cursor.drop()
