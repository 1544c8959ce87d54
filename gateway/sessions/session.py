"""What the gateway knows of one client between its connections."""

import asyncio
import sys
from typing import TYPE_CHECKING

from gateway.holdings import Account
from gateway.message import Message
from gateway.outgoing import Outgoing
from gateway.sender import Sender
from gateway.store.cursor import Cursor
from gateway.store.retained import Owed
from gateway.store.sessions import Entry, SessionDescription
from gateway.subscriptions import Demand, Subscription

if TYPE_CHECKING:
    from gateway.connection import Connection


class Session:
    """One client's session [section 4.1], durable if it was made with an expiry above zero.

    ``cursor`` holds the subscriptions of its own and what waits for them, ``shared`` those that it shares, by
    their whole topic filter; ``demand`` is what both cost, ``account`` the memory of all that is kept for it.
    ``incoming`` are the packet identifiers of the QoS 2 messages that came in and are not released, ``outgoing`` those
    on their way out, ``owed`` the retained messages that its subscriptions matched. ``user`` made it; None is a client
    without an account. ``connection`` and ``sender`` are there while the client is. ``unsaved`` are the rows of the
    store that have changed, by topic filter, "" for the session itself, each with the number of its last change.
    """

    def __init__(
        self, client_id: str, user: str | None, expiry_s: int, cursor: Cursor, outgoing: Outgoing, account: Account
    ) -> None:
        self.client_id = client_id
        self.user = user
        self.expiry_s = expiry_s
        self.cursor = cursor
        self.outgoing = outgoing
        self.incoming: set[int] = set()
        self.owed: dict[Owed, None] = {}
        self.shared: dict[str, Subscription] = {}
        self.demand = Demand()
        self.account = account
        self.connection: Connection | None = None
        self.sender: Sender | None = None
        self.disconnected_ms: int | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.unsaved: dict[str, int] = {}
        self._changes = 0
        self._noted: SessionDescription | None = None
        self._saved: SessionDescription | None = None

    @property
    def durable(self) -> bool:
        """Whether it outlives this process."""
        return self.cursor.durable

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message, if the client is there and wants it."""
        if self.sender is not None and (grant := self.cursor.grant(sys.maxsize, message)):
            self.sender.send_now(message, grant)

    def note_change(self, name: str) -> int:
        """A subscription, or with the name "" the session itself, is not as the store says.

        Returns the number of this change, for ``note_saved``.
        """
        if self.durable:
            self._changes += 1
            self.unsaved[name] = self._changes
        return self._changes

    def note_saved(self, changes: dict[str, int]) -> None:
        """The store says now what it was with these changes."""
        for name, change in changes.items():
            if self.unsaved.get(name) == change:
                del self.unsaved[name]
                if not name:
                    self._saved = self._noted

    @property
    def has_only_come_or_gone(self) -> bool:
        """Whether nothing is unsaved but when its client went, or that it is here."""
        saved, noted = self._saved, self._noted
        return (
            self.unsaved.keys() == {""}
            and saved is not None
            and noted is not None
            and (saved.expiry_s, saved.user) == (noted.expiry_s, noted.user)
        )

    def note_description(self) -> None:
        """Its description counts as changed where it is not what it was the last time."""
        description = self._describe()
        if description != self._noted:
            self._noted = description
            self.note_change("")

    def entry(self, name: str) -> Entry | None:
        """Returns what its row should say, None for a subscription that is there no more."""
        return self.subscription(name) if name else self._describe()

    def subscription(self, topic_filter: str) -> Subscription | None:
        """Returns its subscription of a topic filter, its own or a shared one, None where there is none."""
        return self.shared.get(topic_filter) or self.cursor.filters.get(topic_filter)

    def _describe(self) -> SessionDescription:
        return SessionDescription(self.expiry_s, self.disconnected_ms, self.user)
