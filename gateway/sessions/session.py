"""A session: what the gateway keeps of one client between its connections."""

from typing import Protocol

from gateway.delivery import RetainedCursor, Sender
from gateway.holdings import Holding
from gateway.loop.timers import Timer
from gateway.message import Message
from gateway.network.conditions import NO_CONDITIONS
from gateway.network.link import FilterSum, LinkSettings, encode_link
from gateway.network.zones import LOCAL, Side
from gateway.sessions.released import Released
from gateway.store import Cursor, MessageLog, Outgoing, retained, sessions
from gateway.subscriptions import Demand, Subscription


class LiveConnection(Protocol):
    """What a session needs of the connection over which its client is here."""

    @property
    def owner(self) -> str:
        """The owner that the client counts for (``gateway.holdings``)."""

    @property
    def is_realtime(self) -> bool:
        """Whether the client came through a real-time listener."""

    def disconnect(self, reason_code: int) -> None:
        """Ends the connection with a reason code."""


class Session:
    """One client's session [section 4.1]; it is durable if its expiry is above zero when it is made.

    ``cursor`` has its own subscriptions and the messages that wait for them, ``shared`` its shared subscriptions by
    their whole topic filter. ``namings`` counts both by how they name their stream. ``demand`` is what both cost,
    ``holding`` the memory that is held for it. ``incoming`` has the packet identifiers of incoming QoS 2 messages
    that are not released, with the digests of their contents, ``released`` those released a moment ago if the session
    is durable, ``outgoing`` the QoS 2 messages in flight to the client, ``owed`` the retained messages
    to be sent. ``user`` is the user that made it, None without an account. ``link`` has the settings of the link
    whose other end it is, None for the session of an ordinary client;
    ``side`` is the link's, ``asked`` sums up its topic filters, ``conditions`` has the selectors of both ends, and
    ``is_aside`` says that the link closes a circle, so that no new messages go over it. ``is_realtime``: the client
    came through a real-time listener, so no neighbour is told what it wants. Up to ``former_head`` messages were stored
    when a former process had the session: it may have sent messages that wait now. ``connection`` and ``sender`` are
    set while the client is connected. ``left_at`` is the newest position when it left, 0 while it is here. ``unsaved``
    has the rows that the store does not have yet, by topic filter, "" for the session itself, each with the number of
    its last change.
    """

    __slots__ = (
        "_changes",
        "_log",
        "_noted",
        "_saved",
        "asked",
        "client_id",
        "conditions",
        "connection",
        "cursor",
        "demand",
        "disconnected_ms",
        "expiry",
        "expiry_s",
        "former_head",
        "holding",
        "incoming",
        "is_aside",
        "is_realtime",
        "left_at",
        "link",
        "namings",
        "outgoing",
        "owed",
        "released",
        "sender",
        "shared",
        "side",
        "unsaved",
        "user",
    )
    is_broker = False  # see ``gateway.connection.publish_answers``

    def __init__(
        self,
        log: MessageLog,
        client_id: str,
        user: str | None,
        expiry_s: int,
        cursor: Cursor,
        outgoing: Outgoing,
        holding: Holding,
    ) -> None:
        self._log = log
        self.client_id = client_id
        self.user = user
        self.expiry_s = expiry_s
        self.cursor = cursor
        self.outgoing = outgoing
        self.incoming: dict[int, bytes] = {}
        self.released: Released | None = None
        self.owed: dict[retained.Owed, None] = {}
        self.shared: dict[str, Subscription] = {}
        self.namings: dict[str, int] = {}
        self.demand = Demand()
        self.holding = holding
        self.link: LinkSettings | None = None
        self.side: Side = LOCAL
        self.asked = FilterSum()
        self.conditions = NO_CONDITIONS
        self.is_aside = False
        self.is_realtime = False
        self.former_head = 0
        self.connection: LiveConnection | None = None
        self.sender: Sender | None = None
        self.disconnected_ms: int | None = None
        self.left_at = 0
        self.expiry: Timer | None = None
        self.unsaved: dict[str, int] = {}
        self._changes = 0
        self._noted: sessions.SessionDescription | None = None
        self._saved: sessions.SessionDescription | None = None

    @property
    def durable(self) -> bool:
        """Whether it is stored, and so outlives this process."""
        return self.cursor.durable

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message if the client is connected and a subscription matches."""
        if message.is_realtime and self.link is not None:
            return  # it goes to all neighbours
        if self.sender is not None and not self.is_aside and (grant := self.cursor.grant_now(message)):
            if self.conditions.passes(message):
                self.sender.offer(message, grant)
            else:
                self.sender.hold_back(message)

    def count_naming(self, naming: str, more: int = 1) -> None:
        """Counts a subscription by how it names its stream."""
        self.namings[naming] = self.namings.get(naming, 0) + more

    def note_change(self, name: str) -> int:
        """Notes that a subscription, or with the name "" the session itself, differs from its row in the store.

        Returns the number of this change, for ``note_saved``.
        """
        if self.durable:
            self._changes += 1
            self.unsaved[name] = self._changes
        return self._changes

    def note_saved(self, changes: dict[str, int]) -> None:
        """Notes that the store has these changes now."""
        for name, change in changes.items():
            if self.unsaved.get(name) == change:
                del self.unsaved[name]
                if not name:
                    self._saved = self._noted

    @property
    def has_only_come_or_gone(self) -> bool:
        """Whether nothing is unsaved but the time at which its client left, or that it is back."""
        saved, noted = self._saved, self._noted
        return (
            self.unsaved.keys() == {""}
            and saved is not None
            and noted is not None
            and (saved.expiry_s, saved.user, saved.link) == (noted.expiry_s, noted.user, noted.link)
        )

    def note_description(self) -> None:
        """Notes a change of the session itself, if its description is not what it was at the last call."""
        description = self._describe()
        if description != self._noted:
            self._noted = description
            self.note_change("")

    def entry(self, name: str) -> sessions.SessionEntry | None:
        """Returns the contents of its row ``name``, None for a subscription that has ended."""
        return self.subscription(name) if name else self._describe()

    def owe(self, owed: list[retained.Owed]) -> None:
        """Owes retained messages that were found over a connection that has ended; the next may be here already."""
        if self.sender is not None:
            self.retained_for(self.sender).add(owed)
            self.sender.send_retained()
        else:
            self.owed.update(dict.fromkeys(owed))

    def retained_for(self, sender: Sender) -> RetainedCursor:
        """Returns the cursor of the retained messages that a sender of this session sends. A connection has none until
        it is owed some, or has subscribed: most devices only publish.
        """
        if sender.retained is None:
            sender.retained = self.new_retained()
        return sender.retained

    def new_retained(self) -> RetainedCursor:
        """Returns a cursor of the retained messages that are owed, for one connection."""
        return RetainedCursor(self._log, self.owed, self.holding, durable=self.durable)

    def namings_for(self, topic: str) -> list[tuple[str, str]]:
        """Returns the filters that may match a topic name, each with how it names its stream."""
        return [(one.topic_filter, one.naming) for one in (*self.cursor.matching(topic), *self.shared.values())]

    def subscription(self, topic_filter: str) -> Subscription | None:
        """Returns its subscription of a topic filter, its own or a shared one; None without one."""
        return self.shared.get(topic_filter) or self.cursor.filters.get(topic_filter)

    def _describe(self) -> sessions.SessionDescription:
        link = encode_link(self.link) if self.link else ""
        return sessions.SessionDescription(self.expiry_s, self.disconnected_ms, self.user, link, self.left_at)
