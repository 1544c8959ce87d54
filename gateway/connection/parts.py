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
from dataclasses import dataclass
from itertools import groupby

from gateway.auth.admission import Admitted, Refused
from gateway.auth.permissions import Permissions
from gateway.connection.client import Client
from gateway.connection.services import Services
from gateway.connection.underway import Underway
from gateway.sessions.session import LiveConnection, Session
from gateway.streams.names import BadStream, Place, check_served, place_of, stream_named, visiting_id
from gateway.streams.naming import enter, names_stream
from wire.bulk.connection import Acknowledgements, BulkServerConnection
from wire.bulk.reader import Publishes
from wire.codec.packets import Packet, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will
from wire.packet_types import PUBACK, PUBREL
from wire.reasons import NOT_AUTHORIZED, TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID

MakeClient = Callable[[Underway, Services, Session, Permissions, bool], Client]


@dataclass(slots=True)
class _Part:
    services: Services
    session: Session
    client: Client

    @property
    def may_read_on(self) -> bool:
        return self.services.log.writer.has_room and self.client.intake.may_read_on


class Visits:
    """The sessions of one client in other streams than the implied one, for the time of one connection.

    Args:
        home: the parts of the gateway that serve the implied stream.
        connection: the client's.
        admitted: the client.
        owner: the owner that it counts for.
    """

    __slots__ = (
        "_admitted",
        "_connection",
        "_home",
        "_is_over",
        "_owner",
        "sessions",
    )

    def __init__(self, home: Services, connection: LiveConnection, admitted: Admitted, owner: str) -> None:
        self._home = home
        self._connection = connection
        self._admitted = admitted
        self._owner = owner
        self._is_over = False
        self.sessions: dict[str, Session] = {}
        """The sessions that this connection has, by stream."""

    async def resume(self, will_stream: str, will: Will | None, *, present: bool) -> None:
        """Takes up the sessions that the client has in other streams, or ends them if it had none in its own.

        The will is left in its stream. Raises Refused, sqlite3.Error.
        """
        for stream, services in self._home.shared.streams.items():
            if services is self._home or self._is_over:
                continue
            session = services.sessions.get(self._name)
            if session is not None and not present:
                services.sessions.end(session)
                session = None
            its_will = will if will_stream == stream else None
            if session is not None or its_will is not None:
                await self.take_up(stream, its_will)

    async def take_up(self, stream: str, will: Will | None = None) -> Session:
        """Makes or resumes the client's session in a stream. Raises BadStream, Refused, sqlite3.Error."""
        check_served(stream, self._home.shared.streams)
        services = self._home.shared.streams[stream]
        permissions = self._admitted.permissions.in_stream(stream)
        if not permissions.may_use_stream:
            raise Refused(NOT_AUTHORIZED, f"no rule lets its user into stream {stream!r}")
        services.wills.check(self._name, self._owner, will)
        admitted = Admitted(self._admitted.packet, self._name, permissions)
        session, _ = services.sessions.take_up(self._connection, admitted)
        self.sessions[stream] = session
        stored, note = services.wills.arrive(self._name, session.user, will, self._owner)
        await services.sessions.save(self._name)
        await services.log.submit(note)
        services.wills.stay(self._name, stored)
        services.sessions.note_back(session)
        if self._is_over:  # meanwhile
            self.leave()
        return session

    def discard_wills(self) -> None:
        """The client says that it goes: its will is not published."""
        for stream in self.sessions:
            self._home.shared.streams[stream].wills.discard(self._name)

    def expire_in(self, expiry_s: int) -> None:
        """Sets how long the sessions stay without a connection, in seconds."""
        for session in self.sessions.values():
            session.expiry_s = expiry_s

    def leave(self) -> None:
        """The connection has ended."""
        self._is_over = True
        for stream, session in self.sessions.items():
            services = self._home.shared.streams[stream]
            if session.connection is self._connection:
                services.sessions.rest(session)
                services.wills.leave(self._name)

    @property
    def _name(self) -> str:
        return visiting_id(self._admitted.client_id, self._home.stream)


class Parts:
    """Serves a connected client in all streams that it uses, as a `Client` does in one.

    Args:
        home: the parts of the gateway that serve the implied stream.
        session: the client's session there.
        permissions: what it may do there.
        visits: its sessions in other streams.
        protocol: the connection, already accepted.
        underway: what the clients of its streams share.
        make: makes the client of a stream, whether it is the implied one or not.
    """

    __slots__ = (
        "_home",
        "_make",
        "_others",
        "_permissions",
        "_protocol",
        "_underway",
        "_visits",
    )

    def __init__(
        self,
        home: Services,
        session: Session,
        permissions: Permissions,
        visits: Visits,
        protocol: BulkServerConnection,
        underway: Underway,
        make: MakeClient,
    ) -> None:
        self._underway = underway
        self._permissions = permissions
        self._visits = visits
        self._protocol = protocol
        self._make = make
        self._home = _Part(home, session, make(underway, home, session, permissions, True))
        self._others: dict[str, _Part] = {}
        for stream, visiting in visits.sessions.items():
            self._begin(stream, visiting)

    async def handle(self, packet: Packet) -> None:
        """Acts on a packet. Raises sqlite3.Error when what it asks for could not be saved."""
        home = self._home.client
        match packet:
            case Publish() if names_stream(packet):
                await self._publish(packet)
            case Subscribe() | Unsubscribe() if self._is_elsewhere(packet):
                await self._subscribe_each(packet)
            case Pubrel():
                await self._releasing(packet.packet_identifier).client.handle(packet)
            case Pubrec() | Pubcomp():
                await self._sending(packet.packet_identifier).client.handle(packet)
            case _:
                await home.handle(packet)

    def may_take(self, topics: Collection[str]) -> bool:
        """Whether messages of these topics may take the fast path now."""
        return self._home.client.intake.may_take(topics)

    def take(self, step: Publishes | Acknowledgements) -> None:
        """Acts on many packets of one kind, on the fast path."""
        if isinstance(step, Publishes):
            self._home.client.intake.take_publishes(step)
            return
        if not self._others or step.packet_type == PUBACK:
            self._home.client.take(step)
            return
        part_of = self._releasing if step.packet_type == PUBREL else self._sending
        for part, identifiers in groupby(step.identifiers, part_of):
            part.client.take(step._replace(identifiers=list(identifiers)))

    def note_packet(self) -> None:
        """Counts a packet other than a PUBLISH or an acknowledgement for the client's rate."""
        self._home.client.intake.note_packet()

    def end_batch(self) -> None:
        """Submits the work of the packets that came together."""
        self._home.client.end_batch()

    async def wait_for_subscribers(self) -> None:
        """Waits while many of the owner's QoS 0 messages have not been handed to their subscribers."""
        for part in self._all():
            await part.client.intake.wait_for_subscribers()

    @property
    def may_read_on(self) -> bool:
        """Whether the gateway may read more from this client."""
        return self._home.may_read_on and (not self._others or all(one.may_read_on for one in self._others.values()))

    async def wait_for_room(self) -> None:
        """Waits while the gateway should not read more from this client."""
        for part in self._all():
            await part.services.log.writer.wait_for_room()
            await part.client.intake.wait_for_room()

    def stop(self) -> None:
        """Ends with the connection. What came over it is written before anything that comes over the next one."""
        for part in self._all():
            part.client.stop()

    def _all(self) -> list[_Part]:
        return [self._home, *self._others.values()]

    def _begin(self, stream: str, session: Session) -> _Part:
        services = self._home.services.shared.streams[stream]
        client = self._make(self._underway, services, session, self._permissions.in_stream(stream), False)
        part = self._others[stream] = _Part(services, session, client)
        return part

    async def _part(self, stream: str) -> _Part | None:
        """Returns the part of a stream, None if the connection has ended. Raises BadStream, Refused, sqlite3.Error."""
        part = self._home if stream == self._home.services.stream else self._others.get(stream)
        if part is not None:
            return part
        session = await self._visits.take_up(stream)
        return self._begin(stream, session) if self._protocol.connected else None

    def _releasing(self, packet_identifier: int) -> _Part:
        """Returns the part that waits for the PUBREL of an incoming message."""
        return next((part for part in self._all() if packet_identifier in part.session.incoming), self._home)

    def _sending(self, packet_identifier: int) -> _Part:
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
            self._home.client.refuse_publish(packet, TOPIC_NAME_INVALID, str(error))
            return
        except Refused as refused:
            self._home.client.refuse_publish(packet, refused.reason_code, str(refused))
            return
        if part is not None:
            await part.client.handle(inside)

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
                answer = await part.client.subscribe(inside, naming)
                if answer is None:
                    return
                found = answer.codes
                problems.update({answer.problem: None} if answer.problem else {})
                keys += answer.keys
                followers.append(answer.follow)
            else:
                leaving = Unsubscribe(packet.packet_identifier, [topic_filter for _, topic_filter in numbered])
                found = await part.client.unsubscribe(leaving)
            codes.update(zip((number for number, _ in numbered), found, strict=True))
        if not self._protocol.connected:
            return
        answers = [codes[number] for number in range(len(packet.filters))]
        if isinstance(packet, Subscribe):
            self._protocol.suback(packet.packet_identifier, answers, "; ".join(problems), keys)
        else:
            self._protocol.unsuback(packet.packet_identifier, answers)
        for follow in followers:
            await follow()


def _places_of(packet: Subscribe | Unsubscribe, home: str) -> Iterable[Place]:
    named = stream_named(packet.properties)
    return (place_of(one if isinstance(one, str) else one[0], named, home) for one in packet.filters)
