"""The gateway's counters: plain numbers, added up where things happen and read by metrics and ``$SYS`` topics."""

import math
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

DROP_REASONS = (
    "expired",
    "evicted",
    "rejected",
    "filtered",
    "oversize",
    "ended",
    "damaged",
    "selected",
    "unrouted",
    "unproven",
)
COMMIT_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Histogram:
    """Counts values by the range that they are in.

    Args:
        bounds: the upper bound of each range, rising; larger values are counted in one more range.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True)
class Counters:
    """What has happened since the start; no number here ever falls.

    ``messages_*`` are PUBLISHes, by QoS; ``packets_*`` are control packets of all kinds. ``payload_bytes_*`` are the
    bytes of PUBLISH payloads, ``bytes_*`` all bytes of MQTT. ``connections_refused`` counts by reason code.
    ``messages_dropped`` counts by the kind of the range that is left in the store. ``beyond_limits`` counts the
    messages among them that were dropped beyond a limit of their consumer: first routes, then all other consumers.
    """

    connections_opened: int = 0
    connections_accepted: int = 0
    connections_refused: dict[int, int] = field(default_factory=dict)
    sessions_expired: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    packets_sent: int = 0
    messages_received: list[int] = field(default_factory=lambda: [0, 0, 0])
    messages_sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    payload_bytes_received: int = 0
    payload_bytes_sent: int = 0
    messages_stored: int = 0
    identities_replaced: int = 0
    links_rejected: int = 0
    messages_returned: int = 0
    messages_duplicate: int = 0
    messages_conflict: int = 0
    messages_flooded: int = 0
    announcements_sent: int = 0
    announcements_received: int = 0
    link_states_sent: int = 0
    link_states_received: int = 0
    qos_0_stored: int = 0
    messages_dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DROP_REASONS, 0))
    beyond_limits: list[int] = field(default_factory=lambda: [0, 0])
    commit_s: Histogram = field(default_factory=lambda: Histogram(COMMIT_BOUNDS_S))

    def note_received(self, qos: int, payload_size: int, count: int = 1) -> None:
        """Counts PUBLISHes that came in, and the bytes of all their payloads."""
        self.messages_received[qos] += count
        self.payload_bytes_received += payload_size

    def note_sent(self, qos: int, payload_size: int, count: int = 1) -> None:
        """Counts PUBLISHes that were sent, and the bytes of all their payloads."""
        self.messages_sent[qos] += count
        self.payload_bytes_sent += payload_size

    def note_dropped(self, reason: str, consumer: str) -> None:
        """Counts a message that one consumer does not get."""
        self.messages_dropped[reason] += 1
        if reason == "evicted":
            self.beyond_limits[not consumer.removeprefix("backfill/").startswith("route/")] += 1

    def refused(self, reason_code: int) -> None:
        """Counts a connection that was refused with a reason code."""
        self.connections_refused[reason_code] = self.connections_refused.get(reason_code, 0) + 1


@dataclass(slots=True)
class RouteState:
    """How a route is doing.

    ``server`` is the URL of the server to which it is ``connected``, "" without a connection.
    ``backlog_messages`` counts the messages that the other broker has not acknowledged, ``backlog_bytes`` the bytes of
    their payloads, topic names and properties. ``oldest_ms`` is when the first gateway accepted the oldest of them
    (unix time, 0: none waits). ``acknowledged_ms`` is when the other broker last acknowledged a message (unix time, 0:
    not yet). ``reconnects`` counts the connections after the first one, ``retries`` the messages that were sent again.
    ``refused_messages`` counts the messages that were set aside because the other broker will never take them.
    ``stands`` says why no message goes out although the broker can be reached ("": messages go out). ``arrived_per_s``
    is how many messages the backlog has lost a second in the last minute, because the other broker has them or they
    were set aside. ``last_error`` is why a connection failed or ended, or the route stood, and ``last_error_ms`` when
    (unix time); "" and 0: it did not yet.
    ``backfill_messages`` counts those of ``backlog_messages`` that are in the backfill of a route that sends fresh
    messages first.
    ``login_refused`` is why the other broker refuses the route's login; "": it does not, or it cannot be reached.
    ``fault`` says which unexpected failure of the gateway itself ended the newest attempt ("": none did).
    ``qos_0_sent`` and ``qos_0_dropped`` count messages of QoS 0 that were not stored for the route.
    ``received_messages`` counts the messages that came down. ``receive_problem`` says what does not come down over this
    connection, and ``receive_note`` what comes down otherwise than asked for; "": nothing. ``statement_note`` says
    which statements do not go out, as the other broker does not take them; "": all go.
    ``unproven_messages`` and ``unproven_bytes`` are what is kept for a receipt, and ``unproven_ms`` is when the first
    gateway accepted the oldest of these (unix time, 0: none). ``unproven_sent`` counts the messages that went again as
    the tables had passed over them. ``landed_ms`` is up to which time all that was landed is in the tables, as the
    newest receipt says (unix time, 0: none said so).
    """

    name: str
    connected: bool = False
    backlog_messages: int = 0
    backlog_bytes: int = 0
    oldest_ms: int = 0
    acknowledged_ms: int = 0
    reconnects: int = 0
    retries: int = 0
    refused_messages: int = 0
    qos_0_sent: int = 0
    qos_0_dropped: int = 0
    stands: str = ""
    fault: str = ""
    login_refused: str = ""
    arrived_per_s: float = 0.0
    last_error: str = ""
    last_error_ms: int = 0
    received_messages: int = 0
    receive_problem: str = ""
    receive_note: str = ""
    statement_note: str = ""
    backfill_messages: int = 0
    unproven_messages: int = 0
    unproven_bytes: int = 0
    unproven_ms: int = 0
    unproven_sent: int = 0
    landed_ms: int = 0
    server: str = ""

    def note_error(self, text: str) -> None:
        """Notes why a connection failed or ended, or why the route stands."""
        self.last_error, self.last_error_ms = text, int(time.time() * 1000)

    @property
    def live_messages(self) -> int:
        """How many of the messages that wait are not in the backfill."""
        return self.backlog_messages - self.backfill_messages

    @property
    def drain_s(self) -> float:
        """Seconds until all that waits now has gone, if it goes on as in the last minute; infinite if nothing went."""
        if not self.backlog_messages:
            return 0.0
        return self.backlog_messages / self.arrived_per_s if self.arrived_per_s else math.inf

    @property
    def backlog_age_s(self) -> float:
        """Seconds since the first gateway accepted the oldest message that waits."""
        return max(0.0, time.time() - self.oldest_ms / 1000) if self.oldest_ms else 0.0

    @property
    def unproven_age_s(self) -> float:
        """Seconds since the first gateway accepted the oldest message that is kept until a receipt."""
        return max(0.0, time.time() - self.unproven_ms / 1000) if self.unproven_ms else 0.0


class RouteAbout(NamedTuple):
    """What a route says of itself beside its state.

    ``broker`` is the URL of its broker, as configured. ``problem`` is why it has no connection, "" if it has or has not
    tried yet. ``waits_for`` is why it may not connect now, as is configured ("": it may). ``until_receipt``: it keeps
    messages until a receipt from the tables.
    """

    broker: str = ""
    problem: str = ""
    waits_for: str = ""
    until_receipt: bool = False


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """How the link to one neighbour is doing, as this gateway sees it.

    ``name`` is "" for a neighbour that is configured here and has not dialled. ``consumer`` is the name of the link in
    the table ``dropped``. ``neighbour`` is the gateway at the other end, or the URL of an ordinary broker, ``server``
    the URL to which the link is connected, if this gateway dials. ``since_ms`` is since when it is connected, or is not
    (Unix time, 0: it is not known). ``set_aside`` says why it carries no messages ("": it carries them).
    ``waiting_messages`` and ``waiting_bytes`` are what the neighbour has not acknowledged: exact if ``is_counted``, or
    else the most that it can be. ``wanted`` is how many topic filters the neighbour wants here, and ``asked`` how many
    this gateway wants there. ``refused`` has the filters that the neighbour refuses, with the reasons, and ``problem``
    is why the link is down.

    Two fields have their defaults unless the store was asked: ``oldest_ms``, when the first gateway accepted the oldest
    message that waits (Unix time, 0: none waits), and ``dropped``, the messages in the consumer's ranges by reason.
    """

    name: str
    consumer: str
    neighbour: str
    is_dialled_here: bool
    server: str
    zone: str
    hops: str
    mode: str
    connected: bool
    since_ms: int
    set_aside: str
    waiting_messages: int
    waiting_bytes: int
    is_counted: bool
    wanted: int
    asked: int
    refused: tuple[str, ...] = ()
    problem: str = ""
    oldest_ms: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamState:
    """How one stream is doing. ``is_full``: its store refuses messages, or drops the oldest or lets publishers wait."""

    name: str
    sessions: int = 0
    subscriptions: int = 0
    retained_messages: int = 0
    stored_messages: int = 0
    stored_bytes: int = 0
    received: int = 0
    sent: int = 0
    stored: int = 0
    dropped: int = 0
    is_full: bool = False


@dataclass(slots=True)
class MulticastState:
    """How a multicast group is doing.

    ``receivers`` are connected. ``key_number`` is the number of the key in use. ``datagrams_sent`` includes heartbeats.
    ``oversize_messages`` fitted no datagram, and went over TLS to the receivers that were connected. ``problem`` says
    why datagrams do not leave ("": they leave).
    """

    name: str
    receivers: int = 0
    key_number: int = 1
    datagrams_sent: int = 0
    messages_sent: int = 0
    bytes_sent: int = 0
    oversize_messages: int = 0
    keys_handed_out: int = 0
    problem: str = ""


@dataclass(slots=True)
class ConnectorUnit:
    """How a unit of a connector is doing, or its line where the device speaks by itself: counts since the start.

    ``polls`` counts requests, or lines; ``errors`` the ones that gave no readings, for whatever reason. ``silences``,
    ``corrupt`` and ``exceptions`` are reasons. ``gaps`` counts the gaps that were told, ``missed`` the polls for which
    there was no time, and ``late_most_s`` is by how much a poll was late at most. ``problem`` is why the last one
    failed, "" if it did not. ``commands`` counts the answered commands by what their answers say was written.
    """

    device: str
    polls: int = 0
    errors: int = 0
    silences: int = 0
    corrupt: int = 0
    exceptions: int = 0
    gaps: int = 0
    missed: int = 0
    late_most_s: float = 0.0
    problem: str = ""
    commands: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class ConnectorState:
    """How a connector is doing. ``problem`` is why its port cannot be used, or nothing is stored; "" while it works."""

    name: str
    problem: str
    units: list[ConnectorUnit]


@dataclass(slots=True)
class State:
    """The gateway's state at one moment. ``subscriptions`` includes the shared ones."""

    connections: int = 0
    connections_most: int = 0
    sessions: int = 0
    subscriptions: int = 0
    shared_subscriptions: int = 0
    retained_messages: int = 0
    stored_messages: int = 0
    stored_bytes: int = 0
    routes: list[RouteState] = field(default_factory=list)
    links: list[LinkStatus] = field(default_factory=list)
    streams: list[StreamState] = field(default_factory=list)
    multicast: list[MulticastState] = field(default_factory=list)
    connectors: list[ConnectorState] = field(default_factory=list)

    @property
    def sessions_away(self) -> int:
        """Sessions whose client is not connected."""
        return self.sessions - self.connections
