"""A route's QoS 2 messages: each one is noted before its PUBLISH goes out, and again before its PUBREL.

What is noted is the route's and no longer its cursor's, so that neither a lost link nor a crash begins it a second
time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.message import Message
from gateway.outgoing import Outgoing
from gateway.store.cursor import Cursor
from gateway.store.delivery import Delivery
from gateway.store.flows import BEGUN, DONE, RELEASED, ROUTE_END
from gateway.store.log import MessageLog
from uplink.remote import Remote
from wire.client import ClientConnection

Publish = Callable[[Message, int], Awaitable[None]]
"""Sends a message again at QoS 2, with its packet identifier."""


class Flows:
    """The QoS 2 messages of one route.

    Args:
        log: the gateway's store.
        cursor: the route's place in it.
    """

    def __init__(self, log: MessageLog, cursor: Cursor) -> None:
        name = cursor.consumer + ROUTE_END
        before = [flow for flow in log.flows if flow.session == name and flow.state != DONE]
        self._log = log
        self._cursor = cursor
        self._outgoing = Outgoing(log, name, before)
        self._beginning: asyncio.Future[list[Any]] | None = None

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._outgoing.flows

    async def begin(self, deliveries: list[Delivery]) -> dict[int, int]:
        """Notes messages that the cursor has handed out; returns their packet identifiers by position.

        Raises:
            sqlite3.Error: they could not be noted; the cursor has them again.
        """
        if not deliveries:
            return {}
        taken = self._cursor.on_the_way
        flows = [
            self._outgoing.flow(self._outgoing.next_identifier(taken), self._cursor, delivery)
            for delivery in deliveries
        ]
        handed_over = [delivery.packet_identifier for delivery in deliveries]

        def begun(failed: bool) -> None:
            if failed:
                self._cursor.release(handed_over)
            else:
                self._cursor.acknowledge_all(handed_over)

        self._beginning = self._outgoing.begin(flows, begun, durable=True)
        await asyncio.shield(self._beginning)
        return {flow.position: flow.packet_identifier for flow in flows}

    async def resume(self, client: ClientConnection, session_present: bool, publish: Publish) -> None:
        """Goes on over a new connection with what has begun over others.

        Raises:
            sqlite3.Error: a message cannot be read.
        """
        if self._beginning is not None:
            await asyncio.wait([self._beginning])  # what came of it is told to the cursor
        flows = list(self._outgoing.flows.values())
        for flow in flows:
            if flow.state == RELEASED and session_present:
                client.pubrel(flow.packet_identifier)
            elif flow.state == RELEASED:  # the broker has the message, and forgot how it got it
                self._outgoing.complete([flow.packet_identifier])
        for flow in flows:
            if flow.state == BEGUN:
                message = await self._log.read_one(flow.position)
                if message is not None:
                    await publish(message, flow.packet_identifier)
                    continue
                self._outgoing.miss(flow)
                if session_present:  # it is gone: for the broker the identifier stands for nothing
                    client.pubrel(flow.packet_identifier)
                else:
                    self._outgoing.complete([flow.packet_identifier])

    def receive(self, packet_identifier: int, client: ClientConnection, remote: Remote) -> None:
        """PUBREC: the broker has the message; PUBREL follows once that is noted."""
        note = self._log.submit(self._outgoing.note_received([packet_identifier]))

        def noted(done: asyncio.Future[list[Any]]) -> None:
            if error := done.exception():
                remote.close(str(error))
                return
            self._outgoing.release([packet_identifier])
            if not remote.ended.done():
                client.pubrel(packet_identifier)
                remote.flush()

        note.add_done_callback(noted)

    def complete(self, packet_identifier: int) -> None:
        """PUBCOMP: it is over."""
        self._outgoing.complete([packet_identifier])
