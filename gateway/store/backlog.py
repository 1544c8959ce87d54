"""How much waits for a consumer."""

from dataclasses import dataclass

from gateway.message import Message


@dataclass(slots=True)
class Backlog:
    """Messages that are not acknowledged yet, handed out or not, and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.messages += 1
        self.bytes += size

    def subtract(self, size: int) -> None:
        self.messages -= 1
        self.bytes -= size


def queued_size(message: Message) -> int:
    """Returns what a message counts for: the bytes of its payload, topic name and properties."""
    return len(message.payload) + len(message.topic) + message.properties_size
