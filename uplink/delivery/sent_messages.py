"""What a route has sent over one connection and what has no acknowledgement yet."""

from collections.abc import Iterable

from gateway.routes import Signal
from gateway.store import Refused, qos2
from uplink.delivery.statements import Statements
from uplink.queue.route_queue import RouteQueue


class SentMessages:
    """Tells what a packet identifier in flight stands for: a message or a batch that the route's cursor has handed out,
    a QoS 2 flow, a refused message that was sent again, one that the tables have passed over, or a retained one.

    Args:
        queue: what waits for the route.
        statements: which statements the broker takes.

    ``resent`` are the refused messages of QoS 1, by packet identifier. ``given`` are the packet identifiers of QoS 1
    messages that no cursor of the route has, and ``again`` maps those among them that the tables have passed over to
    their positions; ``fewer_again`` is set when one of these is answered. ``to_split`` are the QoS 2 batches that the
    broker does not take, and whose halves are to go instead.
    """

    def __init__(self, queue: RouteQueue, statements: Statements) -> None:
        self.resent: dict[int, Refused] = {}
        self.given: set[int] = set()
        self.again: dict[int, int] = {}
        self.fewer_again = Signal()
        self.to_split: list[qos2.Flow] = []
        self._flows = queue.outgoing.flows
        self._lanes = queue.lanes
        self._is_due = queue.refusals.is_due
        self._statements = statements

    def place_of(self, packet_identifier: int) -> tuple[int, str]:
        """Returns position and route number of a message. Raises KeyError."""
        if flow := self._flows.get(packet_identifier):
            return flow.position, flow.via
        if one := self.resent.get(packet_identifier):
            return one.position, one.row.via
        if packet_identifier in self.given:
            return self.again.get(packet_identifier, 0), ""
        position, number = self._lanes.outlet.place_of(packet_identifier)
        return position, self._lanes.numbers_of(packet_identifier).via(number)

    def forget(self, packet_identifiers: Iterable[int]) -> None:
        """These packet identifiers stand for no message of QoS 1 any more that no cursor has."""
        for packet_identifier in self.given.intersection(packet_identifiers):
            self.given.remove(packet_identifier)
            if self.again.pop(packet_identifier, None) is not None:
                self.fewer_again.set()

    def is_retained(self, packet_identifier: int | None) -> bool:
        """Whether a message is a retained one that the route owes its neighbour."""
        if packet_identifier is None:
            return False
        if flow := self._flows.get(packet_identifier):
            return bool(flow.topic)
        return packet_identifier in self.given and not self._goes_again(packet_identifier)

    def _goes_again(self, packet_identifier: int) -> bool:
        return packet_identifier in self.resent or packet_identifier in self.again

    def is_copy(self, packet_identifier: int) -> bool:
        """Whether the route goes on as before if the broker does not take a message: a retained one, or one that the
        broker has acknowledged before.
        """
        return packet_identifier in self.again or self.is_retained(packet_identifier)

    def statement_topic(self, packet_identifier: int) -> str:
        """Returns the topic of a statement, "" if it is another message."""
        if self.is_batch(packet_identifier) or self.is_retained(packet_identifier):
            return ""
        return self._statements.topic_at(self.place_of(packet_identifier)[0])

    def is_batch(self, packet_identifier: int) -> bool:
        """Whether a message carries a batch."""
        if flow := self._flows.get(packet_identifier):
            return bool(flow.ranges)
        return not self._goes_again(packet_identifier) and self._lanes.outlet.is_batch(packet_identifier)

    def split(self, packet_identifier: int) -> bool:
        """Has two halves of a batch sent instead of it; returns False if it is no batch, or has a single message."""
        if not self.is_batch(packet_identifier):
            return False
        if flow := self._flows.get(packet_identifier):
            if flow.first == flow.position:
                return False
            self.to_split.append(flow)
            self._is_due.set()
            return True
        return self._lanes.outlet.split(packet_identifier)
