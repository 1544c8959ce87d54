"""Many PUBLISHes from columns: what they have in common is encoded once for each kind of them.

::

    first byte | length | topic name | packet identifier | properties │ seq │ properties | hf-via | payload
    └──────────── head ─────────────┘                     └─ before ─┘       └─ behind ─┘
"""

from collections.abc import Sequence
from struct import pack
from typing import NamedTuple

from wire.bulk.property_block import Identity, encode_length, split_identified_contents
from wire.bulk.publishes import FIRST_BYTE_OF, IDENTIFIER_SIZE
from wire.codec import MQTT_5

PIECES = 7  # of a PUBLISH


class _Kind(NamedTuple):
    """What decides on all of a PUBLISH but its numbers and its payload."""

    topic: bytes
    block: bytes
    payload_size: int
    seq_size: int
    via_size: int
    store: tuple[str, int]  # origin and epoch


class _Encoded(NamedTuple):
    head: bytes
    before: bytes
    behind: bytes
    size: int


def encode_run(
    topics: Sequence[bytes],
    blocks: Sequence[bytes],
    payloads: Sequence[bytes],
    identities: Sequence[Identity] | Identity,
    identifiers: Sequence[int],
    qos: int,
    level: int,
    received_ms: int,
    received_by: str,
    hop: str = "",
    vias: Sequence[bytes] = (),
) -> tuple[bytes, int]:
    """Returns PUBLISHes without DUP and RETAIN, and a length that none of them exceeds.

    Args:
        topics: the topic name of each.
        blocks: the properties of each, without their length.
        payloads: the payload of each.
        identities: the identity of each, or that of the first one; the others follow it.
        identifiers: the packet identifier of each.
        qos: 1 or 2.
        level: the protocol level. Over MQTT 3.1.1 no properties travel.
        received_ms, received_by: when and by which gateway the messages were accepted.
        hop: the hop that a route adds, empty for none.
        vias: the property with the number of the link of each, empty for none.
    """
    count = len(topics)
    if isinstance(identities, tuple):
        origin, epoch, first = identities
        seqs = [b"%d" % seq for seq in range(first, first + count)]
        stores = [(origin, epoch)] * count
    else:
        seqs = [b"%d" % seq for _, _, seq in identities]
        stores = [(origin, epoch) for origin, epoch, _ in identities]
    vias = vias or [b""] * count
    kinds = list(zip(topics, blocks, map(len, payloads), map(len, seqs), map(len, vias), stores, strict=True))
    of_kind = {
        kind: _encode_kind(_Kind(*kind), qos, level, received_ms, received_by, hop) for kind in dict.fromkeys(kinds)
    }
    encoded = [of_kind[kind] for kind in kinds]
    numbers = pack(f">{count}H", *identifiers)
    pieces = [b""] * (PIECES * count)
    pieces[0::PIECES] = [head for head, _, _, _ in encoded]
    pieces[1::PIECES] = [numbers[at : at + IDENTIFIER_SIZE] for at in range(0, len(numbers), IDENTIFIER_SIZE)]
    if level == MQTT_5:
        pieces[2::PIECES] = [before for _, before, _, _ in encoded]
        pieces[3::PIECES] = seqs
        pieces[4::PIECES] = [behind for _, _, behind, _ in encoded]
        pieces[5::PIECES] = vias
    pieces[6::PIECES] = payloads
    return b"".join(pieces), max([one.size for one in of_kind.values()])


def _encode_kind(kind: _Kind, qos: int, level: int, received_ms: int, received_by: str, hop: str) -> _Encoded:
    before = behind = b""
    size = len(kind.topic) + 2 + IDENTIFIER_SIZE + kind.payload_size
    if level == MQTT_5:
        before, behind = split_identified_contents(
            kind.block, *kind.store, kind.seq_size, received_ms, received_by, hop
        )
        properties_size = len(before) + kind.seq_size + len(behind) + kind.via_size
        before = encode_length(properties_size) + before
        size += len(before) + kind.seq_size + len(behind) + kind.via_size
    head = FIRST_BYTE_OF[qos] + encode_length(size) + len(kind.topic).to_bytes(2, "big") + kind.topic
    return _Encoded(head, before, behind, size + len(head) - len(kind.topic) - 2)
