"""A session: what the gateway keeps of one client between its connections."""

from typing import Protocol

from gateway.delivery import RetainedCursor, Sender
from gateway.holdings import Holding
from gateway.loop.timers import Timer
from gateway.message import Message
from gateway.network.link import encode_link
from gateway.network.zones import LOCAL, Side
from gateway.sessions.neighbour_link import NeighbourLink
from gateway.sessions.released import Released
from gateway.sessions.unsaved import Unsaved
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


class Absence:
    """The time in which a session has no connection.

    Args:
        left_at: the newest position in the log when its client left, 0 if that is not known.
        since_ms: the Unix time at which the connection ended, None while that does not matter for its expiry.

    ``expiry`` ends the session, None if nothing does.
    """

    __slots__ = ("expiry", "left_at", "since_ms")

    def __init__(self, left_at: int, since_ms: int | None = None) -> None:
        self.left_at = left_at
        self.since_ms = since_ms
        self.expiry: Timer | None = None


class Session:
    """One client's session [section 4.1]; it is durable if its expiry is above zero when it is made.

    ``cursor`` has its own subscriptions and the messages that wait for them, ``shared`` its shared subscriptions by
    their whole topic filter. ``namings`` counts both by how they name their stream. ``demand`` is what both cost,
    ``holding`` the memory that is held for it. ``incoming`` has the packet identifiers of incoming QoS 2 messages
    that are not released, with the digests of their contents, ``released`` those released a moment ago if the session
    is durable, ``outgoing`` the QoS 2 messages in flight to the client, ``owed`` the retained messages
    to be sent. ``user`` is the user that made it, None without an account. ``link`` is the link whose other end it is,
    None for the session of an ordinary client. ``is_realtime``: the client came through a real-time listener, so no
    neighbour is told what it wants. ``connection`` and ``sender`` are set while the client is connected, and
    ``absence`` while it is away. ``unsaved`` has the rows that the store does not have yet.
    """

    __slots__ = (
        "_log",
        "absence",
        "client_id",
        "connection",
        "cursor",
        "demand",
        "expiry_s",
        "holding",
        "incoming",
        "is_realtime",
        "link",
        "namings",
        "outgoing",
        "owed",
        "released",
        "sender",
        "shared",
        "unsaved",
        "user",
    )
    is_broker = False  # see ``gateway.connection.intake.publish_answers``

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
        self.link: NeighbourLink | None = None
        self.is_realtime = False
        self.connection: LiveConnection | None = None
        self.sender: Sender | None = None
        self.absence: Absence | None = None
        self.unsaved = Unsaved()

    @property
    def durable(self) -> bool:
        """Whether it is stored, and so outlives this process."""
        return self.cursor.durable

    @property
    def side(self) -> Side:
        """The side of this gateway's network that the client is on."""
        return LOCAL if self.link is None else self.link.side

    @property
    def is_aside(self) -> bool:
        """Whether it is the end of a link over which no new messages go."""
        return self.link is not None and self.link.is_aside

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message if the client is connected and a subscription matches."""
        link = self.link
        if link is not None and (link.is_aside or message.is_realtime):
            return  # a real-time message goes to all neighbours
        if self.sender is not None and (grant := self.cursor.grant_now(message)):
            if link is None or link.conditions.passes(message):
                self.sender.offer(message, grant)
            else:
                self.sender.hold_back(message)

    def count_naming(self, naming: str, more: int = 1) -> None:
        """Counts a subscription by how it names its stream."""
        self.namings[naming] = self.namings.get(naming, 0) + more

    def note_change(self, name: str) -> int:
        """Notes that a subscription, or with the name "" the session itself, differs from its row in the store.

        Returns the number of this change, for ``unsaved.note_saved``.
        """
        return self.unsaved.note(name) if self.durable else 0

    def entry(self, name: str) -> sessions.SessionEntry | None:
        """Returns the contents of its row ``name``, None for a subscription that has ended."""
        return self.subscription(name) if name else self.describe()

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

    def describe(self) -> sessions.SessionDescription:
        """Returns the row of the session itself."""
        link = encode_link(self.link.settings) if self.link else ""
        since_ms, left_at = (self.absence.since_ms, self.absence.left_at) if self.absence else (None, 0)
        return sessions.SessionDescription(self.expiry_s, since_ms, self.user, link, left_at)
