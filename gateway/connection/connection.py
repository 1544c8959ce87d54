"""One client's connection: bytes from the port → events → the room that handles them, and answers back."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gateway.arrival import Admitted, Arrival
from gateway.client import Client
from gateway.doorkeeper import Refused
from gateway.holdings import Account, owner_of
from gateway.hot.inflow import Inflow
from gateway.hot.topics import Topics
from gateway.logs import about
from gateway.pace import Slice
from gateway.port import Port
from wire import properties, reasons
from wire.bulk import BulkServerConnection
from wire.codec.requests import BRIDGE
from wire.errors import Closed
from wire.packets import Auth, Connect, Disconnect, Packet
from wire.states import AWAIT_CONNACK
from wire.time_offer import TIME_PROPERTY, encode_time

if TYPE_CHECKING:
    from gateway.broker import Broker
    from gateway.session import Session

RECEIVE_MAXIMUM = 2000  # QoS 1 and 2 messages of one client that may wait for their sync
TOPIC_ALIAS_MAXIMUM = 32  # topics; what a client may have us keep in memory for it
OFFER_FROM = 256  # bytes; a client that takes smaller packets only is offered no time [MQTT-3.2.2-19]
LATE_MS = 1000  # a timer as late as that says that we stood still, and what a client has sent meanwhile lies unread
BACKLOG_MAX = 1024 * 1024  # bytes a client has not taken; beyond it nothing is read from it either

logger = logging.getLogger(__name__)


class Connection:
    """Serves one client from its first byte to its last. ``owner`` answers for what that costs.

    Args:
        broker: where its messages and subscriptions go.
        port: its line.
    """

    def __init__(self, broker: "Broker", port: Port) -> None:
        self._broker = broker
        self._port = port
        self._protocol = BulkServerConnection(
            receive_maximum=RECEIVE_MAXIMUM,
            maximum_packet_size=broker.config.limits.maximum_packet_size,
            topic_alias_maximum=TOPIC_ALIAS_MAXIMUM,
            connect_timeout_ms=1000 * broker.config.limits.connect_timeout_s,
            inflight_maximum=broker.config.limits.inflight,
            authentication_methods=broker.doorkeeper.authentication_methods,
        )
        self._topics = Topics()
        self._inflow = Inflow(self._protocol, self._topics)
        self._arrival = Arrival(broker.doorkeeper, self._protocol, port)
        self._session: Session | None = None
        self._is_session_new = False
        self._client: Client | None = None
        self._awaits_client = True  # else it is we who keep it waiting
        self._ended = False
        self.owner = owner_of(None, port.visitor.host)
        self._unfinished = 0
        self._account = Account(broker.holdings)
        self._account.give(self.owner)
        self.tick = 0

    @property
    def name(self) -> str:
        """Who it is, for the log."""
        return f"{self._session.client_id!r} at {self._port.peer}" if self._session else self._port.peer

    @property
    def user(self) -> str | None:
        """Who has logged in; None for nobody."""
        return self._session.user if self._session else None

    async def serve(self) -> None:
        """Serves until the connection ends; a client's faults end its connection and nothing else."""
        try:
            self._set_timer(self.handle_timer(_now_ms()))
            while not self._ended:
                self._awaits_client = True
                if self._port.backlog > BACKLOG_MAX:
                    await self._port.drain()
                data = await self._port.receive()
                self._awaits_client = False
                if data:
                    await self._take(data)
                    self._count_unfinished()
                else:
                    self._end("the line ended")
                self._end_turn()
                await self._wait_for_room()
        except OSError as error:
            self._end(f"the line failed: {error}")
        except sqlite3.Error as error:
            self._fail(f"the store failed: {error}")
        finally:
            self._end("it was cancelled")

    async def _wait_for_room(self) -> None:
        if self._client is not None and not self._ended:
            await self._broker.log.wait_for_room()
            await self._client.wait_for_room()

    def disconnect(self, reason_code: int) -> None:
        """Ends the connection from our side, telling the client why."""
        if self._protocol.connected:
            self._protocol.disconnect(reason_code)
        self._end(reasons.describe(reason_code))

    def handle_timer(self, now_ms: int) -> int | None:
        """Ends the connection of a client that has been silent for too long; see ``Timed``."""
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

    def _set_timer(self, due_ms: int | None) -> None:
        self._broker.timers.set(self, due_ms)

    def _count_unfinished(self) -> None:
        """Counts for the owner what has come of a packet whose end has not; what does not fit ends the connection."""
        more = self._inflow.kept - self._unfinished
        if not more or self._ended:
            return
        if more > 0 and not self._account.fits(more):
            self.disconnect(reasons.QUOTA_EXCEEDED)
            return
        self._unfinished += more
        self._account.add(more)

    def _may_take(self, topics: Iterable[str]) -> bool:
        return self._client is not None and self._client.may_take(topics)

    async def _take(self, data: bytes) -> None:
        """Handles what has come, slice by slice."""
        with self._broker.lanes.enter(self.owner) as lane:
            slice_ = Slice(lane)
            for piece in self._port.unpack(data):
                if piece:
                    self._broker.counters.bytes_received += len(piece)
                    await self._take_piece(piece, slice_)
                if slice_.is_over:
                    await self._give_way(slice_)
                if self._is_over():
                    return

    async def _take_piece(self, piece: bytes, slice_: Slice) -> None:
        self._topics.keep_to(self._broker.doorkeeper.access.rules)
        for step in self._inflow.feed(piece, _now_ms(), self._may_take):
            if self._unfinished:
                self._count_unfinished()  # what is whole now counts no more when it is handled
            if step is None:
                await self._handle_events()
            elif self._client is not None:
                self._broker.counters.packets_received += len(step.identifiers)
                self._client.take(step)
            if slice_.is_over:
                await self._give_way(slice_)
            if self._is_over():
                return

    async def _give_way(self, slice_: Slice) -> None:
        """Lets others have their turns, unless the connection has ended."""
        if not self._ended:
            self._end_turn()
            await slice_.give_way()
            if self._client is not None:
                await self._client.wait_for_subscribers()
            self._topics.keep_to(self._broker.doorkeeper.access.rules)

    async def _handle_events(self) -> None:
        is_answered = True  # by the protocol core alone, as a PINGREQ is
        while not self._ended and (event := self._protocol.next_event()) is not None:
            is_answered = False
            try:
                await self._handle(event)
            except Refused as refused:
                self._turn_away(refused, event)
        if is_answered and self._client is not None and not self._inflow.is_within_packet:
            self._client.note_packet()

    def _end_turn(self) -> None:
        if self._client is not None:
            self._client.end_turn()
        self._flush_unless_ended()

    async def _handle(self, event: Packet | Closed) -> None:
        self._broker.counters.packets_received += 1
        match event:
            case Connect():
                await self._open(await self._arrival.handle_connect(event))
            case Auth() if self._client is None:
                await self._open(self._arrival.handle_auth(event))
            case Auth():
                self._arrival.handle_auth_again(event, self.user)
            case Disconnect():
                self._handle_disconnect(event)
            case Closed():
                self._handle_closed(event)
            case _:
                assert self._client is not None
                await self._client.handle(event)

    async def _open(self, admitted: Admitted | None) -> None:
        """Opens the session of somebody who may come in, and answers once that is durable."""
        if admitted is None or self._is_over():
            return
        if not self._protocol.may_accept(self._announced(admitted)):
            return
        broker, client_id = self._broker, admitted.client_id
        self.owner = owner_of(admitted.permissions.user, self._port.visitor.host)
        self._account.give(self.owner)
        broker.wills.check(client_id, self.owner, admitted.packet.will)
        session, present = broker.sessions.take_up(self, admitted)
        self._session, self._is_session_new = session, not present
        will, note = broker.wills.arrive(client_id, session.user, admitted.packet.will, self.owner)
        await broker.sessions.save(client_id)
        await broker.log.submit(note)  # with it, what an earlier connection brought is durable, or is not
        broker.wills.stay(client_id, will)
        if self._is_over():
            return
        self._protocol.accept(present, self._announced(admitted))
        broker.sessions.note_back(session)
        self._protocol.resume(list(session.incoming))
        self._set_timer(self._protocol.next_timer_ms())
        self._port.note_admitted()
        broker.counters.connections_accepted += 1
        self._flush()
        if admitted.packet.client_id:
            visitor = self._port.visitor
            level = admitted.packet.level_byte & ~BRIDGE or self._protocol.protocol_level
            broker.devices.note_connected(client_id, session.user, visitor.host, level)
        logger.info("connected", extra=about(**self._who(), tls=self._port.visitor.tls or "none"))
        self._client = Client(
            broker,
            self._protocol,
            self._port,
            session,
            admitted.permissions,
            self._topics,
            self.name,
            answered=self._flush_unless_ended,
            failed=self._fail,
            disconnect=self.disconnect,
        )
        admitted.packet.will = None  # else the protocol core keeps what is large of the CONNECT
        admitted.packet.properties.pop(properties.USER_PROPERTY, None)

    def _is_over(self) -> bool:
        """Whether the connection has ended while we waited."""
        return self._ended

    def _announced(self, admitted: Admitted) -> dict[int, Any]:
        """What the CONNACK says besides what the protocol core does."""
        packet, announced = admitted.packet, dict[int, Any]()
        if not packet.client_id:
            announced[properties.ASSIGNED_CLIENT_IDENTIFIER] = admitted.client_id
        if admitted.proof is not None:
            announced[properties.AUTHENTICATION_DATA] = admitted.proof
        limits = self._broker.config.limits
        if packet.session_expiry_s > limits.session_expiry_max_s:
            announced[properties.SESSION_EXPIRY_INTERVAL] = limits.session_expiry_max_s
        longest_s = limits.keep_alive_s
        if longest_s and not 0 < packet.keep_alive_s <= longest_s:
            announced[properties.SERVER_KEEP_ALIVE] = longest_s
        if packet.properties.get(properties.MAXIMUM_PACKET_SIZE, OFFER_FROM) >= OFFER_FROM:
            announced[properties.USER_PROPERTY] = [(TIME_PROPERTY, encode_time(int(time.time() * 1000)))]
        return announced

    def _turn_away(self, refused: Refused, event: Packet | Closed) -> None:
        if self._protocol.state == AWAIT_CONNACK:
            self._broker.counters.refused(refused.reason_code)
            self._protocol.refuse(refused.reason_code)
        elif self._protocol.connected:
            self._protocol.disconnect(refused.reason_code)
        code, text = reasons.describe(refused.reason_code), str(refused)
        claimed = {"client": event.client_id, "user": event.username or ""} if isinstance(event, Connect) else {}
        self._end(text if text == code else f"{code}: {text}", logging.WARNING, "login refused", **claimed)

    def _handle_disconnect(self, packet: Disconnect) -> None:
        if self._session is None:
            return  # it gives up its login
        if properties.SESSION_EXPIRY_INTERVAL in packet.properties:
            self._session.expiry_s = packet.properties[properties.SESSION_EXPIRY_INTERVAL]
        if packet.reason_code == reasons.SUCCESS:
            self._broker.wills.discard(self._session.client_id)

    def _handle_closed(self, event: Closed) -> None:
        if event.reason_code < reasons.UNSPECIFIED_ERROR:
            self._end(event.text)
        else:
            self._end(f"{reasons.describe(event.reason_code)}: {event.text}", logging.WARNING)

    def _fail(self, text: str) -> None:
        """Something of ours does not work: this client is sent away unanswered and may try again."""
        if self._protocol.state == AWAIT_CONNACK:
            self._protocol.refuse(reasons.IMPLEMENTATION_SPECIFIC_ERROR, text)
        elif self._protocol.connected:
            self._protocol.disconnect(reasons.IMPLEMENTATION_SPECIFIC_ERROR, text)
        self._end(text, logging.ERROR)

    def _end(self, reason: str, level: int = logging.INFO, event: str = "disconnected", **claimed: str) -> None:
        if self._ended:
            return
        self._ended = True
        logger.log(level, event, extra=about(**self._who(), **claimed, reason=reason))
        self._account.close()
        client, self._client = self._client, None  # each knows the other: apart they are freed at once
        if client is not None:
            client.stop()
        if self._session is not None and self._session.connection is self:
            self._broker.leave(self._session, was_accepted=client is not None, is_new=self._is_session_new)
        self._flush()
        self._port.close()
        self._set_timer(None)

    def _who(self) -> dict[str, str]:
        """Whom a line of the log is about."""
        session = self._session
        who = {"client": session.client_id, "user": session.user or ""} if session else {}
        return {**who, "peer": self._port.peer}

    def _flush_unless_ended(self) -> None:
        if not self._ended:
            self._flush()

    def _flush(self) -> None:
        if data := self._protocol.data_to_send():
            counters = self._broker.counters
            counters.bytes_sent += len(data)
            counters.packets_sent += self._protocol.packets_sent
            self._protocol.packets_sent = 0
            self._port.send(data)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
