"""The delivery engine: cursor → window → PUBLISH → PUBACK → cursor. The gateway's side as the sender of messages.

::

    session's cursor ──┐
    share group's ─────┼─ fetch ─► room in the window and on the line? ─► PUBLISH ─► client
    …                  │                                                              │
    cursor.acknowledge ◄──────────────────────────────────────────────── PUBACK ◄─────┘

The sender pulls: it fetches only what the client has room for, so a slow client holds back nobody but itself, and
what it has not fetched stays on disk.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.message import Message, publish_properties
from gateway.port import Port
from gateway.store.cursor import PACKET_IDENTIFIERS, Cursor, Delivery
from wire.errors import PacketTooLargeError, WireError
from wire.server import ServerConnection

FETCH_MOST = 100  # deliveries between two looks at the window and the line
SHARED_FETCH_MOST = 8  # a member of a group takes few at a time, so that the others get their part
QOS_0_BACKLOG_MAX = 1024 * 1024  # bytes waiting on the line beyond which QoS 0 messages are dropped

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Source:
    """A cursor that this client is fed from; ``held`` are its deliveries that are not acknowledged."""

    cursor: Cursor
    qos_max: int
    shared: bool
    held: set[int] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class Sender:
    """Sends one client what its cursors hold, for the time of one connection.

    Args:
        protocol: the connection, already accepted.
        port: the line under it.
        client: who it is, for the log.
        failed: called with a text when messages cannot be read any more; ends the connection.
    """

    def __init__(self, protocol: ServerConnection, port: Port, client: str, failed: Callable[[str], None]) -> None:
        self._protocol = protocol
        self._port = port
        self._client = client
        self._failed = failed
        self._sources: dict[str, _Source] = {}
        self._inflight: dict[int, tuple[_Source, int]] = {}
        self._acknowledged = asyncio.Event()
        # Downwards: the session's own identifiers, which its cursor gives, come from the other end.
        self._shared_identifiers = itertools.cycle(range(PACKET_IDENTIFIERS, 0, -1))
        self._dropped = 0

    def open_source(self, cursor: Cursor, *, qos_max: int, shared: bool = False) -> None:
        """Begins to feed the client from a cursor, or changes the QoS at which it is fed."""
        if source := self._sources.get(cursor.consumer):
            source.qos_max = qos_max
            return
        source = self._sources[cursor.consumer] = _Source(cursor, qos_max, shared)
        source.task = asyncio.get_running_loop().create_task(self._feed(source))

    def close_source(self, cursor: Cursor) -> None:
        """Stops feeding from a cursor; what is on its way to the client stays there to be acknowledged."""
        if source := self._sources.pop(cursor.consumer, None):
            self._stop(source, keep={held for fed, held in self._inflight.values() if fed is source})

    def stop(self) -> None:
        """Stops feeding: each cursor has again what the client did not acknowledge."""
        for source in {source for source, _ in self._inflight.values()} | set(self._sources.values()):
            self._stop(source, keep=set())
        self._sources.clear()
        self._inflight.clear()
        if self._dropped:
            logger.warning("%s was slow: %d QoS 0 messages to it were dropped", self._client, self._dropped)

    def handle_puback(self, packet_identifier: int) -> None:
        """The client has a message, or has refused it for good; either way it does not get it again."""
        source, held = self._inflight.pop(packet_identifier)
        self._finish(source, held)
        self._acknowledged.set()

    def send_now(self, message: Message) -> None:
        """Sends a QoS 0 message if the line has room for it; drops it if not."""
        if not self._protocol.connected:
            return
        if self._port.backlog > QOS_0_BACKLOG_MAX:
            if not self._dropped:
                logger.warning("%s is slow: QoS 0 messages to it are dropped", self._client)
            self._dropped += 1
            return
        self._publish(message, qos=0)
        self._flush()

    async def _feed(self, source: _Source) -> None:
        try:
            while True:
                await self._wait_for_room()
                limit = SHARED_FETCH_MOST if source.shared else FETCH_MOST
                deliveries = await source.cursor.fetch(min(limit, self._protocol.send_quota or 1))
                source.held.update(delivery.packet_identifier for delivery in deliveries)
                for delivery in deliveries:
                    await self._send(source, delivery)
                self._flush()
        except OSError:
            pass  # the line has ended; the connection learns it from its own reading
        except (sqlite3.Error, WireError) as error:
            self._failed(f"stored messages cannot be sent: {error}")

    async def _send(self, source: _Source, delivery: Delivery) -> None:
        qos = min(delivery.qos, source.qos_max)
        packet_identifier = None
        if not qos:
            await self._port.drain()
        elif source.shared:
            await self._wait_for_room()
            packet_identifier = next(i for i in self._shared_identifiers if i not in self._inflight)
        else:
            packet_identifier = delivery.packet_identifier
            await self._wait_for_room(packet_identifier)
        dup = delivery.dup and qos > 0 and not source.shared
        sent = self._publish(delivery.message, qos=qos, dup=dup, packet_identifier=packet_identifier)
        if sent and packet_identifier is not None:
            self._inflight[packet_identifier] = source, delivery.packet_identifier
        else:
            self._finish(source, delivery.packet_identifier)

    def _publish(self, message: Message, *, qos: int, dup: bool = False, packet_identifier: int | None = None) -> bool:
        """Returns whether the message is on its way; one that is too large for this client is passed over."""
        try:
            self._protocol.publish(
                message.topic,
                message.payload,
                qos=qos,
                retain=False,
                dup=dup,
                properties=publish_properties(message),
                packet_identifier=packet_identifier,
            )
        except PacketTooLargeError as error:
            logger.warning("%s: message on %r passed over: %s", self._client, message.topic, error)
            return False
        return True

    async def _wait_for_room(self, packet_identifier: int | None = None) -> None:
        """Waits until line and window take a QoS 1 message, with this packet identifier if one is given."""
        await self._port.drain()
        while self._protocol.send_quota == 0 or packet_identifier in self._inflight:
            self._flush()
            self._acknowledged.clear()
            await self._acknowledged.wait()
            await self._port.drain()

    def _finish(self, source: _Source, held: int) -> None:
        source.held.discard(held)
        source.cursor.acknowledge(held)

    def _stop(self, source: _Source, keep: set[int]) -> None:
        if source.task is not None:
            source.task.cancel()
        source.cursor.release(source.held - keep)
        source.held &= keep

    def _flush(self) -> None:
        self._port.send(self._protocol.data_to_send())
