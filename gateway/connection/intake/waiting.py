"""The messages of one connection that cannot be stored yet: they wait in bounded memory, unacknowledged.

Beyond the bound nothing is read from a peer that has nothing to acknowledge. From one that has, packets are read on,
because its acknowledgements may be what makes room; its messages beyond the bound are forgotten, and so are all that
come behind them. When all that waits is stored and answered, the connection ends, and the peer sends over its next one
what was not acknowledged, in its order.
"""

from typing import Protocol

from gateway.loop.signals import Signal
from gateway.message import Message
from wire.codec.packets import Publish

WAITING_MOST = 2000  # messages; an MQTT 5 client stops by itself, at our Receive Maximum
WAITING_BYTES_MAX = 1024 * 1024  # of these


class Taker(Protocol):
    """What takes a message that waits: the intake of its stream."""

    def take_or_refuse(self, packet: Publish, message: Message, came_ms: int, /) -> bool:
        """Takes or refuses a message; returns False while it has to wait on."""

    def wait_for_turn(self) -> None:
        """Tries again later."""


class Waiting:
    """The messages of one connection that cannot be stored yet, in the order in which they came, whatever the streams.

    Each has its intake, and the time at which it came. ``room`` is set while more may be read from the client.
    ``holds_up`` says whether a message that comes now waits behind others, or is forgotten; ``has_forgotten`` whether
    any was.
    """

    __slots__ = ("_bytes", "has_forgotten", "holds_up", "messages", "room")

    def __init__(self) -> None:
        self.messages: list[tuple[Taker, Publish, Message, int]] = []
        self._bytes = 0
        self.holds_up = self.has_forgotten = False
        self.room = Signal()
        self.room.set()

    def add(self, intake: Taker, packet: Publish, message: Message, came_ms: int) -> None:
        self.messages.append((intake, packet, message, came_ms))
        self._bytes += message.size
        self.holds_up = True

    def remove_first(self) -> None:
        self._bytes -= self.messages.pop(0)[2].size

    @property
    def are_many(self) -> bool:
        return len(self.messages) > WAITING_MOST or self._bytes > WAITING_BYTES_MAX
