"""The sessions of a connected client: the one in its implied stream, and visiting ones in other streams."""

from collections.abc import Iterator

from gateway.auth.admission import Admitted, Refused, will_of
from gateway.connection.neighbour import admit_neighbour, forget_packets, read_conditions
from gateway.connection.services import Services
from gateway.sessions.session import LiveConnection, Session
from gateway.streams.names import check_served, visiting_id
from wire.codec.packets import Disconnect, Will
from wire.properties import SESSION_EXPIRY_INTERVAL
from wire.reasons import NOT_AUTHORIZED, SUCCESS


class Presence:
    """A client's sessions and its will, for the time of one connection.

    Args:
        home: the parts of the gateway that serve the implied stream.
        admitted: the client.

    ``session`` is the one in the implied stream, None until it is taken up; ``was_present`` says whether it was there.
    ``visiting`` has the sessions in other streams, by stream.
    """

    __slots__ = ("_admitted", "_home", "_is_over", "session", "visiting", "was_present")

    def __init__(self, home: Services, admitted: Admitted) -> None:
        self._home = home
        self._admitted = admitted
        self._is_over = False
        self.session: Session | None = None
        self.was_present = False
        self.visiting: dict[str, Session] = {}

    async def begin(self, connection: LiveConnection) -> None:
        """Takes up the client's session and the visiting ones, or ends those if it had none in the implied stream.

        The will is left in its stream. All of this is durable then, unless the connection has ended meanwhile.

        Raises Refused, sqlite3.Error.
        """
        home, admitted, packet = self._home, self._admitted, self._admitted.packet
        will_stream, will = will_of(packet, home.stream) if packet.will else ("", None)
        own_will = will if will_stream == home.stream else None
        home.wills.check(admitted.client_id, connection.owner, own_will)
        link = admit_neighbour(home, admitted, is_realtime=connection.is_realtime)
        conditions = await read_conditions(link)
        if self._is_over:
            return
        session, self.was_present = home.sessions.take_up(connection, admitted, link)
        del conditions  # the session has them
        self.session = session
        admitted.permissions.owns_client_id = self._owns_client_id(session)
        forget_packets(home, session, packet)
        await _store(home, session, own_will, connection.owner)
        for stream, services in home.shared.streams.items():
            if services is home or self._is_over:
                continue
            visiting = services.sessions.get(self._visiting_id)
            if visiting is not None and not self.was_present:
                services.sessions.end(visiting)
                visiting = None
            its_will = will if will_stream == stream else None
            if visiting is not None or its_will is not None:
                await self.visit(stream, its_will)

    async def visit(self, stream: str, will: Will | None = None) -> Session | None:
        """Makes or resumes the client's session in another stream; returns None if the connection has ended.

        Raises BadStream, Refused, sqlite3.Error.
        """
        check_served(stream, self._home.shared.streams)
        connection = self.session.connection if self.session else None
        if self._is_over or connection is None:
            return None
        services, name = self._home.shared.streams[stream], self._visiting_id
        permissions = self._admitted.permissions.in_stream(stream)
        if not permissions.may_use_stream:
            raise Refused(NOT_AUTHORIZED, f"no rule lets its user into stream {stream!r}")
        services.wills.check(name, connection.owner, will)
        session, _ = services.sessions.take_up(connection, Admitted(self._admitted.packet, name, permissions))
        self.visiting[stream] = session
        await _store(services, session, will, connection.owner)
        services.sessions.note_back(session)
        return session

    def incoming(self) -> Iterator[int]:
        """Yields the packet identifiers of the client's QoS 2 messages that are not released, whatever the stream."""
        for session in self._sessions():
            yield from session.incoming

    def handle_disconnect(self, packet: Disconnect) -> None:
        """The client says that it goes: how long its sessions stay, and whether its will is published."""
        session = self.session
        if session is None:
            return  # the client gives up its login
        if SESSION_EXPIRY_INTERVAL in packet.properties and not session.is_realtime:
            for one in self._sessions():
                one.expiry_s = packet.properties[SESSION_EXPIRY_INTERVAL]
        if session.released is not None:
            session.released.forget()
        if packet.reason_code == SUCCESS:
            self._home.wills.discard(session.client_id)
            for stream in self.visiting:
                self._home.shared.streams[stream].wills.discard(self._visiting_id)

    def end(self, connection: LiveConnection, *, was_accepted: bool) -> None:
        """The connection has ended. A session that its CONNECT made and no CONNACK followed ends with it."""
        self._is_over = True
        home, session = self._home, self.session
        if session is not None and session.connection is connection:
            if was_accepted:
                home.shared.devices.note_disconnected(session.client_id)
            if was_accepted or self.was_present:
                home.sessions.rest(session)
            else:
                home.sessions.end(session)
            home.wills.leave(session.client_id)
        for stream, visiting in self.visiting.items():
            if visiting.connection is connection:
                services = self._home.shared.streams[stream]
                services.sessions.rest(visiting)
                services.wills.leave(self._visiting_id)

    def _sessions(self) -> list[Session]:
        return [*([self.session] if self.session else []), *self.visiting.values()]

    def _owns_client_id(self, session: Session) -> bool:
        """Whether no other user has a session of this client identifier in another stream."""
        others = [one for one in self._home.shared.streams.values() if one is not self._home]
        there = (one.sessions.get(session.client_id) for one in others)
        return all(other is None or other.user in (None, session.user) for other in there)

    @property
    def _visiting_id(self) -> str:
        return visiting_id(self._admitted.client_id, self._home.stream)


async def _store(services: Services, session: Session, will: Will | None, owner: str) -> None:
    """Makes a session and its will durable; then all that an earlier connection brought is durable or has failed."""
    stored, note = services.wills.arrive(session.client_id, session.user, will, owner)
    await services.sessions.save(session.client_id)
    await services.log.submit(note)
    services.wills.stay(session.client_id, stored)
