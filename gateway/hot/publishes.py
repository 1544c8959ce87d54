"""PUBLISHes that follow one another, cut out of a buffer by their bytes."""

from collections.abc import Mapping
from typing import NamedTuple

from wire.packets import MQTT_5

QOS_1, QOS_2 = 0x32, 0x34
"""The first bytes of those that are cut: neither DUP nor RETAIN."""

PACKET_SIZE_MAX = 3 + 16_383
"""Bytes of the largest one that is cut: its length has two digits."""


class Cut(NamedTuple):
    """PUBLISHes of one QoS from where one began to ``end``; ``payload_size`` is that of all payloads together."""

    end: int
    identifiers: list[int]
    topics: dict[str, None]
    payload_size: int


def cut(buffer: bytes, start: int, level: int, topics: Mapping[bytes, str]) -> Cut:
    """Cuts all PUBLISHes without properties that begin at a place, up to the first packet that is anything else.

    Args:
        buffer: what has come.
        start: where a packet of QOS_1 or QOS_2 begins.
        level: the protocol level.
        topics: the topic names that its sender may publish to, as they stand in a packet.

    What is cut is well-formed in every respect; that
    an identifier is not in use is not looked at.
    """
    first_byte = buffer[start]
    has_properties = level == MQTT_5
    size = len(buffer)
    identifiers: list[int] = []
    names: dict[str, None] = {}
    latest: str | None = None
    behind_topics = 0
    try:
        while buffer[start] == first_byte:
            length = buffer[start + 1]
            if length < 0x80:
                name = start + 4
                end = start + 2 + length
            else:
                more = buffer[start + 2]
                if not 0 < more < 0x80:
                    break
                name = start + 5
                end = start + 3 + (length & 0x7F | more << 7)
            place = name + (buffer[name - 2] << 8 | buffer[name - 1])
            topic = topics.get(buffer[name:place])
            identifier = buffer[place] << 8 | buffer[place + 1]
            if topic is None or not identifier or end > size or place + 2 + has_properties > end:
                break
            if has_properties and buffer[place + 2]:
                break
            if topic is not latest:
                latest = topic
                names[topic] = None
            identifiers.append(identifier)
            behind_topics += end - place
            start = end
    except IndexError:
        pass  # it is cut off
    payload_size = behind_topics - (2 + has_properties) * len(identifiers)
    return Cut(start, identifiers, names, payload_size)
