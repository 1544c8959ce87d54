"""The PUBLISH that carries a batch of a route's messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.routes import Message
from gateway.store import DeliveryRun, Piece
from wire.bulk.column_batch import CONTENT_TYPE
from wire.bulk.property_block import encode_block
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.properties import USER_PROPERTY
from wire.route_numbers import VIA_PROPERTY
from wire.runs import join_runs

HEADER_SIZE = 9  # bytes of a PUBLISH, at most, besides topic name, properties and payload
PROPERTIES = {CONTENT_TYPE_PROPERTY: CONTENT_TYPE}


@dataclass(slots=True)
class BatchPublish(Message):
    """The message of a PUBLISH that carries a batch. It has no identity of its own.

    ``ranges`` are the positions of the messages in it, ``members`` their deliveries, and ``via`` their route
    numbers, empty for none.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    members: Sequence[Piece] = ()
    via: str = ""

    def messages(self) -> list[Message]:
        """The messages in the batch."""
        found: list[Message] = []
        for piece in self.members:
            found += piece.messages() if isinstance(piece, DeliveryRun) else (piece.message,)
        return found


def batch_publish(topic: str, payload: bytes, qos: int, members: Sequence[Piece], via: str) -> BatchPublish:
    """Returns the message whose payload is a batch of the messages that were delivered.

    ``via`` has their route numbers, in their order, and is empty for none.
    """
    ranges = join_runs((piece.position, piece.last) for piece in members)
    properties: dict[int, Any] = dict(PROPERTIES)
    if via:
        properties[USER_PROPERTY] = [(VIA_PROPERTY, via)]
    return BatchPublish(topic, payload, qos, properties=properties, ranges=tuple(ranges), members=members, via=via)


def payload_max(packet_size_max: int, topic: str, via_size: int) -> int:
    """Returns the most bytes of payload in a PUBLISH with a batch, by the Maximum Packet Size of the next broker.

    ``via_size`` is how many bytes the route number has as a property.
    """
    properties_size = len(encode_block(PROPERTIES)) + via_size
    return packet_size_max - HEADER_SIZE - len(topic.encode()) - properties_size


def batch_topic(gateway_name: str, route_name: str) -> str:
    """Returns the topic name of a route's batches, unless the configuration gives another one."""
    return f"holdfast/batch/{gateway_name}/{route_name}"
