"""Live messages wait until the retained messages of a new subscription are on their way."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from gateway.loop.pace import LineRoom
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.store import Delivery, Grant

Send = Callable[[Message, Grant], object]


class _Step:
    """One SUBSCRIBE: the newest position when it came, and the QoS 0 messages that came after it."""

    __slots__ = ("messages", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.messages: list[tuple[Message, Grant]] = []


class LiveHold:
    """Holds one client's live messages back behind the retained messages of its new subscriptions.

    Each SUBSCRIBE begins a step. Messages that are stored behind its position, and QoS 0 messages that come after it,
    wait until its retained messages have been sent. Earlier messages do not wait for it. So a message waits for the
    SUBSCRIBEs before it alone, however often the client subscribes again.

    Stored messages wait on disk. QoS 0 messages wait in memory: once there is no room for one, all of them are sent
    before the retained messages, and so are later ones until no step is left.

    Args:
        room: where they count.
        send: sends the QoS 0 messages that have waited.

    ``steps`` are the steps with retained messages that have not been sent; without a step nothing waits.
    """

    __slots__ = ("_is_given_up", "_news", "_room", "_send", "_size", "steps")

    def __init__(self, room: LineRoom, send: Send) -> None:
        self._room = room
        self.steps: list[_Step] = []
        self._size = 0
        self._is_given_up = False
        self._send: Send | None = send
        self._news: Signal | None = None

    def close(self) -> None:
        """The connection has ended: nothing waits any more."""
        self._send = None
        for step in self.steps:
            self._release(step)
        self.steps.clear()

    def begin(self, position: int) -> None:
        """A SUBSCRIBE has come when the newest message was at this position."""
        self.steps.append(_Step(position))

    def end(self) -> None:
        """The retained messages of the oldest step have been sent."""
        if not self.steps:
            return  # the connection has ended
        self._release(self.steps.pop(0))
        if not self.steps:
            self._is_given_up = False
        if self._news is not None:
            self._news.set()

    def keep(self, message: Message, grant: Grant, most: int) -> bool:
        """Keeps a QoS 0 message for later; False if it is to be sent now. All that wait have at most ``most`` bytes."""
        if not self.steps or self._is_given_up:
            return False
        if self._size + message.size > most or not self._room.keep(message.size):
            self._is_given_up = True
            for step in self.steps:
                self._release(step)
            return False
        self._size += message.size
        self.steps[-1].messages.append((message, grant))
        return True

    def apart(self, deliveries: Sequence[Delivery]) -> Iterator[list[Delivery]]:
        """Yields deliveries, in the order of their positions, so that each part waits for the same steps."""
        if not self.steps:
            yield list(deliveries)
            return
        positions = [step.position for step in self.steps]
        for _, part in groupby(deliveries, lambda one: sum(position < one.position for position in positions)):
            yield list(part)

    def holds(self, position: int) -> bool:
        """Whether the message at a position has to wait."""
        return bool(self.steps) and self.steps[0].position < position

    async def wait(self, position: int) -> None:
        """Waits until the message at a position may be sent."""
        while self.holds(position):
            if self._news is None:
                self._news = Signal()
            self._news.clear()
            await self._news.wait()
        self._news = None

    def _release(self, step: _Step) -> None:
        messages, step.messages = step.messages, []
        for message, grant in messages:
            self._size -= message.size
            self._room.keep(-message.size)
            if self._send is not None:
                self._send(message, grant)
