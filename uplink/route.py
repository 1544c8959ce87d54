"""A route: what a gateway stores goes to the next broker, which takes over custody message by message."""

import asyncio
import logging
import sqlite3
from typing import Any

from gateway.message import publish_properties
from gateway.store.cursor import Cursor
from gateway.store.log import MessageLog
from gateway.subscriptions import Subscription
from uplink.config import RouteConfig, parse_broker
from uplink.remote import Remote
from wire.backoff import Backoff
from wire.client import ClientConnection
from wire.errors import LocalProtocolError
from wire.packets import Connack, Packet, Puback
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
    identifiers and DUP set where the broker still has the session [MQTT-4.4.0-1].

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        log: the gateway's store.
    """

    def __init__(self, config: RouteConfig, gateway_name: str, log: MessageLog) -> None:
        self._config = config
        self._client_id = f"{gateway_name}-{config.name}"
        self._who = (config.name, config.broker)
        self.consumer = ROUTE_PREFIX + config.name
        filters = [Subscription(topic_filter, qos=1) for topic_filter in config.filters]
        self._cursor = Cursor(log, self.consumer, filters, window=config.inflight_window)
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        self._acknowledged = asyncio.Event()
        self._said = ""

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
        client = ClientConnection(self._client_id, clean_start=False, keep_alive_s=self._config.keep_alive_s)
        remote = Remote(client, lambda packet: self._handle(packet, connack, remote))
        sending: asyncio.Task[None] | None = None
        try:
            await self._connect(remote, connack)
            session_present = connack.result().session_present
            logger.info("route %s to %s: connected, session present: %s", *self._who, session_present)
            self._backoff.reset()
            self._said = ""
            self._cursor.rewind()
            sending = asyncio.create_task(self._send(client, remote, session_present))
            await first_of(sending, remote.ended)
            if sending.done():
                sending.result()
            raise LinkDown(remote.ended.result())
        finally:
            if sending is not None:
                sending.cancel()
            remote.close("the route ends")

    async def _connect(self, remote: Remote, connack: asyncio.Future[Connack]) -> None:
        host, port = parse_broker(self._config.broker)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await asyncio.get_running_loop().create_connection(lambda: remote, host, port)
                await first_of(connack, remote.ended)
        except TimeoutError:
            raise LinkDown(f"no answer in {CONNECT_DEADLINE_S:g} s") from None
        except OSError as error:
            raise LinkDown(f"cannot connect: {error.strerror or error}") from None
        if not connack.done():
            raise LinkDown(remote.ended.result())

    async def _send(self, client: ClientConnection, remote: Remote, session_present: bool) -> None:
        while True:
            await remote.writable.wait()
            while client.send_quota == 0:
                self._acknowledged.clear()
                await self._acknowledged.wait()
            for delivery in await self._cursor.fetch(min(client.send_quota, FETCH_MOST)):
                client.publish(
                    delivery.message.topic,
                    delivery.message.payload,
                    qos=delivery.qos,
                    retain=delivery.message.retain,
                    dup=delivery.dup and session_present,
                    properties=publish_properties(delivery.message),
                    packet_identifier=delivery.packet_identifier,
                )
            remote.flush()

    def _handle(self, packet: Packet, connack: asyncio.Future[Connack], remote: Remote) -> None:
        if isinstance(packet, Connack):
            if packet.reason_code == SUCCESS:
                connack.set_result(packet)
        elif isinstance(packet, Puback) and packet.reason_code < UNSPECIFIED_ERROR:
            self._cursor.acknowledge(packet.packet_identifier)
            self._acknowledged.set()
        elif isinstance(packet, Puback):
            # To acknowledge what was refused would be to lose it: it stays, and with it all behind it.
            reason = describe(packet.reason_code)
            remote.close(f"the broker refused packet identifier {packet.packet_identifier}: {reason}")


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Waits until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
