"""Copies of a message, one for each Subscription Identifier that it matches, as many clients read one alone."""

import asyncio
import sys
from collections.abc import Callable
from itertools import count

from gateway.delivery.retained_cursor import RetainedCursor
from gateway.delivery.source import OwnCursor
from gateway.delivery.window import Window
from gateway.message import Message
from gateway.store import Cursor, Delivery, Grant, grants_apart

COPIES_MOST = 8  # of a message, for as many Subscription Identifiers; with more, one PUBLISH has all of them


def copies_of(
    cursor: OwnCursor | RetainedCursor, message: Message, own: Grant, position: int = sys.maxsize
) -> list[Grant]:
    """Returns how the client gets a message: once, or once for each of a few Subscription Identifiers."""
    if not 1 < len(own.identifiers) <= COPIES_MOST or not isinstance(cursor, Cursor):
        return [own]
    return grants_apart(cursor.granting(position, message), message, own)


def granted(delivery: Delivery, grant: Grant) -> Delivery:
    """Returns a delivery with another grant."""
    return delivery._replace(qos=grant.qos, retain=grant.retain, identifiers=grant.identifiers)


async def apart(
    window: Window, cursor: OwnCursor | RetainedCursor, deliveries: list[Delivery]
) -> tuple[list[Delivery], dict[int, list[Delivery]]]:
    """Returns QoS 2 deliveries, each of a first copy, and the further copies at QoS 2 by its packet identifier.

    Those have negative numbers in the place of one, which no cursor knows. Copies at a lower QoS are sent.
    """
    if all(len(one.identifiers) < 2 for one in deliveries):
        return deliveries, {}
    firsts, further = list[Delivery](), dict[int, list[Delivery]]()
    numbers = count(-1, -1)
    for one in deliveries:
        own = Grant(one.qos, one.retain, one.identifiers)
        first, *others = copies_of(cursor, one.message, own, one.position)
        firsts.append(granted(one, first))
        further[one.packet_identifier] = [
            granted(one, other)._replace(packet_identifier=next(numbers)) for other in others if other.qos == 2
        ]
        arrived = asyncio.Event()
        if lower := [other for other in others if other.qos < 2]:
            await publish_copies(window, one.message, lower, arrived.set)
            window.flush()
            await arrived.wait()
    return firsts, further


async def publish_copies(window: Window, message: Message, grants: list[Grant], finish: Callable[[], object]) -> None:
    """Sends copies at QoS 0 and 1, and calls ``finish`` when all of them have arrived."""
    waiting = set[int]()

    def arrived(packet_identifiers: list[int]) -> None:
        waiting.difference_update(packet_identifiers)
        if not waiting:
            finish()

    waiting.add(0)  # until all are sent
    for grant in grants:
        packet_identifier = None
        if grant.qos:
            await window.wait_for_room()
            packet_identifier = window.next_identifier()
        else:
            await window.wait_for_line()
        if window.publish(message, grant, packet_identifier) and packet_identifier is not None:
            waiting.add(packet_identifier)
            window.await_pubacks([packet_identifier], arrived)
    arrived([0])
