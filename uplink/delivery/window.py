"""A route's window: messages in flight to the next broker."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.delivery import Peer, Window
from gateway.routes import Message, Shift, plain_properties
from gateway.store import Delivery, DeliveryRun, Grant, MessageLog, Work, drops, qos2
from uplink.connect.remote import Remote
from uplink.delivery.flow_messages import FlowMessages
from uplink.delivery.sent_messages import SentMessages
from uplink.delivery.statements import Statements
from uplink.outlet.batch_publish import BatchPublish
from uplink.queue.route_queue import RouteQueue
from wire.bulk.connection import BulkClientConnection
from wire.bulk.property_block import encode_via_property
from wire.bulk.publish_run import encode_run
from wire.errors import PacketTooLargeError
from wire.properties import USER_PROPERTY
from wire.route_numbers import STATEMENT_TOPICS, VIA_PROPERTY

STATEMENT_TOPICS_BYTES = STATEMENT_TOPICS.encode()
NO_RETAIN = "the broker takes no retained messages"


class RouteWindow(Window):
    """The window of one connection to the next broker. No message is passed over: that would lose it.

    A message that the broker has announced not to take is set aside. While the window is paused nothing is sent.

    Args:
        client: the connection, already accepted.
        remote: the line under it.
        log: the gateway's store.
        queue: what waits for the route.
        statements: which statements the broker takes.
        session_present: whether the broker still has the route's session.
        next_hop: the hop of the broker, if it is a gateway; messages that have passed it do not go there again.

    ``sent`` tells what is in flight, and ``messages`` what a flow carries.
    """

    def __init__(
        self,
        client: BulkClientConnection,
        remote: Remote,
        log: MessageLog,
        queue: RouteQueue,
        statements: Statements,
        *,
        session_present: bool,
        next_hop: str = "",
    ) -> None:
        name = f"route {queue.name}"
        peer = Peer(name, client, remote, remote.flush, lambda _: True, True, session_present, log.hop)
        super().__init__(peer, log, queue.consumer, queue.outgoing, Shift())
        self.sent = SentMessages(queue, statements)
        self.messages = FlowMessages(queue)
        self._queue = queue
        self._statements = statements
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
        """Returns False if not sent: set aside, already known to the broker, or a batch to be split.

        Raises TooManyRefused, WireError.
        """
        if self._comes_from_there(message):
            return False
        if self.sent.is_retained(packet_identifier):
            shaped = self._queue.lanes.shaping.shape_retained(message) if self.protocol.takes_retain else None
            if shaped is None:
                return False
            message = shaped
        elif packet_identifier in self.sent.again and self._statements.is_refused(message.topic):
            return False
        elif packet_identifier is not None and self._statements.is_refused(message.topic):
            position, via = self.sent.place_of(packet_identifier)
            self._statements.keep(position, message, via)
            return self._end_flow(packet_identifier, dup)
        self._queue.state.retries += dup
        if grant.retain and not self.protocol.takes_retain:
            return self._set_aside(packet_identifier, NO_RETAIN, dup)
        via = "" if packet_identifier is None else self.sent.place_of(packet_identifier)[1]
        properties_of = plain_properties if isinstance(message, BatchPublish) else self._numbered(via)
        try:
            self.send(message, grant, packet_identifier, dup and self.session_present, properties_of)
        except PacketTooLargeError as error:
            if packet_identifier is not None and self.sent.is_copy(packet_identifier):
                self.drop(drops.OVERSIZE, message)
                return False
            if packet_identifier is not None and self.sent.split(packet_identifier):
                return packet_identifier in self.outgoing.flows
            return self._set_aside(packet_identifier, f"{drops.OVERSIZE}: {error}", dup)
        self._queue.state.qos_0_sent += not grant.qos
        return True

    def _numbered(self, via: str) -> Callable[[Message, Sequence[int]], dict[int, Any]]:
        """Returns what makes the properties of a message with this route number."""
        if not via:
            return self.properties_of

        def properties_of(message: Message, identifiers: Sequence[int]) -> dict[int, Any]:
            properties = self.properties_of(message, identifiers)
            properties[USER_PROPERTY].append((VIA_PROPERTY, via))
            return properties

        return properties_of

    def publish_together(self, deliveries: Sequence[Delivery], identifiers: list[int], qos: int) -> bool:
        if self._queue.lanes.outlet.has_batches:
            return False
        messages = [one.message for one in deliveries] if self._next_hop or self._statements.are_refused else []
        if any(self._comes_from_there(one) or self._statements.is_refused(one.topic) for one in messages):
            return False
        return super().publish_together(deliveries, identifiers, qos)

    def take(self, deliveries: Sequence[Delivery]) -> list[Work]:
        self._statements.note_sent((one.position, one.message.topic) for one in deliveries)
        numbers = self._queue.lanes.numbers_of(deliveries[0].packet_identifier)
        if not numbers.is_stating:
            return []
        if not self._queue.lanes.outlet.has_batches:  # it has counted them
            unix_ms = time.time() * 1000
            numbers.count(
                (message, number)
                for _, _, message, _, _, _, _, number in deliveries
                if not (0 < message.expires_ms <= unix_ms or self._comes_from_there(message))
            )
        return numbers.save()

    def vias_of(self, deliveries: Sequence[Delivery], identifiers: Sequence[int], qos: int) -> Sequence[bytes]:
        if qos == 2:
            vias = [self.outgoing.flows[identifier].via for identifier in identifiers]
            return [encode_via_property(via) for via in vias] if all(vias) else ()
        numbers = self._queue.lanes.numbers_of(identifiers[0])
        return numbers.vias([delivery.number for delivery in deliveries]) if numbers.is_open else ()

    @property
    def run_qos_max(self) -> int:
        is_stating = any(lane.is_stating for lane in self._queue.lanes.numbers)
        return 0 if is_stating else 1  # statements count each message, and QoS 2 needs a flow for each

    def publish_run(self, run: DeliveryRun) -> bool:
        if run.dup or run.grant.retain:
            return False
        identifiers = run.packet_identifiers
        if not self.outgoing.flows.keys().isdisjoint(identifiers):
            return False
        batch, columns, numbers = run.batch, run.columns(), self._queue.lanes.numbers_of(identifiers[0])
        if any(topic.startswith(STATEMENT_TOPICS_BYTES) for topic in set(columns.topics)):
            return False  # `take` notes them
        encoded, longest = encode_run(
            columns.topics,
            columns.blocks,
            columns.payloads,
            run.identities,
            identifiers,
            run.qos,
            self.protocol.protocol_level,
            batch.received_ms,
            batch.gateway,
            self._hop,
            numbers.via_from(run.number),
        )
        return self.protocol.publish_all(identifiers, encoded, longest)

    def _comes_from_there(self, message: Message) -> bool:
        """Whether the next broker is a gateway that has handed the message on: it would not store it again."""
        return bool(self._next_hop) and message.has_passed(self._next_hop)

    async def message_of(self, flow: qos2.Flow) -> Message | None:
        return await self.messages.message_of(flow)

    def next_identifier(self) -> int:
        identifier = super().next_identifier()
        self.sent.given.add(identifier)
        return identifier

    def forget(self, packet_identifiers: Iterable[int]) -> None:
        packet_identifiers = list(packet_identifiers)
        self.sent.forget(packet_identifiers)
        super().forget(packet_identifiers)

    def give_up_copy(self, packet_identifier: int) -> bool:
        """Ends a retained message, or one that goes once more, which the broker refuses; returns False if the message
        is another one.
        """
        if not self.sent.is_copy(packet_identifier):
            return False
        if packet_identifier in self.outgoing.flows:
            self.handle_pubcomps([packet_identifier])
        else:
            self.handle_pubacks([packet_identifier])
        return True

    def handle_pubacks(self, packet_identifiers: list[int]) -> None:
        self.sent.forget(packet_identifiers)
        super().handle_pubacks(packet_identifiers)
        self._note_acknowledged()

    def handle_pubcomps(self, packet_identifiers: list[int]) -> None:
        super().handle_pubcomps(packet_identifiers)
        self._note_acknowledged()

    def _note_acknowledged(self) -> None:
        for lane in self._queue.lanes.numbers:
            lane.note_acknowledged()

    def _set_aside(self, packet_identifier: int | None, reason: str, dup: bool) -> bool:
        if packet_identifier is None:  # it was not stored
            self._queue.state.qos_0_dropped += 1
            return False
        position, via = self.sent.place_of(packet_identifier)
        self._queue.refusals.set_aside(position, reason, via)
        return self._end_flow(packet_identifier, dup)

    def _end_flow(self, packet_identifier: int, dup: bool) -> bool:
        """Ends what a message that was set aside has under way; returns whether the broker is to answer that."""
        self.sent.resent.pop(packet_identifier, None)
        flow = self.outgoing.flows.get(packet_identifier)
        if flow is None or not (dup and self.session_present):
            return False
        # The broker may have the message of the earlier connection: its packet identifier stays in use until a PUBCOMP.
        self.outgoing.pass_over(flow)
        self.protocol.pubrel(packet_identifier)
        return True
