"""What the tables have passed over, on its way again beside the new messages of a route."""

import asyncio
import contextlib

from gateway.delivery import Sender
from gateway.routes import Message, RouteState
from gateway.store import Delivery, Grant
from uplink.delivery.window import RouteWindow
from uplink.outlet.batch import encode
from uplink.outlet.batch_publish import batch_publish
from uplink.queue.keeping import AGAIN_PART, Keeping
from uplink.queue.route_queue import RouteQueue
from uplink.shape import CannotShape

AGAIN = Grant(1)
"""At QoS 1, as the identity makes it count once, and not retained: newer messages have come since."""


class PassedOver:
    """Sends what a route keeps again over one connection, once the tables have passed over it.

    Args:
        window: the way to the broker.
        sender: sends the new messages.
        keeping: what the route keeps.
        queue: what waits for the route.
    """

    def __init__(self, window: RouteWindow, sender: Sender, keeping: Keeping, queue: RouteQueue) -> None:
        self._window = window
        self._sender = sender
        self._keeping = keeping
        self._state: RouteState = queue.state
        self._lanes = queue.lanes
        self._most = max(1, min(queue.settings.inflight_window, window.protocol.send_quota or 1) // AGAIN_PART)
        self._pause_s = 1 / queue.settings.backfill_rate if queue.settings.backfill_rate else 0.0

    async def run(self) -> None:
        """Sends what is due, for ever. Raises sqlite3.Error, OSError, WireError."""
        await self._sender.resumed()
        while True:
            async with contextlib.aclosing(self._keeping.passed_over()) as found:
                async for position, message in found:
                    await self._wait_for_room()
                    self._send(position, message)
            self._window.flush()
            await self._keeping.is_due.wait()

    async def _wait_for_room(self) -> None:
        await asyncio.sleep(self._pause_s)
        sent = self._window.sent
        while len(sent.again) >= self._most:
            self._window.flush()
            sent.fewer_again.clear()
            await sent.fewer_again.wait()
        await self._window.wait_for_room()

    def _send(self, position: int, stored: Message) -> None:
        try:
            message = self._in_batch(position, self._lanes.shaping.shape(stored))
        except CannotShape:  # it was set aside when its turn came
            return
        window = self._window
        packet_identifier = window.next_identifier()
        window.sent.again[packet_identifier] = position
        if window.publish(message, AGAIN, packet_identifier):
            self._state.unproven_sent += 1
            window.await_pubacks([packet_identifier], _ignore)
        else:
            window.sent.forget([packet_identifier])

    def _in_batch(self, position: int, message: Message) -> Message:
        """Returns a batch of this message alone where the route sends batches: receivers may take nothing else."""
        if not self._lanes.outlet.has_batches:
            return message
        piece = Delivery(position, 0, message, False, AGAIN.qos)
        encoder = encode([piece])
        if not len(encoder):  # it is larger than a batch may be, and went by itself before
            return message
        return batch_publish(self._lanes.batch_topic, encoder.encode(), AGAIN.qos, [piece], "")


def _ignore(_: list[int]) -> None:
    """Only a receipt says that it has arrived."""
