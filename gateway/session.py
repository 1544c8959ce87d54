"""What the gateway knows of one client between its connections."""

import asyncio
import sys
from typing import TYPE_CHECKING

from gateway.message import Message
from gateway.outgoing import Outgoing
from gateway.sender import Sender
from gateway.session_store import SessionDescription
from gateway.store.cursor import Cursor
from gateway.store.retained import Owed
from gateway.subscriptions import Subscription

if TYPE_CHECKING:
    from gateway.connection import Connection


class Session:
    """One client's session [section 4.1], durable if it was made with an expiry above zero.

    ``cursor`` holds the subscriptions of its own and what waits for them, ``shared`` those that it shares, by
    their whole topic filter. ``incoming`` are the packet identifiers of the QoS 2 messages that came in and are not
    released, ``outgoing`` those on their way out, ``owed`` the retained messages that its subscriptions matched.
    ``user`` is who made it, None for somebody without an account. ``connection`` and ``sender`` are there while the
    client is.
    """

    def __init__(self, client_id: str, user: str | None, expiry_s: int, cursor: Cursor, outgoing: Outgoing) -> None:
        self.client_id = client_id
        self.user = user
        self.expiry_s = expiry_s
        self.cursor = cursor
        self.outgoing = outgoing
        self.incoming: set[int] = set()
        self.owed: dict[Owed, None] = {}
        self.shared: dict[str, Subscription] = {}
        self.connection: Connection | None = None
        self.sender: Sender | None = None
        self.disconnected_ms: int | None = None
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def durable(self) -> bool:
        """Whether it outlives this process."""
        return self.cursor.durable

    def has_subscribed(self, topic_filter: str) -> bool:
        """Whether it has a subscription, of its own or a shared one."""
        return topic_filter in self.cursor.filters or topic_filter in self.shared

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message, if the client is there and wants it."""
        if self.sender is not None and (grant := self.cursor.grant(sys.maxsize, message)):
            self.sender.send_now(message, grant)

    def describe(self) -> SessionDescription:
        """Returns what is kept of it across restarts."""
        subscriptions = list(self.cursor.filters.values())
        return SessionDescription(self.expiry_s, self.disconnected_ms, subscriptions, dict(self.shared), self.user)
