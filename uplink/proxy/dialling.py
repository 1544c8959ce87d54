"""The dialling end of a link: a route's neighbour is SUBSCRIBEd to what is wanted at this gateway.

The subscriptions are in the session that the neighbour keeps for the route. Over each connection only what has changed
is asked for. A gateway says in its CONNACK a sum of the filters that the session has. Requests are carried out in their
order, so this is the sum of the answered ones and of some without an answer. If it is another one, all filters are
asked for, and then all others ended. An ordinary broker says no sum: the route notes on disk which filters its session
may have, those of a connection's beginning in its note, and later ones in the store.

::

    Network ─ changes ─► DiallingEnd ─ SUBSCRIBE, UNSUBSCRIBE ─► Requests ─► neighbour
    RouteLink.hear ◄─── Inbound ◄────── $holdfast/interest ───────────────── neighbour
"""

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence

import msgspec

from gateway.links import (
    HEARD_PROPERTY,
    INTEREST_TOPIC,
    LINK_PROPERTY,
    LINKS_TOPIC,
    BadLink,
    Change,
    LinkSettings,
    Network,
    Zone,
    check_conditions,
    decode_link,
    encode_link,
)
from gateway.routes import Copies, Counters, LinkStatus, Message
from gateway.store import Cursor
from uplink.config.route import RouteConfig
from uplink.connect.connector import LinkDown
from uplink.proxy.asked import AskedInterest
from uplink.proxy.requests import Requests
from uplink.queue.route_queue import RouteQueue
from wire.codec.packets import Connack
from wire.hops import HOPS_PROPERTY
from wire.identity import find_user_property
from wire.reserved import STREAM_PROPERTY

logger = logging.getLogger(__name__)


class DiallingEnd:
    """This end of a link. It outlives the route's connections.

    Args:
        config: the route, with its neighbour.
        link: the link's name, which is the route's client identifier.
        network: what is wanted here.
        queue: what waits for the neighbour, and what it wants.
        counters: count what goes over the link.
        problem: returns why the link is down.
        copies: the retained messages that came over the link.

    ``asked`` asks the neighbour for what is wanted here.
    """

    def __init__(
        self,
        config: RouteConfig,
        link: str,
        network: Network,
        queue: RouteQueue,
        counters: Counters,
        problem: Callable[[], str],
        copies: Copies,
    ) -> None:
        assert config.neighbour is not None
        self.name = link
        self._config = config
        self._neighbour = config.neighbour
        self._network = network
        network.dialled.add(link)
        self._queue = queue
        self._counters = counters
        self._problem = problem
        self._heard = queue.link.interest
        self._ours = config.link_settings(network.gateway)
        self.side = self._ours.side(link)
        """The link's side."""
        self.asked = AskedInterest(config, self.side, network, queue.link.asked, queue.link.ended, copies)
        self._is_up = False
        self.since_ms = 0
        self.theirs: LinkSettings | None = None
        """The settings that the neighbour has sent over this connection; None from an ordinary broker."""

    @property
    def expects_gateway(self) -> bool:
        """Whether the other end is to be a gateway, and not an ordinary broker."""
        return self._neighbour.name is not None

    @property
    def mode(self) -> str:
        """The link's mode."""
        return self._ours.mode

    @property
    def cursor(self) -> Cursor:
        """Hands out the messages for the neighbour."""
        return self._queue.lanes.live

    @property
    def wanted_count(self) -> int:
        """How many topic filters the neighbour wants here."""
        return len(self._heard.subscriptions)

    def status(self) -> LinkStatus:
        """Returns how the link is doing."""
        state = self._queue.state
        return LinkStatus(
            self.name,
            self._queue.consumer,
            self._neighbour.name or self._config.broker,
            is_dialled_here=True,
            server=state.server if self._is_up else "",
            zone=self._ours.zone,
            hops=self._ours.hops,
            mode=self._ours.mode,
            connected=self._is_up,
            since_ms=self.since_ms,
            set_aside=self._network.links.why_aside(self.name),
            waiting_messages=state.backlog_messages,
            waiting_bytes=state.backlog_bytes,
            is_counted=True,
            wanted=self.wanted_count,
            asked=len(self.asked.session.answered or ()),
            refused=tuple(f"{one!r} ({reason})" for one, reason in self.asked.session.refused.items()),
            problem="" if self._is_up else self._problem() or "it has not connected yet",
        )

    def is_wanted(self, topic_filter: str) -> bool:
        """Whether the neighbour wants a filter here."""
        return topic_filter in self._heard.subscriptions

    def is_asked(self, topic_filter: str) -> bool:
        """Whether the neighbour has accepted a filter of this gateway."""
        return topic_filter in (self.asked.session.answered or ())

    def filters_beside(self) -> Iterable[str]:
        """Returns the filters of both, of which the gateway may not count some."""
        return [*(self.asked.session.answered or ()), *(self._heard.subscriptions if self._heard.is_aside else ())]

    def properties(self) -> list[tuple[str, str]]:
        """Returns the user properties for a CONNECT to a gateway."""
        link = encode_link(msgspec.structs.replace(self._ours, asked=self.asked.say(), streams=self._network.streams))
        stream = [(STREAM_PROPERTY, self._config.stream)] if self._config.stream else []
        return [(LINK_PROPERTY, link), (HEARD_PROPERTY, self._heard.mark), *stream]

    def check(self, connack: Connack) -> None:
        """Checks what the other end says of the link. Raises LinkDown: it is not the neighbour that is configured."""
        self.theirs = None
        name = self._neighbour.name
        if name is None:
            if find_user_property(connack.properties, HOPS_PROPERTY) is not None:
                raise LinkDown("the other end is a Holdfast gateway: expected its name [neighbour.name]")
            return
        text = find_user_property(connack.properties, LINK_PROPERTY)
        if text is None:
            raise LinkDown(f"expected the gateway {name!r}, and an ordinary broker answers [neighbour.name]")
        try:
            theirs = decode_link(text)
        except BadLink as error:
            raise LinkDown(f"the neighbour's CONNACK: {error}") from error
        names = name, *self._neighbour.fallback_names
        if theirs.name not in names:
            expected = " or ".join(map(repr, names))
            raise LinkDown(f"expected the gateway {expected}, and {theirs.name!r} answers [neighbour.name]")
        if differing := self._ours.disagreement(theirs):
            raise LinkDown(f"the link: {differing}")
        try:
            check_conditions(theirs)
        except BadLink as error:
            raise LinkDown(f"the neighbour's CONNACK: {error}") from error
        self.theirs = theirs
        self._network.note_streams(theirs.streams)

    def begin(self, requests: Requests, *, session_present: bool, noted: Sequence[str]) -> None:
        """A connection begins: asks for what the session lacks, and ends what is wanted no more. Raises LinkDown.

        Args:
            requests: asks the neighbour.
            session_present: whether the neighbour still has the session.
            noted: the filters that the session of an ordinary broker may have.
        """
        self._heard.begin()
        self._network.tell()
        self.asked.begin(requests, self.theirs, noted if session_present else ())
        self._note_up(is_up=True)
        self._network.links.add(self)
        requests.flush()

    def end(self) -> None:
        """The connection has ended."""
        self.asked.end()
        self._note_up(is_up=False)
        self._network.links.remove(self)

    @property
    def neighbour(self) -> str:
        """The gateway at the other end, "" an ordinary broker."""
        return self.theirs.name if self.theirs else ""

    @property
    def zone(self) -> Zone:
        """The link's zone."""
        return self._ours.as_zone

    def tell_links(self, payload: bytes) -> None:
        """Tells the neighbour link states."""
        if (requests := self.asked.requests) is not None:
            self._counters.link_states_sent += 1
            requests.tell(LINKS_TOPIC, payload)

    def hear(self, topic: str, payload: bytes) -> Coroutine[None, None, None] | None:
        """Takes what the neighbour tells of its network; returns what is to be awaited before anything else is taken.

        Raises BadAnnouncement, BadLinkStates.
        """
        if topic == INTEREST_TOPIC:
            self._counters.announcements_received += 1
            return self._queue.link.hear(payload, self._queue.lanes.cursors, self._queue.endings)
        if topic == LINKS_TOPIC:
            self._counters.link_states_received += 1
            self._network.links.hear(self, payload)
        return None

    def flood(self, message: Message) -> None:
        """Sends a real-time message to the neighbour, unless it is for the side that it came from."""
        self._counters.messages_flooded += self._queue.unqueued.flood(message)

    def set_aside(self, *, is_aside: bool) -> None:
        """Carries nothing from now on but what waits, or carries messages again."""
        self._queue.link.set_aside(self._queue.lanes.live, is_aside=is_aside)

    def tell(self, changes: Sequence[Change]) -> None:
        """Asks for what is newly wanted here, then ends what no longer is."""
        self.asked.tell(changes)

    def _note_up(self, *, is_up: bool) -> None:
        if is_up != self._is_up:
            self._is_up, self.since_ms = is_up, int(time.time() * 1000)
