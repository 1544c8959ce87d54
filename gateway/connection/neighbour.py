"""The listening end of a link: a neighbour that has connected to this gateway as a client.

The neighbour SUBSCRIBEs to what is wanted at its end, as any client. What is wanted here is announced to it: first what
it has not heard, right behind its CONNACK, then each change, ahead of all messages that wait for the line.
"""

import logging
import time
from collections.abc import Iterator, Sequence

import msgspec

from gateway.auth.admission import Admitted, Refused
from gateway.connection.accepted import Accepted
from gateway.connection.services import Services
from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.network import Network, link
from gateway.network.announcements import PIECE_SIZE, decode_mark
from gateway.network.interest import Change, changes_for
from gateway.network.link import (
    ANEW_PROPERTY,
    HEARD_PROPERTY,
    INTEREST_TOPIC,
    LINK_PROPERTY,
    LINKS_TOPIC,
    RENEW_PROPERTY,
    BadLink,
    LinkSettings,
    decode_link,
    encode_link,
)
from gateway.port import Port
from gateway.selectors import Selector
from gateway.sessions.absence import drop_waiting
from gateway.sessions.neighbour_link import NeighbourLink
from gateway.sessions.session import Session
from gateway.store import Grant, qos2
from wire import reasons
from wire.codec.packets import Connect, Publish, Unsubscribe
from wire.identity import find_user_property

BACKLOG_MAX = 1024 * 1024  # bytes that the line has not taken; meanwhile no announcement is made
PIECE_PART = 2  # of the neighbour's Maximum Packet Size: deflated texts may be longer than the texts

logger = logging.getLogger(__name__)


def admit_neighbour(services: Services, admitted: Admitted, *, is_realtime: bool) -> LinkSettings | None:
    """Returns the settings of the link if a client asks to be a neighbour, None for an ordinary one.

    Raises Refused: its property cannot be taken, no rule allows it, both ends have other settings, or it came through a
    real-time listener.
    """
    text = find_user_property(admitted.packet.properties, LINK_PROPERTY)
    if text is None:
        return None
    try:
        theirs = decode_link(text)
    except BadLink as error:
        raise Refused(reasons.IMPLEMENTATION_SPECIFIC_ERROR, str(error), is_told=True) from error
    if not admitted.permissions.may_be_neighbour(theirs.name):
        rule = f"allow {admitted.permissions.user or '-'} neighbour {theirs.name}"
        text = f"no access rule lets this user be the neighbour {theirs.name!r}: expected `{rule}`"
        raise Refused(reasons.NOT_AUTHORIZED, text, is_told=True)
    if is_realtime:
        text = "a real-time listener serves no neighbours: they need another one"
        raise Refused(reasons.IMPLEMENTATION_SPECIFIC_ERROR, text, is_told=True)
    if not admitted.packet.session_expiry_s:
        text = "a neighbour needs a session that outlives its connection"
        raise Refused(reasons.IMPLEMENTATION_SPECIFIC_ERROR, text, is_told=True)
    if theirs.name == services.config.name:
        text = f"this gateway is named {theirs.name!r} too: each gateway needs a name of its own"
        raise Refused(reasons.NOT_AUTHORIZED, text, is_told=True)
    if admitted.client_id in services.network.dialled:
        text = f"{admitted.client_id!r} is the name of a link that this gateway dials"
        raise Refused(reasons.CLIENT_IDENTIFIER_NOT_VALID, text, is_told=True)
    if differing := services.network.settings(theirs.name).disagreement(theirs):
        raise Refused(reasons.IMPLEMENTATION_SPECIFIC_ERROR, f"the link: {differing}", is_told=True)
    services.network.note_streams(theirs.streams)
    return theirs


async def read_conditions(settings: LinkSettings | None) -> list[Selector]:
    """Returns the selectors of a neighbour that may be one; the caller keeps them until its session has its conditions.

    Raises Refused: one cannot be read.
    """
    try:
        return await link.read_conditions(settings) if settings else []
    except BadLink as error:
        raise Refused(reasons.IMPLEMENTATION_SPECIFIC_ERROR, str(error), is_told=True) from error


def forget_packets(services: Services, session: Session, packet: Connect) -> None:
    """Forgets the packet identifiers of incoming QoS 2 messages if those of the neighbour begin anew.

    The neighbour has used them at another server, or for another store. It would lose a message under one of them.
    """
    if session.link is not None and session.incoming and find_user_property(packet.properties, ANEW_PROPERTY):
        session.incoming.clear()
        if session.released is not None:
            session.released.forget()
        services.log.defer(qos2.forget_incoming(session.client_id))


def answer_to(network: Network, session: Session) -> str:
    """Returns the property of the CONNACK for a neighbour's session."""
    assert session.link is not None
    settings = network.settings(session.link.settings.name)
    return encode_link(msgspec.structs.replace(settings, asked=session.link.asked.value))


class ListeningEnd:
    """This end of a link, for the time of one connection.

    Args:
        services: the parts of the gateway that it uses.
        session: the neighbour's.
        link: the link that the session has.
        accepted: the connection.
    """

    def __init__(self, services: Services, session: Session, link: NeighbourLink, accepted: Accepted) -> None:
        self._link = link
        self.name = session.client_id
        self.neighbour, self.zone, self.mode = link.settings.name, link.settings.as_zone, link.settings.mode
        self.since_ms = int(time.time() * 1000)
        self._counters = services.counters
        self._subscribers = services.subscribers
        self._copies = services.copies.of(session.client_id)
        self._copies.go_with_connection = self.mode == "active-passive"
        self._copies.told = lambda topic: services.network.told_of(topic, link.side)
        self._network = services.network
        self._session = session
        self._accepted = accepted
        connect = accepted.protocol.connect_packet
        assert connect is not None
        self._heard = decode_mark(find_user_property(connect.properties, HEARD_PROPERTY) or "")
        self._piece_size = min(PIECE_SIZE, accepted.protocol.maximum_packet_size_peer // PIECE_PART)
        self._asked_again = None if _asked(connect) == link.asked.value else set[str]()
        self._is_begun = False

    async def begin(self) -> None:
        """Announces what the neighbour has not heard, slice by slice; nothing else may be sent before."""
        slice_ = Slice()
        self._network.tell()
        self._network.links.add(self)
        self._copies.compare()
        mark = self._network.announcer.mark()
        for payload in self._news():
            self._announce(payload)
            if slice_.is_over:
                await slice_.give_way()
                if not self._accepted.protocol.connected:
                    return
        self._heard, self._is_begun = mark, True
        self.catch_up()

    @property
    def wanted_count(self) -> int:
        """How many topic filters the neighbour wants here."""
        return self._link.asked.count

    def tell(self, changes: Sequence[Change]) -> None:
        """Announces what has changed."""
        self._copies.tell(*changes_for(self._link.side, changes))
        if self._is_begun and self._accepted.port.backlog <= BACKLOG_MAX:
            self.catch_up()

    def catch_up(self) -> None:
        """Announces all that has changed; called too before a message goes out, when the line is free again."""
        mark = self._network.announcer.mark()
        if self._is_begun and mark != self._heard:
            for payload in self._news():
                self._announce(payload)
            self._heard = mark

    def stop(self) -> None:
        """The connection has ended."""
        self._network.links.remove(self)

    def tell_links(self, payload: bytes) -> None:
        """Tells the neighbour link states."""
        self._counters.link_states_sent += 1
        self._send(LINKS_TOPIC, payload)

    def hear(self, packet: Publish) -> bool:
        """Takes what the neighbour tells of its network; returns whether the packet is that. Raises BadLinkStates."""
        if packet.topic == LINKS_TOPIC:
            self._counters.link_states_received += 1
            self._network.links.hear(self, packet.payload)
        return packet.topic == LINKS_TOPIC

    def flood(self, message: Message) -> None:
        """Sends a real-time message to the neighbour, unless it is for the side that it came from."""
        session = self._session
        if session.sender is None or self._link.is_aside or message.publisher in session.cursor.not_from:
            return
        if not self._link.conditions.passes(message):
            session.sender.hold_back(message)
            return
        self._counters.messages_flooded += 1
        session.sender.send_now(message, Grant(0, False))

    def set_aside(self, *, is_aside: bool) -> None:
        """Carries nothing from now on but what waits, or carries messages again."""
        self._subscribers.set_aside(self._session, self._link, is_aside=is_aside)

    def note_subscribed(self, topic_filters: Sequence[str]) -> None:
        """The neighbour has subscribed to these filters."""
        if self._asked_again is not None:
            self._asked_again.update(topic_filters)

    def others_than(self, packet: Unsubscribe) -> list[str] | None:
        """Returns the filters to which the neighbour has not subscribed over this connection; None unless the packet
        asks to end these, whatever they are.
        """
        if find_user_property(packet.properties, RENEW_PROPERTY) is None:
            return None
        again, self._asked_again = self._asked_again, None
        return [] if again is None else [one for one in self._session.cursor.filters if one not in again]

    def _news(self) -> Iterator[bytes]:
        return self._network.announcer.news(self._link.side, self._heard, self._piece_size)

    def _announce(self, payload: bytes) -> None:
        self._counters.announcements_sent += 1
        self._send(INTEREST_TOPIC, payload)

    def _send(self, topic: str, payload: bytes) -> None:
        if self._accepted.protocol.connected:
            self._accepted.protocol.publish(topic, payload, qos=0)
            self._accepted.flush()


async def begin_link(services: Services, session: Session, accepted: Accepted) -> ListeningEnd | None:
    """Tells a neighbour what is wanted here; returns this end of the link, None for an ordinary client."""
    link = session.link
    if link is None:
        return None
    end = ListeningEnd(services, session, link, accepted)
    if end.mode == "active-passive":
        await drop_waiting(services.log, session)  # what came since the last look
    await end.begin()
    return end


class LinkLine:
    """The line to a neighbour, as messages see it: before one of them goes out, what has changed is announced.

    Args:
        port: the line.
        end: this end of the link.
    """

    def __init__(self, port: Port, end: ListeningEnd) -> None:
        self._port = port
        self._end = end

    @property
    def backlog(self) -> int:
        """Bytes that are not on the line yet."""
        return self._port.backlog

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the line has ended."""
        await self._port.drain()
        self._end.catch_up()


def _asked(packet: Connect) -> tuple[int, int]:
    text = find_user_property(packet.properties, LINK_PROPERTY)
    return decode_link(text).asked if text else (0, 0)
