"""A route: a gateway sends its stored messages to the next broker, which takes over custody one by one."""

import asyncio
import logging
import sqlite3
from typing import Any

from gateway.routes import Cursor, MessageLog, Sender
from uplink.batch_cursor import BatchCursor, payload_max
from uplink.config import RouteConfig
from uplink.connect.connector import Connector, LinkDown
from uplink.connect.notes import RouteNotes
from uplink.delivery.answers import Answers
from uplink.delivery.resend import Resend
from uplink.delivery.window import RouteWindow
from uplink.queue import RouteQueue
from uplink.shape import ShapedCursor
from wire.backoff import Backoff
from wire.bulk.connection import BulkClientConnection
from wire.codec.packets import MQTT_5, Connack
from wire.errors import WireError
from wire.hops import HOPS_PROPERTY
from wire.identity import find_user_property

QOS_0_ONLY = "the broker takes only messages of QoS 0, so it acknowledges none"

logger = logging.getLogger(__name__)


class Route:
    """Takes messages from the log by a durable cursor, and moves it as the next broker acknowledges them.

    After a loss the session resumes: everything unacknowledged goes out again in order, with its first packet
    identifiers and DUP set where the broker still has the session [MQTT-4.4.0-1]. QoS 2 messages are handed over
    exactly once as long as it has.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        log: the gateway's store.
        queue: what the store has for the route, if that is known.

    ``queue`` is what waits for the route; its state is up to date as far as its watch runs beside the route.
    """

    def __init__(
        self, config: RouteConfig, gateway_name: str, log: MessageLog, queue: RouteQueue | None = None
    ) -> None:
        self.config = config
        self._names = (config.name, config.broker)
        self.queue = queue or RouteQueue(config.name, log, config, gateway_name)
        notes = RouteNotes(log.folder, config.name)
        self._connector = Connector(config, f"{gateway_name}-{config.name}", notes, self.queue)
        self._log = log
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        self._said = ""
        self._has_connected = False

    @property
    def problem(self) -> str:
        """Why the newest connection failed or ended; "" since the next one."""
        return self._said

    async def run(self) -> None:
        """Serves for ever: connects, forwards, and after each loss waits and connects again."""
        try:
            while True:
                await self._serve_once()
                await asyncio.sleep(self._backoff.next_wait_ms() / 1000)
        finally:
            await self._connector.close()

    async def _serve_once(self) -> None:
        try:
            await self._serve()
        except (LinkDown, sqlite3.Error) as error:
            self.queue.state.note_error(str(error))
            if str(error) != self._said:
                self._said = str(error)
                logger.warning("route %s to %s: %s; storing meanwhile", *self._names, self._said)
        except Exception as error:
            self.queue.state.note_error(f"unexpected failure: {error}")
            logger.exception("route %s to %s: unexpected failure; storing meanwhile", *self._names)

    async def _serve(self) -> None:
        """One connection, from its start to the LinkDown at its end."""
        client, remote, connack = await self._connector.connect()
        try:
            await self._check_accepted(client, connack)
            window = RouteWindow(
                client,
                remote,
                self._log,
                self.queue,
                session_present=connack.session_present,
                next_hop=find_user_property(connack.properties, HOPS_PROPERTY) or "",
            )
            sender = self.queue.sender = Sender(window, self._log, self._cursor_for(client), remote.close)
            needs_subscriber = self.config.needs_subscriber
            answers = Answers(
                window, sender, remote, self._log, self.queue, self._backoff, needs_subscriber=needs_subscriber
            )
            remote.take(answers.handle)
            try:
                await self._resend_until(remote.ended, Resend(window, sender, self._log, self.queue))
            finally:
                answers.stop()
                sender.stop()
                await answers.settle()
        finally:
            self.queue.state.connected, self.queue.sender = False, None
            remote.close("the route ends")
        raise LinkDown(remote.ended.result())

    def _cursor_for(self, client: BulkClientConnection) -> Cursor | ShapedCursor | BatchCursor:
        batches = self.queue.batches
        if batches is None:
            return self.queue.source
        batches.payload_max = payload_max(client.maximum_packet_size_peer, self.queue.batch_topic)
        return batches

    async def _check_accepted(self, client: BulkClientConnection, connack: Connack) -> None:
        """Notes that the broker has accepted the connection. Raises LinkDown if it may not have custody."""
        state = self.queue.state
        if not client.maximum_qos_peer:
            state.stands = QOS_0_ONLY
            raise LinkDown(QOS_0_ONLY)
        if state.stands == QOS_0_ONLY:
            state.stands = ""
        has_batches = self.queue.batches is not None or any(flow.ranges for flow in self.queue.outgoing.flows.values())
        if has_batches and client.protocol_level != MQTT_5:
            state.stands = 'the broker speaks MQTT 3.1.1, and batches need MQTT 5 [framing = "batch"]'
            raise LinkDown(state.stands)
        if not self.queue.has_session:
            await self._log.routes.begin_session(self.queue.consumer)
        if not state.stands:  # otherwise each attempt would log two lines
            logger.info("route %s to %s: connected, session present: %s", *self._names, connack.session_present)
            self._said = ""
        state.connected = True
        state.reconnects += self._has_connected
        self._has_connected = True

    async def _resend_until(self, ended: asyncio.Future[str], resend: Resend) -> None:
        """Sends refused messages again as an operator asks for it, until the connection has ended."""
        resending = asyncio.get_running_loop().create_task(resend.run())
        try:
            await first_of(ended, resending)
            if not ended.done():
                resending.result()
        except (OSError, WireError) as error:
            raise LinkDown(str(error)) from error
        finally:
            resending.cancel()


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Waits until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
