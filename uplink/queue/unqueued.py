"""Messages that a route sends at once or not at all: in real time, or of QoS 0 and not stored for the route."""

import contextlib
import sys

from gateway.delivery import Sender
from gateway.routes import Message, RouteState
from gateway.store import Grant, MessageLog, drops
from uplink.config.queue import QueueSettings
from uplink.queue.link import RouteLink
from uplink.queue.route_lanes import RouteLanes
from uplink.shape import CannotShape


class Unqueued:
    """Sends messages past the store, over the connection that the route has now.

    Args:
        log: the gateway's store, which counts what is dropped.
        consumer: the name of the route's cursor.
        state: the route's, which counts too.
        link: says which messages go.
        lanes: shape them.

    ``sender`` is the one of the connection, None without a connection.
    """

    def __init__(self, log: MessageLog, consumer: str, state: RouteState, link: RouteLink, lanes: RouteLanes) -> None:
        self.sender: Sender | None = None
        self._log = log
        self._consumer = consumer
        self._state = state
        self._link = link
        self._lanes = lanes
        self._goes = False  # whether messages of QoS 0 go, and are not dropped

    def change(self, settings: QueueSettings) -> None:
        """Has the live lane offer messages of QoS 0 as they come, where they are not stored for the route."""
        has_neighbour = settings.neighbour is not None
        self._goes = settings.qos0 == "online" or has_neighbour
        is_stored = settings.qos0 == "store" and not has_neighbour
        self._lanes.live.offered = None if is_stored else self._send

    def flood(self, message: Message) -> bool:
        """Sends a real-time message to the neighbour, unless it is for the side that it came from; returns whether it
        was sent.
        """
        if self.sender is None or self._link.interest.is_aside or message.publisher in self._lanes.live.not_from:
            return False
        if not self._passes(message):
            return False
        self.sender.send_now(message, Grant(0, False))
        return True

    def _send(self, message: Message) -> None:
        """Sends a message of QoS 0, if that is configured or a neighbour wants it, and the route is connected."""
        live, shaping = self._lanes.live, self._lanes.shaping
        if message.publisher in live.not_from or live.takes(sys.maxsize, message):
            return  # it is not for the other end, or it is stored
        if message.is_realtime and self._link.is_to_gateway:
            return  # it goes to all neighbours
        if self._link.interest.is_aside or not self._passes(message):
            return
        if shaping.leaves_out is not None and shaping.leaves_out(message):
            self._log.drop(drops.SELECTED, self._consumer, message)
            return
        if self._goes and self.sender is not None:
            with contextlib.suppress(CannotShape):
                message = shaping.shape(message)
                self.sender.send_now(message, Grant(0, message.retain))
                return
        self._state.qos_0_dropped += 1

    def _passes(self, message: Message) -> bool:
        """Whether a message may go over the link; it is dropped otherwise."""
        if self._link.conditions.passes(message):
            return True
        self._log.drop(drops.FILTERED, self._consumer, message)
        return False
