"""A connected client in all streams that it uses: its packets go to the part of the stream that they concern.

::

                                 ┌─► Client ─► session, limits and store of the implied stream
    packets of a connection ─► Parts
                                 └─► Client ─► session, limits and store of another stream that a packet has named

The parts share the connection: its packet identifiers, the order of its acknowledgements, and its line. All else is
apart. A part in another stream than the implied one has a visiting session there, which lives as long as that of the
implied stream.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import groupby

from gateway.auth.admission import Refused
from gateway.auth.permissions import Permissions, Topics
from gateway.connection.accepted import Accepted
from gateway.connection.client import Client
from gateway.connection.neighbour import ListeningEnd
from gateway.connection.presence import Presence
from gateway.connection.services import Services
from gateway.sessions.session import Session
from gateway.streams.names import BadStream, Place, check_served, place_of, stream_named
from gateway.streams.naming import enter, names_stream
from wire.bulk.connection import Acknowledgements
from wire.bulk.reader import Publishes
from wire.codec.packets import Packet, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe
from wire.packet_types import PUBACK, PUBREL
from wire.reasons import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID


class Parts:
    """Serves a connected client in all streams that it uses, as a `Client` does in one.

    Args:
        home: the parts of the gateway that serve the implied stream.
        presence: the client's sessions.
        permissions: what it may do in the implied stream.
        accepted: its connection.
        topics: the topic names of the implied stream that may take the fast path.
        end: this end of the link, if the client is a neighbour.
    """

    __slots__ = ("_accepted", "_home", "_others", "_permissions", "_presence")

    def __init__(
        self,
        home: Services,
        presence: Presence,
        permissions: Permissions,
        accepted: Accepted,
        topics: Topics,
        end: ListeningEnd | None,
    ) -> None:
        self._accepted = accepted
        self._permissions = permissions
        self._presence = presence
        session = presence.session
        assert session is not None
        self._home = Client(home, accepted, session, permissions, topics, end)
        self._others: dict[str, Client] = {}
        for stream, visiting in presence.visiting.items():
            self._begin(stream, visiting)

    async def handle(self, packet: Packet) -> None:
        """Acts on a packet. Raises sqlite3.Error when what it asks for could not be saved."""
        match packet:
            case Publish() if names_stream(packet):
                await self._publish(packet)
            case Subscribe() | Unsubscribe() if self._is_elsewhere(packet):
                await self._subscribe_each(packet)
            case Pubrel():
                await self._releasing(packet.packet_identifier).handle(packet)
            case Pubrec() | Pubcomp():
                await self._sending(packet.packet_identifier).handle(packet)
            case _:
                await self._home.handle(packet)

    def may_take(self, topics: Collection[str]) -> bool:
        """Whether messages of these topics may take the fast path now."""
        return self._home.intake.may_take(topics)

    def take(self, step: Publishes | Acknowledgements) -> None:
        """Acts on many packets of one kind, on the fast path."""
        if isinstance(step, Publishes):
            self._home.intake.take_publishes(step)
            return
        if not self._others or step.packet_type == PUBACK:
            self._home.take(step)
            return
        part_of = self._releasing if step.packet_type == PUBREL else self._sending
        for part, identifiers in groupby(step.identifiers, part_of):
            part.take(step._replace(identifiers=list(identifiers)))

    def note_packet(self) -> None:
        """Counts a packet other than a PUBLISH or an acknowledgement for the client's rate."""
        self._home.intake.note_packet()

    def end_batch(self) -> None:
        """Submits the work of the packets that came together."""
        self._home.end_batch()

    async def wait_for_subscribers(self) -> None:
        """Waits while many of the owner's QoS 0 messages have not been handed to their subscribers."""
        for part in self._all():
            await part.intake.wait_for_subscribers()

    @property
    def may_read_on(self) -> bool:
        """Whether the gateway may read more from this client."""
        return self._home.may_read_on and (not self._others or all(one.may_read_on for one in self._others.values()))

    async def wait_for_room(self) -> None:
        """Waits while the gateway should not read more from this client."""
        for part in self._all():
            await part.services.log.writer.wait_for_room()
            await part.intake.wait_for_room()

    def stop(self) -> None:
        """Ends with the connection. What came over it is written before anything that comes over the next one."""
        for part in self._all():
            part.stop()

    def _all(self) -> list[Client]:
        return [self._home, *self._others.values()]

    def _begin(self, stream: str, session: Session) -> Client:
        services = self._home.services.shared.streams[stream]
        permissions = self._permissions.in_stream(stream)
        part = Client(services, self._accepted, session, permissions, Topics())  # no fast path for names of streams
        self._others[stream] = part
        return part

    async def _part(self, stream: str) -> Client | None:
        """Returns the part of a stream, None if the connection has ended. Raises BadStream, Refused, sqlite3.Error."""
        part = self._home if stream == self._home.services.stream else self._others.get(stream)
        if part is not None:
            return part
        session = await self._presence.visit(stream)
        return self._begin(stream, session) if session is not None and self._accepted.protocol.connected else None

    def _releasing(self, packet_identifier: int) -> Client:
        """Returns the part that waits for the PUBREL of an incoming message."""
        return next((part for part in self._all() if packet_identifier in part.session.incoming), self._home)

    def _sending(self, packet_identifier: int) -> Client:
        """Returns the part that has sent a message at QoS 2."""
        return next((part for part in self._all() if packet_identifier in part.session.outgoing.flows), self._home)

    async def _publish(self, packet: Publish) -> None:
        """Takes a message that names a stream, or whose response topic does."""
        home = self._home.services.stream
        try:
            place = place_of(packet.topic, stream_named(packet.properties), home)
            inside = enter(packet, place, home)
            part = await self._part(place.stream)
        except BadStream as error:
            self._home.refuse_publish(packet, TOPIC_NAME_INVALID, str(error))
            return
        except Refused as refused:
            self._home.refuse_publish(packet, refused.reason_code, str(refused))
            return
        if part is not None:
            await part.handle(inside)

    def _is_elsewhere(self, packet: Subscribe | Unsubscribe) -> bool:
        """Whether a packet names a stream, or names it wrongly."""
        home = self._home.services.stream
        try:
            return any(place.naming for place in _places_of(packet, home))
        except BadStream:
            return True

    async def _subscribe_each(self, packet: Subscribe | Unsubscribe) -> None:
        """Changes subscriptions in several streams, and answers when all of it is durable."""
        self.note_packet()
        codes, problems = dict[int, int](), dict[str, None]()
        chosen: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for number, one in enumerate(packet.filters):
            topic_filter = one if isinstance(one, str) else one[0]
            try:
                place = place_of(topic_filter, stream_named(packet.properties), self._home.services.stream)
                check_served(place.stream, self._home.services.shared.streams)
                chosen.setdefault((place.stream, place.naming), []).append((number, place.topic))
            except BadStream as error:
                codes[number] = TOPIC_FILTER_INVALID
                problems[str(error)] = None
        followers: list[Callable[[], Awaitable[None]]] = []
        keys: list[tuple[str, str]] = []
        for (stream, naming), numbered in chosen.items():
            try:
                part = await self._part(stream)
            except Refused as refused:
                codes.update((number, refused.reason_code) for number, _ in numbered)
                continue
            if part is None:
                return
            if isinstance(packet, Subscribe):
                filters = [(topic_filter, packet.filters[number][1]) for number, topic_filter in numbered]
                inside = Subscribe(packet.packet_identifier, filters, packet.properties)
                answer = await part.subscribe(inside, naming)
                if answer is None:
                    return
                found = answer.codes
                problems.update({answer.problem: None} if answer.problem else {})
                keys += answer.keys
                followers.append(answer.follow)
            else:
                leaving = Unsubscribe(packet.packet_identifier, [topic_filter for _, topic_filter in numbered])
                found = await part.unsubscribe(leaving)
            codes.update(zip((number for number, _ in numbered), found, strict=True))
        if not self._accepted.protocol.connected:
            return
        answers = [codes[number] for number in range(len(packet.filters))]
        if isinstance(packet, Subscribe):
            self._accepted.protocol.suback(packet.packet_identifier, answers, "; ".join(problems), keys)
        else:
            self._accepted.protocol.unsuback(packet.packet_identifier, answers)
        for follow in followers:
            await follow()


def _places_of(packet: Subscribe | Unsubscribe, home: str) -> Iterable[Place]:
    named = stream_named(packet.properties)
    return (place_of(one if isinstance(one, str) else one[0], named, home) for one in packet.filters)
