"""PUBLISHes that follow one another, cut out of a buffer by their bytes."""

from collections.abc import Container
from contextlib import suppress
from typing import NamedTuple

from gateway.hot.topics import Topics
from gateway.property_block import check, find
from wire.packets import MQTT_5

QOS_1, QOS_2 = 0x32, 0x34
"""The first bytes of those that are cut: neither DUP nor RETAIN."""

PACKET_SIZE_MAX = 3 + 16_383
"""Bytes of the largest one that is cut: its length has two digits."""


class Cut(NamedTuple):
    """PUBLISHes of one QoS from where one began to ``end``.

    ``payload_size`` is that of all payloads together; ``bring_identities`` says whether all of them, or none, do.
    """

    end: int
    identifiers: list[int]
    topics: dict[str, None]
    payload_size: int
    bring_identities: bool


def cut(buffer: bytes, start: int, level: int, topics: Topics) -> Cut:
    """Cuts all PUBLISHes with ordinary properties that begin at a place, up to the first packet that is anything else.

    Args:
        buffer: what has come.
        start: where a packet of QOS_1 or QOS_2 begins.
        level: the protocol level.
        topics: the topic names that its sender may publish to, and the origins that it may name.

    What is cut is well-formed in every respect; that an identifier is not in use is not looked at.
    """
    first_byte = buffer[start]
    has_properties = level == MQTT_5
    origins = topics.origins
    size = len(buffer)
    identifiers: list[int] = []
    names: dict[str, None] = {}
    latest: str | None = None
    payload_size = 0
    brings_identity = bring_identities = False
    with suppress(IndexError):  # where it is cut off
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
            payload = place + 2
            if topic is None or not identifier or end > size:
                break
            if has_properties:
                payload, brings_identity = _behind_properties(buffer, payload, end, origins)
            if payload > end or (brings_identity is not bring_identities and identifiers):
                break
            bring_identities = brings_identity
            if topic is not latest:
                latest = topic
                names[topic] = None
            identifiers.append(identifier)
            payload_size += end - payload
            start = end
    return Cut(start, identifiers, names, payload_size, bring_identities)


def _behind_properties(buffer: bytes, at: int, end: int, origins: Container[bytes]) -> tuple[int, bool]:
    """Where ordinary properties end, and whether they bring an identity; behind the end where they are not ordinary."""
    if not buffer[at]:
        return at + 1, False
    block, behind = find(buffer, at)
    brings_identity = check(buffer[block:behind], origins) if behind <= end else None
    return (end + 1, False) if brings_identity is None else (behind, brings_identity)
