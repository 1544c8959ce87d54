"""A route's window: messages in flight to the next broker."""

import asyncio
from collections.abc import Sequence
from functools import partial

from gateway.routes import (
    OVERSIZE,
    Flow,
    Grant,
    Message,
    MessageLog,
    Peer,
    Refused,
    Shift,
    Window,
    identity_properties,
    plain_properties,
)
from uplink.batch import encode
from uplink.batch_cursor import BatchPublish, batch_publish
from uplink.connect.remote import Remote
from uplink.queue import RouteQueue
from uplink.shape import CannotShape
from wire.bulk.connection import BulkClientConnection
from wire.errors import PacketTooLargeError

NO_RETAIN = "the broker takes no retained messages"


class RouteWindow(Window):
    """The window of one connection to the next broker. No message is passed over: that would lose it.

    A message that the broker has announced not to take is set aside. While the window is paused nothing is sent.

    Args:
        client: the connection, already accepted.
        remote: the line under it.
        log: the gateway's store.
        queue: what waits for the route.
        session_present: whether the broker still has the route's session.
        next_hop: the hop of the broker, if it is a gateway; messages that have passed it do not go there again.

    ``resent`` are the refused messages of QoS 1 that were sent again and are not acknowledged, by packet identifier.
    ``to_split`` are the QoS 2 batches that the broker does not take, and whose halves are to go instead.
    """

    def __init__(
        self,
        client: BulkClientConnection,
        remote: Remote,
        log: MessageLog,
        queue: RouteQueue,
        *,
        session_present: bool,
        next_hop: str = "",
    ) -> None:
        name = f"route {queue.name}"
        peer = Peer(name, client, remote, remote.flush, lambda _: True, True, session_present, log.hop)
        super().__init__(peer, log, queue.consumer, queue.outgoing, Shift())
        self.resent: dict[int, Refused] = {}
        self.to_split: list[Flow] = []
        self._queue = queue
        self._properties_of = partial(identity_properties, hop=log.hop)
        self._next_hop = next_hop
        self._running = asyncio.Event()
        self._running.set()

    def pause(self) -> None:
        """Sends nothing until ``go_on``."""
        self._running.clear()

    def go_on(self) -> None:
        """Ends a pause."""
        self._running.set()

    async def wait_for_line(self) -> None:
        await self._running.wait()
        await super().wait_for_line()

    def publish(
        self, message: Message, grant: Grant, packet_identifier: int | None = None, *, dup: bool = False
    ) -> bool:
        """Returns False for a message that was set aside, or comes from there, and for a batch whose halves go instead.

        Raises TooManyRefused, WireError.
        """
        if self._comes_from_there(message):
            return False
        self._queue.state.retries += dup
        if grant.retain and not self.protocol.takes_retain:
            return self._set_aside(packet_identifier, NO_RETAIN, dup)
        properties_of = plain_properties if isinstance(message, BatchPublish) else self._properties_of
        try:
            self.send(message, grant, packet_identifier, dup and self.session_present, properties_of)
        except PacketTooLargeError as error:
            if packet_identifier is not None and self.split(packet_identifier):
                return packet_identifier in self.outgoing.flows
            return self._set_aside(packet_identifier, f"{OVERSIZE}: {error}", dup)
        self._queue.state.qos_0_sent += not grant.qos
        return True

    def publish_together(self, messages: Sequence[Message], identifiers: list[int], qos: int) -> bool:
        if self._queue.batches is not None or (self._next_hop and any(map(self._comes_from_there, messages))):
            return False
        return super().publish_together(messages, identifiers, qos)

    def _comes_from_there(self, message: Message) -> bool:
        """Whether the next broker is a gateway that has handed the message on: it would not store it again."""
        return bool(self._next_hop) and message.has_passed(self._next_hop)

    async def message_of(self, flow: Flow) -> Message | None:
        """Returns what the PUBLISH of a flow carries; of a batch what is left of its messages."""
        if not flow.ranges:
            message = await super().message_of(flow)
            return None if message is None else self.shape(flow.position, message)
        found = self.shape_all(await self.outgoing.messages_of(flow))
        return self.batch_of(found) if found else None

    def shape(self, position: int, message: Message) -> Message | None:
        """Returns a stored message as the route sends it; None, and it is set aside, if there is no such message.

        Raises TooManyRefused.
        """
        try:
            return self._queue.shape(message)
        except CannotShape as error:
            self._queue.refusals.set_aside(position, str(error))
            return None

    def shape_all(self, stored: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
        """Returns stored messages, each with its position, as the route sends them, but for those that are set aside.

        Raises TooManyRefused.
        """
        shaped = [(position, self.shape(position, message)) for position, message in stored]
        return [(position, message) for position, message in shaped if message is not None]

    def batch_of(self, members: list[tuple[int, Message]]) -> Message:
        """Returns the QoS 2 message with a batch of shaped messages, which are given with their positions."""
        payload = encode([(message, False) for _, message in members]).encode()
        return batch_publish(self._queue.batch_topic, payload, 2, members)

    def is_batch(self, packet_identifier: int) -> bool:
        """Whether the message with a packet identifier in flight carries a batch."""
        if flow := self.outgoing.flows.get(packet_identifier):
            return bool(flow.ranges)
        batches = self._queue.batches
        return batches is not None and packet_identifier not in self.resent and batches.is_batch(packet_identifier)

    def split(self, packet_identifier: int) -> bool:
        """Sends two halves of a batch instead of it; returns False if it is no batch, or has a single message."""
        if not self.is_batch(packet_identifier):
            return False
        if flow := self.outgoing.flows.get(packet_identifier):
            if flow.first == flow.position:
                return False
            self.to_split.append(flow)
            self._queue.refusals.is_due.set()
            return True
        assert self._queue.batches is not None
        return self._queue.batches.split(packet_identifier)

    def position_of(self, packet_identifier: int) -> int:
        """Returns the position of the message with a packet identifier in flight. Raises KeyError."""
        if flow := self.outgoing.flows.get(packet_identifier):
            return flow.position
        if one := self.resent.get(packet_identifier):
            return one.position
        return (self._queue.batches or self._queue.cursor).position_of(packet_identifier)

    def _set_aside(self, packet_identifier: int | None, reason: str, dup: bool) -> bool:
        if packet_identifier is None:  # it was not stored
            self._queue.state.qos_0_dropped += 1
            return False
        self._queue.refusals.set_aside(self.position_of(packet_identifier), reason)
        self.resent.pop(packet_identifier, None)
        flow = self.outgoing.flows.get(packet_identifier)
        if flow is None or not (dup and self.session_present):
            return False
        # The broker may have the message of the earlier connection: its packet identifier stays in use until a PUBCOMP.
        self.outgoing.pass_over(flow)
        self.protocol.pubrel(packet_identifier)
        return True
