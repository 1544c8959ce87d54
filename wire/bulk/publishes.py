"""PUBLISHes that follow one another, as bytes: cut out of a buffer, read one by one, and joined from their halves.

::

    first byte | length | topic name | packet identifier | properties | payload
    └────────────── head ──────────┘                      └────── tail ──────┘
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import add
from struct import pack
from typing import NamedTuple

from wire.bulk.property_block import (
    Common,
    EncodedIdentity,
    Identity,
    Trail,
    check_block,
    encode_length,
    find_block,
    read_block,
    split_block,
)
from wire.codec import MQTT_5
from wire.primitives import encode_string

FIRST_BYTES = {0x32: 1, 0x34: 2}
"""The first bytes of the PUBLISHes that are cut, with their QoS: neither DUP nor RETAIN is set."""

PACKET_SIZE_MAX = 3 + 16_383
"""Bytes of the largest PUBLISH that is cut: its length has two digits."""

IDENTIFIER_SIZE = 2
TOPIC_REMEMBERED_MAX = 512  # characters; a longer name is rare, and remembering many costs memory

NO_PROPERTIES = b"\0"
NO_HEAD = b"\0"
"""No PUBLISH begins with it."""

FIRST_BYTE_OF = {qos: bytes((first_byte,)) for first_byte, qos in FIRST_BYTES.items()}
_remember_topic = lru_cache(maxsize=4096)(encode_string)


class Cut(NamedTuple):
    """PUBLISHes of one QoS from where one began to `end`.

    `payload_size` is the size of all payloads together, `content_size` the size of payloads, topic names and properties
    as the function `content_size` counts them. `identities` has the identity of each, or is empty.
    """

    end: int
    identifiers: list[int]
    topics: dict[str, None]
    payload_size: int
    content_size: int
    identities: list[EncodedIdentity]


def cut_publishes(buffer: bytes, start: int, level: int, topics: Mapping[bytes, str], origins: Container[bytes]) -> Cut:
    """Cuts all PUBLISHes with ordinary properties that begin at a place, up to the first packet that is anything else.

    What is cut is well-formed in every respect. Whether an identifier is in use is not checked.

    Args:
        buffer: bytes that came.
        start: where a packet begins whose first byte is one of FIRST_BYTES.
        level: the protocol level.
        topics: the topic names that the sender may publish to, by their bytes.
        origins: the origins that an identity may name.
    """
    first_byte = buffer[start]
    has_properties = level == MQTT_5
    size = len(buffer)
    identifiers: list[int] = []
    names: dict[str, None] = {}
    latest: str | None = None
    payload_size = other_size = properties_size = 0
    identities: list[EncodedIdentity] = []
    identity: EncodedIdentity | None = None
    head, packet_size = NO_HEAD, 0  # the packet identifier and what follows it differ
    topic: str | None = None
    try:
        while start < size and buffer[start] == first_byte:
            if buffer.startswith(head, start):
                place, end = start + len(head), start + packet_size
            else:
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
                head, packet_size = buffer[start:place], end - start
            identifier = buffer[place] << 8 | buffer[place + 1]
            payload = place + IDENTIFIER_SIZE
            if topic is None or not identifier or end > size:
                break
            if not has_properties:
                pass
            elif buffer[payload]:
                payload, identity, properties_size = _behind_properties(buffer, payload, end, origins)
            else:
                payload, identity, properties_size = payload + 1, None, 0
            if payload > end:
                break
            if identity is not None:
                if len(identities) < len(identifiers):  # those before bring none
                    break
                identities.append(identity)
            elif identities:
                break
            if topic is not latest:
                latest = topic
                names[topic] = None
            identifiers.append(identifier)
            payload_size += end - payload
            other_size += len(topic) + properties_size
            start = end
    except IndexError:  # the buffer ends within a packet
        pass
    return Cut(start, identifiers, names, payload_size, payload_size + other_size, identities)


def _behind_properties(
    buffer: bytes, at: int, end: int, origins: Container[bytes]
) -> tuple[int, EncodedIdentity | None, int]:
    """Returns where ordinary properties end, the identity that they bring, if any, and the size of the others.

    Properties that are not ordinary end behind `end`.
    """
    block, behind = find_block(buffer, at)
    if behind <= end:
        common, identity, properties_size = check_block(buffer[block:behind], origins)
        if common is not None:
            return behind, identity, properties_size
    return end + 1, None, 0


def content_size(packets: bytes, level: int) -> int:
    """Returns the bytes of payloads, topic names and properties (`memory_size`) of PUBLISHes that were cut.

    Topic names count as characters.
    """
    return sum(
        len(topic) + len(payload) + (common.size if common else 0) + (trail.size if trail else 0)
        for topic, payload, common, _, trail, _ in read_publishes(packets, level)
    )


def qos_of(packets: bytes) -> int:
    """Returns the QoS of the PUBLISH that `packets` begins with."""
    return packets[0] >> 1 & 3


def read_publishes(
    packets: bytes, level: int
) -> Iterator[tuple[str, bytes, Common | None, Identity | None, Trail | None, tuple[bytes, bytes]]]:
    """Yields topic name, payload, properties, identity, trail and halves of PUBLISHes that `cut_publishes` has cut."""
    has_properties = level == MQTT_5
    names: dict[bytes, str] = {}
    common = identity = trail = None
    head, packet_size = NO_HEAD, 0
    topic = ""
    size = len(packets)
    start = 0
    while start < size:
        if packets.startswith(head, start):
            place, end = start + len(head), start + packet_size
        else:
            length = packets[start + 1]
            if length < 0x80:
                name = start + 4
                end = start + 2 + length
            else:
                name = start + 5
                end = start + 3 + (length & 0x7F | packets[start + 2] << 7)
            place = name + (packets[name - 2] << 8 | packets[name - 1])
            encoded = packets[name:place]
            topic = names.get(encoded) or names.setdefault(encoded, encoded.decode())
            head, packet_size = packets[start:place], end - start
        at = place + IDENTIFIER_SIZE
        tail = payload = packets[at:end]
        if has_properties:
            if packets[at]:
                block, behind = find_block(packets, at)
                common, identity, trail = read_block(packets[block:behind])
            else:
                behind, common, identity, trail = at + 1, None, None, None
            payload = packets[behind:end]
        yield topic, payload, common, identity, trail, (head, tail)
        start = end


def cut_columns(packets: bytes, level: int) -> tuple[list[bytes], list[bytes], list[Identity], list[bytes]]:
    """Returns topic names, properties, identities and payloads of PUBLISHes that `cut_publishes` has cut.

    Properties are as they came, without their length and without the identity. There are no identities where the
    PUBLISHes bring none.
    """
    has_properties = level == MQTT_5
    topics: list[bytes] = []
    blocks: list[bytes] = []
    identities: list[Identity] = []
    payloads: list[bytes] = []
    common = b""
    latest = NO_PROPERTIES  # with its length
    identity: Identity | None = None
    size = len(packets)
    start = 0
    while start < size:
        length = packets[start + 1]
        if length < 0x80:
            name = start + 4
            end = start + 2 + length
        else:
            name = start + 5
            end = start + 3 + (length & 0x7F | packets[start + 2] << 7)
        place = name + (packets[name - 2] << 8 | packets[name - 1])
        topics.append(packets[name:place])
        behind = place + IDENTIFIER_SIZE
        if has_properties:
            if packets.startswith(latest, behind):
                behind += len(latest)
            else:
                at, block_end = find_block(packets, behind)
                latest = packets[behind:block_end]
                common, identity = split_block(packets[at:block_end])
                behind = block_end
            blocks.append(common)
            if identity is not None:
                identities.append(identity)
        payloads.append(packets[behind:end])
        start = end
    return topics, blocks if has_properties else [b""] * len(topics), identities, payloads


def cut_contents(packets: bytes, level: int) -> list[bytes]:
    """Returns what `content_digest` is about, topic name with its length and payload, of PUBLISHes that were cut."""
    has_properties = level == MQTT_5
    contents: list[bytes] = []
    size = len(packets)
    start = 0
    while start < size:
        length = packets[start + 1]
        if length < 0x80:
            name = start + 2
            end = name + length
        else:
            name = start + 3
            end = name + (length & 0x7F | packets[start + 2] << 7)
        place = name + 2 + (packets[name] << 8 | packets[name + 1])
        payload = place + IDENTIFIER_SIZE
        if has_properties:
            block_size = packets[payload]
            payload = payload + 1 + block_size if block_size < 0x80 else find_block(packets, payload)[1]
        contents.append(packets[name:place] + packets[payload:end])
        start = end
    return contents


class Halves(NamedTuple):
    """PUBLISHes that were cut, as they came, around their packet identifiers.

    `sizes` are the bytes of payload, topic name and properties of each, as the function `content_size` counts them,
    `payload_sizes` those of the payloads alone. `may_expire`: at least one has a Message Expiry Interval.
    """

    heads: list[bytes]
    tails: list[bytes]
    sizes: list[int]
    payload_sizes: list[int]
    may_expire: bool


def cut_halves(packets: bytes, level: int) -> Halves:
    """Returns the halves of PUBLISHes that `cut_publishes` has cut."""
    has_properties = level == MQTT_5
    heads: list[bytes] = []
    tails: list[bytes] = []
    payload_sizes: list[int] = []
    other_sizes: list[int] = []
    may_expire = False
    head, packet_size = NO_HEAD, 0
    head_size = name_size = 0
    size = len(packets)
    start = 0
    while start < size:
        if packets.startswith(head, start):
            place, end = start + head_size, start + packet_size
        else:
            length = packets[start + 1]
            if length < 0x80:
                name = start + 4
                end = start + 2 + length
            else:
                name = start + 5
                end = start + 3 + (length & 0x7F | packets[start + 2] << 7)
            place = name + (packets[name - 2] << 8 | packets[name - 1])
            head, head_size, packet_size = packets[start:place], place - start, end - start
            name_size = len(packets[name:place].decode())
        at = place + IDENTIFIER_SIZE
        heads.append(head)
        tails.append(packets[at:end])
        other_size = name_size
        if not has_properties:
            payload_sizes.append(end - at)
        elif packets[at]:
            block, behind = find_block(packets, at)
            common, _, _ = read_block(packets[block:behind])
            other_size += common.size
            may_expire = may_expire or common.expiry_ms > 0
            payload_sizes.append(end - behind)
        else:
            payload_sizes.append(end - at - 1)
        other_sizes.append(other_size)
        start = end
    return Halves(heads, tails, list(map(add, payload_sizes, other_sizes)), payload_sizes, may_expire)


def split_columns(
    topics: Sequence[bytes], blocks: Sequence[bytes], payloads: Sequence[bytes], level: int, qos: int
) -> tuple[list[bytes], Sequence[bytes]]:
    """Returns the first halves, and the second ones, of PUBLISHes without DUP and RETAIN.

    Args:
        topics: the topic name of each.
        blocks: the properties of each, without their length. Over MQTT 3.1.1 they do not travel.
        payloads: the payload of each.
        level: the protocol level.
        qos: 1 or 2.
    """
    tails = payloads
    if level == MQTT_5:
        lengths = {block: encode_length(len(block)) + block for block in set(blocks)}
        tails = [lengths[block] + payload for block, payload in zip(blocks, payloads, strict=True)]
    kinds = list(zip(topics, map(len, tails), strict=True))
    heads = {
        (topic, size): FIRST_BYTE_OF[qos]
        + encode_length(2 + len(topic) + IDENTIFIER_SIZE + size)
        + len(topic).to_bytes(2, "big")
        + topic
        for topic, size in set(kinds)
    }
    return list(map(heads.__getitem__, kinds)), tails


def split_publish(topic: str, block: bytes, payload: bytes, qos: int) -> tuple[bytes, bytes]:
    """Returns what comes before and behind the packet identifier in a PUBLISH of QoS 1 or 2 without DUP and RETAIN.

    Args:
        topic: the topic name.
        block: the properties with their length, empty for MQTT 3.1.1.
        payload: the payload.
        qos: 1 or 2.
    """
    encoded = (_remember_topic if len(topic) <= TOPIC_REMEMBERED_MAX else encode_string)(topic)
    length = encode_length(len(encoded) + IDENTIFIER_SIZE + len(block) + len(payload))
    return FIRST_BYTE_OF[qos] + length + encoded, block + payload


def join_publishes(halves: Sequence[tuple[bytes, bytes]], identifiers: Sequence[int]) -> tuple[bytes, int]:
    """Returns the PUBLISHes with these halves and packet identifiers, and a length that none of them exceeds."""
    parts, longest = lay_out(halves)
    return fill_in(parts, identifiers), longest


def lay_out(halves: Sequence[tuple[bytes, bytes]]) -> tuple[list[bytes], int]:
    """Returns the parts of the PUBLISHes with these halves for ``fill_in``, and a length that none of them exceeds."""
    return lay_out_halves([head for head, _ in halves], [tail for _, tail in halves])


def lay_out_halves(heads: Sequence[bytes], tails: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Does the same with the first halves and the second ones by themselves."""
    parts: list[bytes] = [b""] * (3 * len(heads))
    parts[0::3] = heads
    parts[2::3] = tails
    return parts, max(map(len, heads)) + IDENTIFIER_SIZE + max(map(len, tails))


def fill_in(parts: list[bytes], identifiers: Sequence[int]) -> bytes:
    """Returns PUBLISHes that ``lay_out`` has laid out, with these packet identifiers. It may fill them in again."""
    numbers = pack(f">{len(identifiers)}H", *identifiers)
    parts[1::3] = [numbers[at : at + IDENTIFIER_SIZE] for at in range(0, len(numbers), IDENTIFIER_SIZE)]
    return b"".join(parts)
