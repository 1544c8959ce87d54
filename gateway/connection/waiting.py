"""Messages of a connection that cannot be stored yet."""

from typing import Generic, TypeVar

from gateway.message import Message
from gateway.signals import Signal
from wire.codec.packets import Publish

WAITING_MOST = 2000  # messages; an MQTT 5 client stops by itself, at our Receive Maximum
WAITING_BYTES_MAX = 1024 * 1024  # of these; nothing is read from the client beyond either

Taker = TypeVar("Taker")


class Waiting(Generic[Taker]):
    """The messages of one connection that cannot be stored yet, in the order in which they came, whatever the streams.

    Each has its intake, and the time at which it came. ``room`` is set while more may be read from the client.
    """

    def __init__(self) -> None:
        self.messages: list[tuple[Taker, Publish, Message, int]] = []
        self._bytes = 0
        self.room = Signal()
        self.room.set()

    def add(self, intake: Taker, packet: Publish, message: Message, came_ms: int) -> None:
        self.messages.append((intake, packet, message, came_ms))
        self._bytes += message.size
        if self.are_many:
            self.room.clear()

    def remove_first(self) -> None:
        self._bytes -= self.messages.pop(0)[2].size

    @property
    def are_many(self) -> bool:
        return len(self.messages) >= WAITING_MOST or self._bytes > WAITING_BYTES_MAX
