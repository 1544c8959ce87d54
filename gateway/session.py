"""What the gateway knows of one client between its connections."""

import asyncio
import sys
from typing import TYPE_CHECKING

from gateway.message import Message
from gateway.sender import Sender
from gateway.session_store import SessionDescription
from gateway.store.cursor import Cursor
from gateway.subscriptions import Subscription

if TYPE_CHECKING:
    from gateway.connection import Connection


class Session:
    """One client's session [section 4.1], durable if it was made with an expiry above zero.

    ``cursor`` holds the subscriptions of its own and what waits for them, ``shared`` those that it shares, by
    their whole topic filter. ``connection`` and ``sender`` are there while the client is.
    """

    def __init__(self, client_id: str, expiry_s: int, cursor: Cursor) -> None:
        self.client_id = client_id
        self.expiry_s = expiry_s
        self.cursor = cursor
        self.shared: dict[str, Subscription] = {}
        self.connection: Connection | None = None
        self.sender: Sender | None = None
        self.disconnected_ms: int | None = None
        self.expiry: asyncio.TimerHandle | None = None

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message, if the client is there and wants it."""
        if self.sender is not None and self.cursor.qos_for(sys.maxsize, message) is not None:
            self.sender.send_now(message)

    def describe(self) -> SessionDescription:
        """Returns what is kept of it across restarts."""
        subscriptions = list(self.cursor.filters.values())
        return SessionDescription(self.expiry_s, self.disconnected_ms, subscriptions, dict(self.shared))
