"""A route: what a gateway stores goes to the next broker, which takes over custody message by message."""

import asyncio
import logging
import sqlite3
import ssl
import time
from typing import Any

from gateway.errors import ConfigError
from gateway.message import Message, identity_properties
from gateway.numbers import RouteState
from gateway.pem import reason_of
from gateway.store.cursor import Cursor
from gateway.store.log import MessageLog
from gateway.subscriptions import Subscription
from uplink.config import RouteConfig, parse_broker
from uplink.credentials import Credentials
from uplink.flows import Flows
from uplink.remote import Remote
from uplink.watch import Watch
from wire.backoff import Backoff
from wire.client import ClientConnection
from wire.errors import LocalProtocolError
from wire.packets import Connack, Packet, Puback, Pubcomp, Pubrec
from wire.reasons import SUCCESS, UNSPECIFIED_ERROR, describe

CONNECT_DEADLINE_S = 10.0
FETCH_MOST = 256
ROUTE_PREFIX = "route/"  # of the names under which the log keeps the routes' cursors

logger = logging.getLogger(__name__)


class LinkDown(Exception):
    """The connection to the next broker could not be made, or is over; the text says why."""


class Route:
    """Takes messages from the log by a durable cursor, and moves it as the next broker acknowledges them.

    After a loss the session resumes: everything unacknowledged goes out again in order, with its first packet
    identifiers and DUP set where the broker still has the session [MQTT-4.4.0-1]. QoS 2 messages are handed over
    exactly once as long as it has.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        log: the gateway's store.
    """

    def __init__(self, config: RouteConfig, gateway_name: str, log: MessageLog) -> None:
        self._config = config
        self._client_id = f"{gateway_name}-{config.name}"
        self._who = (config.name, config.broker)
        self._credentials = Credentials(config)
        self.consumer = ROUTE_PREFIX + config.name
        filters = [Subscription(topic_filter, qos=2) for topic_filter in config.filters]
        self._cursor = Cursor(log, self.consumer, filters, window=config.inflight_window)
        self._flows = Flows(log, self._cursor)
        self.state = RouteState(config.name)
        self._watch = Watch(self.state, log, self._cursor, config)
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        self._acknowledged = asyncio.Event()
        self._said = ""
        self._connections = 0

    async def watch(self) -> None:
        """Keeps ``state`` up to date, for ever."""
        await self._watch.run()

    async def run(self) -> None:
        """Serves for ever: connects, forwards, and after each loss waits and connects again."""
        while True:
            try:
                await self._serve()
            except (LinkDown, LocalProtocolError, sqlite3.Error) as error:
                if str(error) != self._said:
                    self._said = str(error)
                    logger.warning("route %s to %s: %s; storing meanwhile", *self._who, self._said)
            except Exception:
                logger.exception("route %s to %s: unexpected failure; storing meanwhile", *self._who)
            await asyncio.sleep(self._backoff.next_wait_ms() / 1000)

    async def _serve(self) -> None:
        """One connection, from its start to the LinkDown at its end."""
        connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        password, context = await self._read_credentials()
        client = ClientConnection(
            self._client_id,
            clean_start=False,
            keep_alive_s=self._config.keep_alive_s,
            username=self._config.user,
            password=password,
        )
        remote = Remote(client, lambda packet: self._handle(packet, connack, client, remote))
        sending: asyncio.Task[None] | None = None
        try:
            await self._connect(remote, connack, context)
            session_present = connack.result().session_present
            logger.info("route %s to %s: connected, session present: %s", *self._who, session_present)
            self._backoff.reset()
            self._said = ""
            self._connections += 1
            self.state.connected, self.state.reconnects = True, self._connections - 1
            self._cursor.rewind()
            sending = asyncio.create_task(self._send(client, remote, session_present))
            await first_of(sending, remote.ended)
            if sending.done():
                sending.result()
            raise LinkDown(remote.ended.result())
        finally:
            self.state.connected = False
            if sending is not None:
                sending.cancel()
            remote.close("the route ends")

    async def _read_credentials(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._credentials.read)
        except ConfigError as error:
            raise LinkDown(str(error)) from error

    async def _connect(self, remote: Remote, connack: asyncio.Future[Connack], context: ssl.SSLContext | None) -> None:
        host, port, _ = parse_broker(self._config.broker)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await asyncio.get_running_loop().create_connection(lambda: remote, host, port, ssl=context)
                await first_of(connack, remote.ended)
        except TimeoutError:
            raise LinkDown(f"no answer in {CONNECT_DEADLINE_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise LinkDown(f"cannot connect: its certificate is refused: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise LinkDown(f"cannot connect: TLS failed: {reason_of(error)}") from None
        except OSError as error:
            raise LinkDown(f"cannot connect: {error.strerror or error}") from None
        if not connack.done():
            raise LinkDown(remote.ended.result())

    async def _send(self, client: ClientConnection, remote: Remote, session_present: bool) -> None:
        async def publish_again(message: Message, packet_identifier: int) -> None:
            self.state.retries += 1
            await self._wait_for_room(client, remote)
            self._publish(client, message, 2, packet_identifier, session_present)

        await self._flows.resume(client, session_present, publish_again)
        remote.flush()
        while True:
            await self._wait_for_room(client, remote)
            deliveries = await self._cursor.fetch(min(client.send_quota, FETCH_MOST))
            qos = min(2, client.maximum_qos_peer)
            flows = await self._flows.begin([one for one in deliveries if one.qos == qos == 2])
            for delivery in deliveries:
                self.state.retries += delivery.dup
                if packet_identifier := flows.get(delivery.position):
                    await self._wait_for_room(client, remote)
                    self._publish(client, delivery.message, 2, packet_identifier, False)
                else:
                    await self._wait_for_room(client, remote, delivery.packet_identifier)
                    dup = delivery.dup and session_present
                    self._publish(client, delivery.message, min(delivery.qos, 1), delivery.packet_identifier, dup)
            remote.flush()

    async def _wait_for_room(self, client: ClientConnection, remote: Remote, packet_identifier: int = 0) -> None:
        """Waits until line and window take a message, with this packet identifier if one is given."""
        await remote.writable.wait()
        while client.send_quota == 0 or packet_identifier in self._flows:
            remote.flush()
            self._acknowledged.clear()
            await self._acknowledged.wait()

    def _publish(self, client: ClientConnection, message: Message, qos: int, packet_identifier: int, dup: bool) -> None:
        client.publish(
            message.topic,
            message.payload,
            qos=qos,
            retain=message.retain,
            dup=dup,
            properties=identity_properties(message),
            packet_identifier=packet_identifier,
        )

    def _handle(
        self, packet: Packet, connack: asyncio.Future[Connack], client: ClientConnection, remote: Remote
    ) -> None:
        if isinstance(packet, Connack):
            if packet.reason_code == SUCCESS:
                connack.set_result(packet)
        elif isinstance(packet, Puback | Pubrec) and packet.reason_code >= UNSPECIFIED_ERROR:
            # To acknowledge what was refused would be to lose it: it stays, and with it all behind it.
            reason = describe(packet.reason_code)
            remote.close(f"the broker refused packet identifier {packet.packet_identifier}: {reason}")
        elif isinstance(packet, Puback | Pubrec | Pubcomp):
            self.state.acknowledged_ms = int(time.time() * 1000)
            if isinstance(packet, Puback):
                self._cursor.acknowledge(packet.packet_identifier)
            elif isinstance(packet, Pubrec):
                self._flows.receive(packet.packet_identifier, client, remote)
            else:
                self._flows.complete(packet.packet_identifier)
            self._acknowledged.set()


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Waits until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
