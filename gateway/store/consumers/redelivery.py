"""Deliveries that a cursor hands out again, as the connection on which it did so has ended."""

import heapq
from collections.abc import Mapping

from gateway.message import Message
from gateway.store.consumers.delivery import Delivery, Grant

InFlight = tuple[int, Grant, int, int]
"""A delivery without an acknowledgement: position, grant, size, and how many messages were taken before it."""


class Redelivery:
    """Packet identifiers of deliveries to hand out again, in the order of their positions.

    ``waiting`` is a heap of the positions with their packet identifiers.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int]] = []

    @property
    def first(self) -> int:
        """The position of the next one. Raises IndexError."""
        return self.waiting[0][0]

    @property
    def packet_identifiers(self) -> set[int]:
        """The packet identifiers of all deliveries that wait."""
        return {packet_identifier for _, packet_identifier in self.waiting}

    def add(self, packet_identifiers: set[int], in_flight: Mapping[int, InFlight]) -> None:
        """Adds the deliveries that are in flight and do not wait yet."""
        for packet_identifier in (packet_identifiers - self.packet_identifiers) & in_flight.keys():
            heapq.heappush(self.waiting, (in_flight[packet_identifier][0], packet_identifier))

    def take(
        self, first: int, found: dict[int, Message], limit: int, in_flight: Mapping[int, InFlight]
    ) -> tuple[list[Delivery], list[int]]:
        """Takes the next deliveries, as far as the log was read for them.

        Args:
            first: the position from which on the log was read; an earlier one may have been added meanwhile.
            found: what was read, by position.
            limit: the most deliveries.
            in_flight: those without an acknowledgement, by packet identifier; others are passed over.

        Returns:
            The deliveries, and the packet identifiers of others that have lost their messages.
        """
        deliveries: list[Delivery] = []
        gone: list[int] = []
        last = max(found, default=first)
        while self.waiting and len(deliveries) < limit and first <= self.first <= last:
            position, packet_identifier = heapq.heappop(self.waiting)
            unacknowledged = in_flight.get(packet_identifier)
            if unacknowledged is None:
                continue
            if position in found:
                _, grant, _, taken = unacknowledged
                deliveries.append(Delivery(position, packet_identifier, found[position], True, *grant, taken + 1))
            else:
                gone.append(packet_identifier)
        return deliveries, gone
