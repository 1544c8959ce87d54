"""What it takes to publish a message, whoever it comes from: a client, its will, the gateway itself."""

from typing import TYPE_CHECKING

from gateway.message import Message
from gateway.store import retained
from gateway.store.database import Work
from gateway.store.drops import REJECTED, RETAINED, Drop

if TYPE_CHECKING:
    from gateway.limits import Limits
    from gateway.store.log import MessageLog
    from gateway.subscribers import Subscribers


class Publishing:
    """Gives messages out. ``announced`` are the gateway's own by topic, which no store keeps.

    Args:
        subscribers: who gets those of QoS 0, which are not stored.
        log: where all others are.
        limits: how many are kept as retained ones.
    """

    def __init__(self, subscribers: "Subscribers", log: "MessageLog", limits: "Limits") -> None:
        self.announced: dict[str, Message] = {}
        self._subscribers = subscribers
        self._log = log
        self._limits = limits

    def announce(self, message: Message) -> None:
        """Publishes what the gateway says of itself; who subscribes later gets it as a retained message."""
        self.announced[message.topic] = message
        self._subscribers.offer(message)

    def is_own(self, topic: str) -> bool:
        """Whether the gateway says something of itself under a topic name, as of a route."""
        return topic in self.announced

    def publish(self, message: Message) -> list[Work]:
        """Gives a message of QoS 0 to its subscribers; returns what has to be written of one.

        Cursors bring it to theirs, once it is durable.
        """
        work: list[Work] = []
        if message.qos:
            work.append(message)
        else:
            self._subscribers.offer(message)
        if message.retain and self._limits.may_keep(message):
            work.append(retained.Keep(message))
        elif message.retain and message.qos:
            work.append(Drop(REJECTED, RETAINED, message))
        elif message.retain:
            self._log.drop(REJECTED, RETAINED, message)
        return work
