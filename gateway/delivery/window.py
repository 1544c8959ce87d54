"""What is on its way to one client: room in the window and on the line, and what an acknowledgement stands for."""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from gateway.hot.answers import encode_answers
from gateway.hot.outflow import encode_publishes
from gateway.message import Message, identity_properties, plain_properties
from gateway.numbers import Counters
from gateway.outgoing import Outgoing
from gateway.pace import Shift
from gateway.port import Port
from gateway.signals import Signal
from gateway.store.delivery import Grant
from gateway.store.drops import EXPIRED, OVERSIZE
from gateway.store.log import MessageLog
from wire.bulk import BulkServerConnection
from wire.errors import PacketTooLargeError
from wire.identity import RECEIVE, find_wishes
from wire.packet_types import PUBREL

Finish = Callable[[list[int]], None]

logger = logging.getLogger(__name__)


class Window:
    """Sends one client its messages, for the time of one connection.

    Args:
        protocol: the connection, already accepted.
        port: the line under it.
        log: where it is noted what the client does not get.
        outgoing: the session's QoS 2 flows.
        consumer: the session's name there.
        client: who it is, for the log.
        may_receive: whether the client may have messages of a topic now.
        counters: where it is counted.
        shift: with which senders it shares a slice.
        flush: puts on the line what the protocol core has to say.
    """

    def __init__(
        self,
        protocol: BulkServerConnection,
        port: Port,
        log: MessageLog,
        outgoing: Outgoing,
        consumer: str,
        client: str,
        may_receive: Callable[[str], bool],
        counters: Counters,
        shift: Shift,
        flush: Callable[[], None],
    ) -> None:
        self.protocol = protocol
        self.port = port
        self.flush = flush
        self.outgoing = outgoing
        self.may_receive = may_receive
        self._log = log
        self._consumer = consumer
        self._client = client
        self._counters = counters
        self._shift = shift
        connect = protocol.connect_packet
        self._has_identity = connect is not None and RECEIVE in find_wishes(connect.properties)
        self._inflight: dict[int, Finish] = {}
        self._acknowledged = Signal()

    def next_identifier(self) -> int:
        """Returns a packet identifier that stands for nothing."""
        return self.outgoing.next_identifier(self._inflight)

    async def wait_for_line(self) -> None:
        """Waits until the line takes a message, and it is this client's turn among those of its owner."""
        await self.port.drain()
        await self._shift.wait()

    async def wait_for_room(self, packet_identifier: int | None = None) -> None:
        """Waits until line and window take a message, with this packet identifier if one is given."""
        await self.wait_for_line()
        while self.protocol.send_quota == 0 or self._is_taken(packet_identifier):
            self.flush()
            self._acknowledged.clear()
            await self._acknowledged.wait()
            await self.wait_for_line()

    def publish(
        self, message: Message, grant: Grant, packet_identifier: int | None = None, *, dup: bool = False
    ) -> bool:
        """Returns whether the message is on its way; one that is too large for this client is passed over."""
        if self._has_identity:
            with contextlib.suppress(PacketTooLargeError):  # it may fit without
                self._publish(message, grant, packet_identifier, dup, identity_properties)
                return True
        try:
            self._publish(message, grant, packet_identifier, dup, plain_properties)
        except PacketTooLargeError as error:
            logger.warning("%s: message on %r passed over: %s", self._client, message.topic, error)
            self.drop(OVERSIZE, message)
            return False
        return True

    def publish_together(self, messages: Sequence[Message], identifiers: list[int], qos: int) -> bool:
        """Sends plain messages of one QoS in one piece; False, and none is sent, where each has to be looked at.

        At QoS 2 their flows have begun.
        """
        if qos == 1 and not self.outgoing.flows.keys().isdisjoint(identifiers):
            return False
        level = self.protocol.protocol_level
        encoded, longest = encode_publishes(messages, identifiers, level, qos, self._has_identity)
        if not self.protocol.publish_all(identifiers, encoded, longest, qos):
            return False
        self._counters.note_sent(qos, sum(len(message.payload) for message in messages), len(messages))
        return True

    def _publish(
        self,
        message: Message,
        grant: Grant,
        packet_identifier: int | None,
        dup: bool,
        properties_of: Callable[[Message, Sequence[int]], dict[int, Any]],
    ) -> None:
        self.protocol.publish(
            message.topic,
            message.payload,
            qos=grant.qos,
            retain=grant.retain,
            dup=dup,
            properties=properties_of(message, grant.identifiers),
            packet_identifier=packet_identifier,
        )
        self._counters.note_sent(grant.qos, len(message.payload))

    def drop(self, reason: str, message: Message) -> None:
        """Notes that the client does not get a message."""
        self._log.drop(reason, self._consumer, message)

    def publish_once(self, message: Message, grant: Grant, packet_identifier: int, *, dup: bool = False) -> None:
        """The same for one whose flow has begun."""
        if not self.publish(message, grant, packet_identifier, dup=dup):
            self.outgoing.complete([packet_identifier])

    def is_wanted(self, message: Message) -> bool:
        """Whether a message is not too late; one that is, is noted."""
        if message.expires_ms and message.expires_ms <= time.time() * 1000:
            self.drop(EXPIRED, message)
            return False
        return True

    def await_pubacks(self, packet_identifiers: Sequence[int], finish: Finish) -> None:
        """Calls ``finish`` when the client has acknowledged QoS 1 messages, with the identifiers of one or more."""
        self._inflight.update(dict.fromkeys(packet_identifiers, finish))

    def handle_pubacks(self, packet_identifiers: list[int]) -> None:
        """The client has messages, or has refused them for good; either way it does not get them again."""
        for finish, acknowledged in groupby(packet_identifiers, self._inflight.pop):
            finish(list(acknowledged))
        self._acknowledged.set()

    def handle_pubcomps(self, packet_identifiers: list[int]) -> None:
        """QoS 2 messages are at their end: completed, or refused by their PUBRECs."""
        self.outgoing.complete(packet_identifiers)
        self._acknowledged.set()

    def release(self, packet_identifiers: list[int]) -> None:
        """PUBRECs are noted durably: their PUBRELs go out, now or when the client is back."""
        self.outgoing.release(packet_identifiers)
        if self.protocol.connected:
            self.protocol.pubrel_all(packet_identifiers, encode_answers(PUBREL, packet_identifiers))

    def _is_taken(self, packet_identifier: int | None) -> bool:
        return packet_identifier in self._inflight or packet_identifier in self.outgoing.flows
