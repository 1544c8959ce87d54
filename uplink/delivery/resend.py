"""What a broker has refused, on its way again: messages that an operator wants to be sent, and halves of batches."""

from gateway.delivery import Sender
from gateway.routes import Message
from gateway.store import Delivery, Grant, MessageLog, Refused, RefusedRow, qos2
from uplink.delivery.statements import Statements
from uplink.delivery.window import RouteWindow
from uplink.queue.route_queue import RouteQueue


class Resend:
    """Sends a route's due messages over one connection, beside the new ones, and the halves of refused QoS 2 batches.

    A message of QoS 2 becomes a flow in the transaction that ends its being set aside, so that it goes exactly once.

    Args:
        window: the way to the broker.
        sender: sends the new messages.
        log: the gateway's store.
        queue: what waits for the route.
        statements: which statements the broker takes.
    """

    durable = True

    def __init__(
        self, window: RouteWindow, sender: Sender, log: MessageLog, queue: RouteQueue, statements: Statements
    ) -> None:
        self.consumer = queue.consumer
        self._window = window
        self._sender = sender
        self._log = log
        self._statements = statements
        self._refusals = queue.refusals
        self._begun: RefusedRow

    async def run(self) -> None:
        """Sends what is due, for ever. Raises sqlite3.Error, OSError, WireError."""
        refusals, window = self._refusals, self._window
        await self._sender.resumed()
        while True:
            in_flight = {one.position for one in window.sent.resent.values()}
            await refusals.send_due(window.wait_for_room, self._send, in_flight)
            while window.sent.to_split:
                await self._send_halves(window.sent.to_split.pop(0))
            window.flush()
            await refusals.is_due.wait()

    async def _send(self, one: Refused, stored: Message) -> None:
        window = self._window
        message = window.messages.shape(one.position, stored, lambda: one.row.via)
        if message is None:
            return
        if self._statements.is_refused(message.topic):  # the broker has just refused another one
            del self._refusals.due[one.position]
            return
        self._statements.note_sent([(one.position, message.topic)])
        grant = Grant(min(max(1, message.qos), window.protocol.maximum_qos_peer), message.retain)
        if grant.qos == 2:
            self._begun = one.row
            delivery = Delivery(one.position, 0, message, False, *grant)
            flows = await window.outgoing.begin(
                self, [delivery], window.inflight, self._refusals.release(one), via=one.row.via
            )
            await window.wait_for_room()  # other messages may have gone while the flow was stored
            window.publish_once(message, grant, flows[0].packet_identifier)
            return
        packet_identifier = window.next_identifier()
        window.sent.resent[packet_identifier] = one
        if window.publish(message, grant, packet_identifier):
            window.await_pubacks([packet_identifier], self._arrived)
        else:
            self._arrived([packet_identifier])  # unless it was set aside again

    async def _send_halves(self, flow: qos2.Flow) -> None:
        """Each half is a flow from now on, so that its messages go exactly once."""
        window = self._window
        left = await window.messages.left_of(flow)
        if not left:
            window.outgoing.complete([flow.packet_identifier])
            return
        half = len(left) // 2
        parts = [part for part in (left[:half], left[half:]) if part]
        batches = [window.messages.batch_of(flow, part) for part in parts]
        deliveries = [
            Delivery(part[-1][0], number, batch, False, 2)
            for number, (part, batch) in enumerate(zip(parts, batches, strict=True))
        ]
        flows = await window.outgoing.replace(flow, deliveries, window.inflight)
        for delivery in deliveries:
            await window.wait_for_room()
            window.publish_once(delivery.message, Grant(2), flows[delivery.packet_identifier].packet_identifier)

    def acknowledge_all(self, numbers: list[int]) -> None:
        """The flow has the message: nothing is left to do."""

    def redeliver(self, numbers: list[int]) -> None:
        """The flow could not be stored: the message stays set aside."""
        one = self._begun
        self._log.refused.add(one.consumer, one.position, one.reason, one.via)

    def _arrived(self, packet_identifiers: list[int]) -> None:
        for packet_identifier in packet_identifiers:
            if one := self._window.sent.resent.pop(packet_identifier, None):
                self._log.defer(self._refusals.release(one))
