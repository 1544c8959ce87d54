"""What it takes to publish a message, whoever it comes from: a client, its will, the gateway itself."""

from typing import TYPE_CHECKING

from gateway.message import Message
from gateway.store import retained
from gateway.store.database import Work

if TYPE_CHECKING:
    from gateway.subscribers import Subscribers


class Publishing:
    """Gives messages out. ``announced`` are the gateway's own by topic, which no store keeps.

    Args:
        subscribers: who gets those of QoS 0, which are not stored.
    """

    def __init__(self, subscribers: "Subscribers") -> None:
        self.announced: dict[str, Message] = {}
        self._subscribers = subscribers

    def announce(self, message: Message) -> None:
        """Publishes what the gateway says of itself; who subscribes later gets it as a retained message."""
        self.announced[message.topic] = message
        self._subscribers.offer(message)

    def publish(self, message: Message) -> list[Work]:
        """Gives a message of QoS 0 to its subscribers; returns what has to be written of one.

        Cursors bring it to theirs, once it is durable.
        """
        work: list[Work] = []
        if message.qos:
            work.append(message)
        else:
            self._subscribers.offer(message)
        if message.retain:
            work.append(retained.Keep(message))
        return work
