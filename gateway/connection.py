"""One client's connection: bytes from the port → events → broker, and acknowledgements back."""

import asyncio
import logging
import sqlite3
import time
from collections import deque
from typing import TYPE_CHECKING

from gateway.message import message_from
from gateway.port import Port
from gateway.sender import Sender
from wire import reasons
from wire.connection import Closed
from wire.packets import MQTT_5, Connect, Disconnect, Packet, Puback, Publish, Subscribe, Unsubscribe
from wire.properties import MAXIMUM_PACKET_SIZE as MAXIMUM_PACKET_SIZE_PROPERTY
from wire.properties import SESSION_EXPIRY_INTERVAL, USER_PROPERTY
from wire.server import ServerConnection
from wire.states import AWAIT_CONNACK
from wire.time_offer import TIME_PROPERTY, encode_time

if TYPE_CHECKING:
    from gateway.broker import Broker
    from gateway.session import Session

RECEIVE_MAXIMUM = 2000  # QoS 1 messages of one client that may wait for their sync
MAXIMUM_PACKET_SIZE = 1024 * 1024  # bytes; a client that wants more memory of us than this is refused
CONNECT_TIMEOUT_MS = 10_000
OFFER_FROM = 256  # bytes; a client that takes smaller packets only is offered no time [MQTT-3.2.2-19]
BACKLOG_MAX = 1024 * 1024  # bytes a client has not taken; beyond it nothing is read from it either

logger = logging.getLogger(__name__)


class Connection:
    """Serves one client from its first byte to its last.

    Args:
        broker: where its messages and subscriptions go.
        port: its line.
    """

    def __init__(self, broker: "Broker", port: Port) -> None:
        self._broker = broker
        self._port = port
        self._protocol = ServerConnection(
            receive_maximum=RECEIVE_MAXIMUM,
            maximum_packet_size=MAXIMUM_PACKET_SIZE,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
        )
        self._session: Session | None = None
        self._sender: Sender | None = None
        self._unacknowledged: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._ended = False

    @property
    def name(self) -> str:
        """Who it is, for the log."""
        return f"{self._session.client_id!r} at {self._port.peer}" if self._session else self._port.peer

    async def serve(self) -> None:
        """Serves until the connection ends; a client's faults end its connection and nothing else."""
        try:
            while not self._ended:
                data = await self._receive()
                if data == b"":
                    self._end("the line ended")
                elif data is not None:
                    self._protocol.receive_data(data, _now_ms())
                await self._handle_events()
                await self._broker.log.wait_for_room()
        except OSError as error:
            self._end(f"the line failed: {error}")
        except sqlite3.Error as error:
            self._fail(f"the session store failed: {error}")
        finally:
            self._end("it was cancelled")

    def disconnect(self, reason_code: int) -> None:
        """Ends the connection from our side, telling the client why."""
        if self._protocol.connected:
            self._protocol.disconnect(reason_code)
        self._end(reasons.describe(reason_code))

    async def _receive(self) -> bytes | None:
        """Returns what comes next, b"" at the end of the line, or None after a timer."""
        timer_ms = self._protocol.next_timer_ms()
        try:
            async with asyncio.timeout_at(None if timer_ms is None else timer_ms / 1000):
                if self._port.backlog > BACKLOG_MAX:
                    await self._port.drain()
                return await self._port.receive()
        except TimeoutError:
            self._protocol.handle_timer(_now_ms())
            return None

    async def _handle_events(self) -> None:
        while not self._ended and (event := self._protocol.next_event()) is not None:
            await self._handle(event)
        if not self._ended:
            self._flush()

    async def _handle(self, event: Packet | Closed) -> None:
        match event:
            case Publish():
                self._handle_publish(event)
            case Puback():
                self._handle_puback(event)
            case Connect():
                await self._handle_connect(event)
            case Subscribe():
                await self._handle_subscribe(event)
            case Unsubscribe():
                await self._handle_unsubscribe(event)
            case Disconnect():
                self._handle_disconnect(event)
            case Closed():
                self._handle_closed(event)

    async def _handle_connect(self, packet: Connect) -> None:
        if packet.protocol_level != MQTT_5:
            self._protocol.refuse(reasons.UNSUPPORTED_PROTOCOL_VERSION, "this server takes MQTT 5 only yet")
            return
        if packet.will is not None:
            self._protocol.refuse(reasons.IMPLEMENTATION_SPECIFIC_ERROR, "this server takes no will yet")
            return
        self._session, present, properties = self._broker.open_session(self, packet)
        await self._broker.sessions.save(self._session.client_id)
        if self._ended:
            return
        if packet.properties.get(MAXIMUM_PACKET_SIZE_PROPERTY, OFFER_FROM) >= OFFER_FROM:
            properties[USER_PROPERTY] = [(TIME_PROPERTY, encode_time(int(time.time() * 1000)))]
        self._protocol.accept(present, properties)
        self._flush()
        logger.info("%s connected", self.name)
        self._sender = Sender(self._protocol, self._port, self.name, self._fail)
        self._broker.subscribers.feed(self._session, self._sender)

    def _handle_publish(self, packet: Publish) -> None:
        assert self._session is not None
        gateway_name = self._broker.config.name
        message = message_from(packet, self._session.client_id, gateway_name, int(time.time() * 1000))
        if packet.packet_identifier is None:
            self._broker.subscribers.offer(message)
            return
        stored = self._broker.log.append(message)
        self._unacknowledged.append((packet.packet_identifier, stored))
        stored.add_done_callback(self._acknowledge)

    def _acknowledge(self, _: asyncio.Future[int]) -> None:
        """Sends the PUBACKs of what is durable, in the order in which the PUBLISHes came [MQTT-4.6.0-2]."""
        while self._unacknowledged and self._unacknowledged[0][1].done():
            packet_identifier, stored = self._unacknowledged.popleft()
            if error := stored.exception():
                self._fail(f"the message store failed: {error}")
            elif self._protocol.connected:
                self._protocol.puback(packet_identifier)
        if not self._ended:
            self._flush()

    def _handle_puback(self, packet: Puback) -> None:
        assert self._sender is not None
        if packet.reason_code >= reasons.UNSPECIFIED_ERROR:
            logger.warning("%s refused a message: %s", self.name, reasons.describe(packet.reason_code))
        self._sender.handle_puback(packet.packet_identifier)

    async def _handle_subscribe(self, packet: Subscribe) -> None:
        assert self._session is not None
        granted = [
            self._broker.subscribers.subscribe(self._session, topic_filter, options)
            for topic_filter, options in packet.filters
        ]
        await self._broker.sessions.save(self._session.client_id)
        if self._protocol.connected:
            self._protocol.suback(packet.packet_identifier, granted)

    async def _handle_unsubscribe(self, packet: Unsubscribe) -> None:
        assert self._session is not None
        removed = [self._broker.subscribers.unsubscribe(self._session, topic_filter) for topic_filter in packet.filters]
        await self._broker.sessions.save(self._session.client_id)
        if self._protocol.connected:
            codes = [reasons.SUCCESS if was else reasons.NO_SUBSCRIPTION_EXISTED for was in removed]
            self._protocol.unsuback(packet.packet_identifier, codes)

    def _handle_disconnect(self, packet: Disconnect) -> None:
        if self._session is not None and SESSION_EXPIRY_INTERVAL in packet.properties:
            self._session.expiry_s = packet.properties[SESSION_EXPIRY_INTERVAL]

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

    def _end(self, text: str, level: int = logging.INFO) -> None:
        if self._ended:
            return
        self._ended = True
        printable = "".join(character if character.isprintable() else "?" for character in text)
        logger.log(level, "%s disconnected: %s", self.name, printable)
        if self._sender is not None:
            self._sender.stop()
        if self._session is not None and self._session.connection is self:
            self._broker.sessions.rest(self._session)
        self._flush()
        self._port.close()

    def _flush(self) -> None:
        if data := self._protocol.data_to_send():
            self._port.send(data)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
