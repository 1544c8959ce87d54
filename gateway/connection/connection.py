"""One client's connection: bytes from the port → packets → ``Client``, and the answers back."""

import asyncio
import logging
import sqlite3
from collections.abc import Collection

from gateway.auth.admission import Admission, Admitted, Refused
from gateway.auth.permissions import Topics
from gateway.connection.accepted import Accepted
from gateway.connection.bridge import keep_session
from gateway.connection.connack import announced
from gateway.connection.neighbour import begin_link
from gateway.connection.parts import Parts
from gateway.connection.presence import Presence
from gateway.connection.services import Services
from gateway.holdings import Holding, owner_of
from gateway.log_fields import about
from gateway.loop.pace import LineRoom, Slice
from gateway.port import Port
from gateway.sessions.session import Session
from wire import reasons
from wire.bulk.connection import BulkServerConnection
from wire.bulk.reader import BulkReader
from wire.codec.packets import Auth, Connect, Disconnect, Packet
from wire.codec.requests import BRIDGE
from wire.connection.states import AWAIT_CONNACK
from wire.errors import Closed
from wire.properties import USER_PROPERTY

RECEIVE_MAXIMUM = 2000  # QoS 1 and 2 messages of one client that may wait for their sync
TOPIC_ALIAS_MAXIMUM = 32  # topics that the gateway keeps in memory for one client
LATE_MS = 1000  # a timer this late says that the process stood still: what the client has sent is not read yet
BACKLOG_MAX = 1024 * 1024  # bytes that the client has not read; beyond it the gateway reads nothing from it

logger = logging.getLogger(__name__)


class Connection:
    """Serves one client from its first byte to its last. What it costs counts for ``owner``.

    Args:
        services: the parts of the gateway that it uses.
        port: its line.
        stream: the stream of its listener, "" for the default one.
    """

    __slots__ = (
        "_admission",
        "_awaits_client",
        "_client",
        "_counters",
        "_ended",
        "_holding",
        "_inflow",
        "_port",
        "_presence",
        "_protocol",
        "_room",
        "_sent",
        "_services",
        "_topics",
        "_turns",
        "owner",
        "tick",
    )

    def __init__(self, services: Services, port: Port, stream: str) -> None:
        self._services = services
        self._counters = services.counters
        self._port = port
        self._protocol = BulkServerConnection(
            receive_maximum=RECEIVE_MAXIMUM,
            maximum_packet_size=services.config.limits.maximum_packet_size,
            topic_alias_maximum=TOPIC_ALIAS_MAXIMUM,
            connect_timeout_ms=1000 * services.config.limits.connect_timeout_s,
            inflight_maximum=services.config.limits.inflight,
            authentication_methods=services.shared.access_control.authentication_methods,
        )
        self._topics = Topics()
        self._inflow = BulkReader(self._protocol, self._topics, self._topics.origins)
        self._admission = Admission(services.shared.access_control, self._protocol, port, stream)
        self._presence: Presence | None = None  # once the client has logged in
        self._client: Parts | None = None
        self._awaits_client = True  # False: the client waits for us
        self._turns: asyncio.Event | None = None  # while a task waits until all that has come is handled
        self._ended = False
        self.owner = owner_of(None, port.visitor.host)
        self._room: LineRoom | None = None
        self._sent = 0  # bytes put on the line
        self._holding = Holding(services.shared.holdings)
        self._holding.give(self.owner)
        self.tick = 0

    @property
    def name(self) -> str:
        """The client identifier and the address, for the log."""
        session = self._session
        return f"{session.client_id!r} at {self._port.peer}" if session else self._port.peer

    @property
    def user(self) -> str | None:
        """The user that has logged in; None without one."""
        return self._session.user if self._session else None

    @property
    def _session(self) -> Session | None:
        return self._presence.session if self._presence is not None else None

    @property
    def is_realtime(self) -> bool:
        """Whether the client came through a real-time listener."""
        return self._port.visitor.is_realtime

    @property
    def is_revoked(self) -> bool:
        """Whether the certificate with which the client has connected is revoked now."""
        return self._port.visitor.is_revoked()

    async def serve(self) -> None:
        """Serves until the connection ends. A fault of the client ends its connection and nothing else."""
        try:
            self._set_timer(self.handle_timer(_now_ms()))
            while not self._ended:
                self._awaits_client = True
                if self._turns is not None:
                    self._turns.set()
                if self._is_backlog_too_large():
                    await self._port.drain()
                data = await self._port.receive()
                self._awaits_client = False
                if data:
                    await self._take(data)
                    self._count_unfinished()
                else:
                    await self._wait_for_shift()
                    self._end("the line ended")
                self._end_batch()
                if self._client is not None and not self._client.may_read_on:
                    await self._client.wait_for_room()
        except OSError as error:
            await self._wait_for_shift()
            self._end(f"the line failed: {error}")
        except sqlite3.Error as error:
            self._fail(f"the store failed: {error}")
        finally:
            self._end("it was cancelled")

    async def _wait_for_shift(self) -> None:
        """Waits for its turn among the owner's connections: thousands of them may end at one moment."""
        await self._services.shared.shifts.of(self.owner).wait()

    async def caught_up(self) -> None:
        """Waits until all that has come from the client is handled, or the connection has ended."""
        self._turns = asyncio.Event()
        while not self._awaits_client and not self._ended:
            self._turns.clear()
            await self._turns.wait()

    @property
    def unread(self) -> int:
        """Bytes that wait for the client in the gateway."""
        return self._port.backlog

    @property
    def taken(self) -> int:
        """Bytes that the line has taken so far."""
        return self._sent - self._port.backlog

    def give_up(self) -> None:
        """Ends the connection, as the client reads nothing and its owner has no room left."""
        self._end("it reads nothing, and its owner has too much unread", logging.WARNING)

    def disconnect(self, reason_code: int) -> None:
        """Sends a DISCONNECT with a reason code and ends the connection."""
        if self._protocol.connected:
            self._protocol.disconnect(reason_code)
        self._end(reasons.describe(reason_code))

    def handle_timer(self, now_ms: int) -> int | None:
        """Ends the connection if the client has been silent for too long; see ``Timed``."""
        if not self._awaits_client:
            return now_ms
        due_ms = self._protocol.next_timer_ms()
        if due_ms is not None and now_ms - due_ms > LATE_MS:
            self._protocol.note_received(now_ms)
        self._protocol.handle_timer(now_ms)
        event = self._protocol.next_event()
        if event is not None:
            self._handle_closed(event)
        return self._protocol.next_timer_ms()

    def _is_backlog_too_large(self) -> bool:
        backlog = self._port.backlog
        return backlog > BACKLOG_MAX if self._room is None else self._room.is_too_much(backlog, BACKLOG_MAX)

    def _set_timer(self, due_ms: int | None) -> None:
        self._services.shared.timers.set(self, due_ms)

    def _count_unfinished(self) -> None:
        """Counts the bytes of an incomplete packet for the owner; ends the connection if they do not fit."""
        more = self._inflow.kept - self._holding.size
        if not more or self._ended:
            return
        if more > 0 and not self._holding.fits(more):
            self.disconnect(reasons.QUOTA_EXCEEDED)
            return
        self._holding.add(more)

    def _may_take(self, topics: Collection[str]) -> bool:
        return self._client is not None and self._client.may_take(topics)

    async def _take(self, data: bytes) -> None:
        """Handles the bytes that have come, slice by slice."""
        with self._services.shared.time_shares.enter(self.owner) as time_share:
            slice_ = Slice(time_share)
            for piece in self._port.unpack(data):
                if piece:
                    self._counters.bytes_received += len(piece)
                    await self._take_piece(piece, slice_)
                if slice_.is_over:
                    await self._give_way(slice_)
                if self._is_over():
                    return

    async def _take_piece(self, piece: bytes, slice_: Slice) -> None:
        self._topics.keep_to(self._services.shared.access_control.access)
        for step in self._inflow.feed(piece, _now_ms(), self._may_take):
            if self._holding.size:
                self._count_unfinished()  # a packet that is complete now counts no more
            if step is None:
                await self._handle_events()
            elif self._client is not None:
                self._counters.packets_received += len(step.identifiers)
                self._client.take(step)
            if slice_.is_over:
                await self._give_way(slice_)
            if self._is_over():
                return

    async def _give_way(self, slice_: Slice) -> None:
        """Lets other tasks run, unless the connection has ended."""
        if not self._ended:
            self._end_batch()
            await slice_.give_way()
            if self._client is not None:
                await self._client.wait_for_subscribers()
            self._topics.keep_to(self._services.shared.access_control.access)

    async def _handle_events(self) -> None:
        is_answered = True  # by the protocol core alone, as a PINGREQ
        while not self._ended and (event := self._protocol.next_event()) is not None:
            is_answered = False
            try:
                await self._handle(event)
            except Refused as refused:
                self._turn_away(refused, event)
        if is_answered and self._client is not None and not self._inflow.is_within_packet:
            self._client.note_packet()

    def _end_batch(self) -> None:
        if self._client is not None:
            self._client.end_batch()
        self._flush_unless_ended()

    async def _handle(self, event: Packet | Closed) -> None:
        self._counters.packets_received += 1
        match event:
            case Connect():
                await self._open(await self._admission.handle_connect(event))
            case Auth() if self._client is None:
                await self._open(self._admission.handle_auth(event))
            case Auth():
                self._admission.handle_auth_again(event, self.user)
            case Disconnect():
                if self._presence is not None:
                    self._presence.handle_disconnect(event)
            case Closed():
                self._handle_closed(event)
            case _:
                assert self._client is not None
                await self._client.handle(event)

    async def _open(self, admitted: Admitted | None) -> None:
        """Opens the session of a client that may log in, and sends CONNACK once that is durable."""
        if admitted is None or self._is_over():
            return
        keep_session(admitted.packet, admitted.client_id)
        if not self._protocol.may_accept(announced(self._services, admitted, is_realtime=self.is_realtime)):
            return
        services = self._services = self._services.shared.streams[admitted.permissions.stream]
        self.owner = owner_of(admitted.permissions.user, self._port.visitor.host)
        self._holding.give(self.owner)
        self._presence = presence = Presence(services, admitted)
        await presence.begin(self)
        session = presence.session
        if session is None or self._is_over():
            return
        properties = announced(services, admitted, session, is_realtime=self.is_realtime)
        self._protocol.accept(presence.was_present, properties)
        services.sessions.note_back(session)
        self._protocol.resume(list(presence.incoming()))
        self._protocol.repeats = session.released
        self._set_timer(self._protocol.next_timer_ms())
        self._port.note_admitted()
        self._counters.connections_accepted += 1
        self._flush()
        heard = None
        if admitted.packet.client_id:
            visitor = self._port.visitor
            level = admitted.packet.level_byte & ~BRIDGE or self._protocol.protocol_level
            heard = services.shared.devices.note_connected(session.client_id, session.user, visitor.host, level)
        logger.info("connected", extra=about(**self._log_fields(), tls=self._port.visitor.tls or "none"))
        accepted = Accepted(
            self.name, self._protocol, self._port, self._flush_unless_ended, self._fail, self.disconnect, heard
        )
        end = await begin_link(services, session, accepted)
        if self._is_over():
            if end is not None:
                end.stop()
            return
        self._room = self._services.shared.rooms.of(self.owner)
        self._room.join(self)
        self._client = Parts(services, presence, admitted.permissions, accepted, self._topics, end)
        admitted.packet.will = None  # they may be large, and the protocol core keeps the CONNECT
        admitted.packet.properties.pop(USER_PROPERTY, None)

    def _is_over(self) -> bool:
        """Whether the connection has ended, as it may while a method waits."""
        return self._ended

    def _turn_away(self, refused: Refused, event: Packet | Closed) -> None:
        if self._protocol.state == AWAIT_CONNACK:
            self._counters.refused(refused.reason_code)
            self._protocol.refuse(refused.reason_code, str(refused) if refused.is_told else "")
        elif self._protocol.connected:
            self._protocol.disconnect(refused.reason_code)
        code, text = reasons.describe(refused.reason_code), str(refused)
        claimed = {"client": event.client_id, "user": event.username or ""} if isinstance(event, Connect) else {}
        self._end(text if text == code else f"{code}: {text}", logging.WARNING, "login refused", **claimed)

    def _handle_closed(self, event: Closed) -> None:
        if event.reason_code < reasons.UNSPECIFIED_ERROR:
            self._end(event.text)
        else:
            self._end(f"{reasons.describe(event.reason_code)}: {event.text}", logging.WARNING)

    def _fail(self, text: str) -> None:
        """Ends the connection because of a fault of ours; the client gets no acknowledgement and may send again."""
        if self._protocol.state == AWAIT_CONNACK:
            self._protocol.refuse(reasons.IMPLEMENTATION_SPECIFIC_ERROR, text)
        elif self._protocol.connected:
            self._protocol.disconnect(reasons.IMPLEMENTATION_SPECIFIC_ERROR, text)
        self._end(text, logging.ERROR)

    def _end(self, reason: str, level: int = logging.INFO, event: str = "disconnected", **claimed: str) -> None:
        if self._ended:
            return
        self._ended = True
        if self._turns is not None:
            self._turns.set()
        logger.log(level, event, extra=about(**self._log_fields(), **claimed, reason=reason))
        self._holding.close()
        if self._room is not None:
            self._room.leave(self)
        client, self._client = self._client, None  # without the reference to each other both are freed at once
        if client is not None:
            client.stop()
        if self._presence is not None:
            self._presence.end(self, was_accepted=client is not None)
        self._flush()
        self._port.close()
        self._set_timer(None)

    def _log_fields(self) -> dict[str, str]:
        """The fields of a log line that name the client."""
        session = self._session
        client = {"client": session.client_id, "user": session.user or ""} if session else {}
        return {**client, "peer": self._port.peer}

    def _flush_unless_ended(self) -> None:
        if not self._ended:
            self._flush()

    def _flush(self) -> None:
        if data := self._protocol.data_to_send():
            counters = self._counters
            counters.bytes_sent += len(data)
            counters.packets_sent += self._protocol.packets_sent
            self._protocol.packets_sent = 0
            self._sent += len(data)
            if self._room is not None:
                self._room.note(len(data))
            self._port.send(data)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
