"""Retained messages on their way to a client that has just subscribed [section 3.3.1.3]."""

from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Protocol

from gateway.message import Message
from gateway.store import Delivery, MessageLog, Work, retained

READ_MOST = 100  # messages in memory at once
READ_BYTES_MAX = 32 * 1024  # of these, unless it is a single one


class Account(Protocol):
    """What counts the messages of a session that are in memory."""

    def add(self, size: int, /) -> None:
        """Adds ``size`` bytes, which may be negative."""


class RetainedCursor:
    """The retained messages that a session is owed, handed out over one connection as a `Cursor` hands out the log's.

    Its deliveries have numbers of their own, which are no packet identifiers. ``superseded`` are
    topics whose retained message is owed, and of which a newer message has been sent meanwhile, each with how many
    searches had begun by then.

    Args:
        log: where the messages are.
        owed: the messages that the session is owed; an acknowledged one is taken out.
        account: the session's account, where they count.
        durable: whether the session outlives the process.
    """

    __slots__ = (
        "_account",
        "_handed_out",
        "_handed_over",
        "_is_expecting",
        "_is_fetching",
        "_log",
        "_numbers",
        "_owed",
        "_queue",
        "_searches",
        "_topics",
        "durable",
        "superseded",
    )

    consumer = ""  # of the flows of retained messages

    def __init__(self, log: MessageLog, owed: dict[retained.Owed, None], account: Account, *, durable: bool) -> None:
        self.durable = durable
        self._account = account
        self._log = log
        self._owed = owed
        self._queue: list[retained.Owed | Callable[[], None]] = list(owed)
        self._is_fetching = False
        self._topics = dict.fromkeys(one.topic for one in owed)  # of the messages to send; a set takes more memory
        self.superseded: dict[str, int] = {}
        self._is_expecting = False
        self._searches = 0
        self._numbers = count(1)
        self._handed_out: dict[int, retained.Owed] = {}
        self._handed_over: dict[int, None] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait to be handed out."""
        return bool(self._queue)

    @property
    def needs_window(self) -> bool:
        """Whether the next message may go at QoS 1 or 2."""
        return bool(next((one.qos for one in self._queue if isinstance(one, retained.Owed)), 0))

    def expect(self) -> None:
        """A SUBSCRIBE's matches are being searched for; ``add`` takes them."""
        self._is_expecting = True
        self._searches += 1

    def add(self, owed: list[retained.Owed]) -> None:
        """The session is owed more messages.

        A message that was sent before they were searched for is not newer, and may have gone for another subscription.
        """
        found = dict.fromkeys(one.topic for one in owed)
        self._owed.update(dict.fromkeys(owed))
        self._queue += owed
        self._is_expecting = False
        self._topics.update(found)
        self.superseded = {
            topic: searches
            for topic, searches in self.superseded.items()
            if topic in self._topics and (topic not in found or searches == self._searches)
        }

    def supersede(self, message: Message) -> None:
        """A new message of its topic goes to the client: the retained one, which is older, is not sent any more."""
        if message.retain and (self._is_expecting or message.topic in self._topics):
            self.superseded[message.topic] = self._searches

    def call_behind(self, call: Callable[[], None]) -> None:
        """Calls this once the messages that were added before it have been sent."""
        self._queue.append(call)
        if not self._is_fetching:
            self._call_next()

    def _call_next(self) -> None:
        while self._queue and not isinstance(call := self._queue[0], retained.Owed):
            del self._queue[0]
            call()

    async def fetch(self) -> list[Delivery]:
        """Returns the next messages once all earlier ones are sent; none when all are handed out.

        Raises sqlite3.Error.
        """
        self._is_fetching = True
        while self._queue:
            self._call_next()
            if not (batch := self._next()):
                break
            del self._queue[: len(batch)]
            found = await self._log.reader.read_retained([owed.topic for owed in batch], READ_BYTES_MAX)
            self._queue[:0] = [owed for owed in batch if owed.topic not in found]
            deliveries = []
            for owed in (one for one in batch if one.topic in found):
                number = next(self._numbers)
                self._handed_out[number] = owed
                position, message = found[owed.topic] or (0, None)
                if message is None or position != owed.position:
                    self.acknowledge_all([number])
                else:
                    identifiers = (owed.identifier,) if owed.identifier else ()
                    qos = min(owed.qos, message.qos)
                    deliveries.append(Delivery(position, number, message, False, qos, True, identifiers))
            if deliveries:
                return deliveries
        self._is_fetching = False
        self._topics.clear()
        if not self._is_expecting:
            self.superseded.clear()
        return []

    def _next(self) -> list[retained.Owed]:
        """Returns the messages that are read next: up to a call that comes behind them."""
        found: list[retained.Owed] = []
        for one in islice(self._queue, READ_MOST):
            if not isinstance(one, retained.Owed):
                break
            found.append(one)
        return found

    def hand_over(self, numbers: Iterable[int]) -> Work:
        """Returns the work that has to be written with the flows that these messages become."""
        numbers = list(numbers)
        self._handed_over.update(dict.fromkeys(numbers))
        return retained.forget_owed([self._handed_out[number].number for number in numbers])

    def acknowledge_all(self, numbers: Iterable[int]) -> None:
        """The session is not owed these messages any more."""
        forgotten = []
        for number in numbers:
            owed = self._handed_out.pop(number)
            del self._owed[owed]
            self._account.add(-owed.size)
            if owed.number and number not in self._handed_over:
                forgotten.append(owed.number)
        if forgotten:
            self._log.defer(retained.forget_owed(forgotten))

    def redeliver(self, numbers: Iterable[int]) -> None:
        """The session is still owed these messages: its next connection sends them."""
