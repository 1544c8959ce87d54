"""What the PUBLISH of a route's QoS 2 flow carries."""

from collections.abc import Callable
from functools import partial

from gateway.routes import Message
from gateway.store import Delivery, Piece, qos2
from uplink.numbers import part_of_via
from uplink.outlet.batch import encode
from uplink.outlet.batch_publish import batch_publish
from uplink.queue.route_queue import RouteQueue
from uplink.shape import CannotShape


class FlowMessages:
    """Reads the messages of flows again, each as the route sends it.

    Args:
        queue: what waits for the route.
    """

    def __init__(self, queue: RouteQueue) -> None:
        self._queue = queue

    async def message_of(self, flow: qos2.Flow) -> Message | None:
        """Returns the message of a flow, of a batch what is left of its messages; None if nothing is.

        Raises sqlite3.Error, TooManyRefused.
        """
        if flow.ranges:
            left = await self.left_of(flow)
            return self.batch_of(flow, left) if left else None
        message = await self._queue.outgoing.message_of(flow)
        return message if message is None or flow.topic else self.shape(flow.position, message, lambda: flow.via)

    async def left_of(self, flow: qos2.Flow) -> list[tuple[int, Message]]:
        """Returns what is left of the messages of a batch, each with its position, without the ones set aside.

        Raises sqlite3.Error, TooManyRefused.
        """
        stored = await self._queue.outgoing.messages_of(flow)
        shaped = [
            (position, self.shape(position, message, partial(part_of_via, flow.via, flow.positions, {position})))
            for position, message in stored
        ]
        return [(position, message) for position, message in shaped if message is not None]

    def batch_of(self, flow: qos2.Flow, members: list[tuple[int, Message]]) -> Message:
        """Returns the QoS 2 message with a batch of shaped messages of a flow, each given with its position."""
        pieces: list[Piece] = [Delivery(position, 0, message, False, 2) for position, message in members]
        via = part_of_via(flow.via, flow.positions, {position for position, _ in members})
        return batch_publish(self._queue.lanes.batch_topic, encode(pieces).encode(), 2, pieces, via)

    def shape(self, position: int, message: Message, via: Callable[[], str]) -> Message | None:
        """Returns a stored message as the route sends it; None, and it is set aside with its route number, if
        there is no such message.

        Raises TooManyRefused.
        """
        try:
            return self._queue.lanes.shaping.shape(message)
        except CannotShape as error:
            self._queue.refusals.set_aside(position, str(error), via())
            return None
