"""Many PUBLISHes from columns: what they have in common is encoded once for each kind of them.

::

    first byte | length | topic name | packet identifier | properties │ seq │ properties │ number │ properties | payload
    └──────────── head ─────────────┘                     └─ before ─┘       └ between ─┘          └ behind ──┘

The number is the link's. The digits of numbers that follow each other are not written anew for each: the last
three are in a table, and those before them are the same for many numbers.
"""

from collections.abc import Sequence
from struct import pack
from typing import NamedTuple

from wire.bulk.property_block import Identity, encode_length, split_identified_contents, split_via
from wire.bulk.publishes import FIRST_BYTE_OF, IDENTIFIER_SIZE
from wire.codec import MQTT_5

PIECES = 10  # of a PUBLISH
THOUSAND = 1000

Store = tuple[str, int]
"""Origin and epoch."""

_BELOW_THOUSAND = [b"%d" % number for number in range(THOUSAND)]
_LAST_DIGITS = [b"%03d" % number for number in range(THOUSAND)]


class FirstVia(NamedTuple):
    """The route number of a run's first message; the others follow it."""

    epoch: int
    number: int
    gateway: str
    route: str


class _Form(NamedTuple):
    """How many digits the numbers of a PUBLISH have, and the origin and the epoch of its seq."""

    seq_size: int
    number_size: int
    store: Store


class _Kind(NamedTuple):
    """What decides on all of a PUBLISH but its numbers and its payload; ``form`` is the place of its form."""

    topic: bytes
    block: bytes
    payload_size: int
    form: int


class _Numbers(NamedTuple):
    """A column of numbers as digits: the first and the last ones of each, and how many they are."""

    heads: list[bytes]
    tails: list[bytes]
    sizes: list[int]


class _Encoded(NamedTuple):
    head: bytes
    before: bytes
    between: bytes
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
    via: FirstVia | None = None,
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
        via: the route number of the first one, None: they have none.
    """
    count = len(topics)
    seqs, stores = _seqs_of(identities, count)
    numbers = _numbers_from(via.number, count) if via else _Numbers([b""] * count, [b""] * count, [0] * count)
    forms, form_of = _forms_of(seqs, numbers, stores)
    kinds = list(zip(topics, blocks, map(len, payloads), form_of, strict=True))
    of_kind = {
        kind: _encode_kind(_Kind(*kind), forms[kind[3]], qos, level, received_ms, received_by, hop, via)
        for kind in set(kinds)
    }
    encoded = [of_kind[kind] for kind in kinds]
    packed = pack(f">{count}H", *identifiers)
    pieces = [b""] * (PIECES * count)
    pieces[0::PIECES] = [head for head, _, _, _ in encoded]
    pieces[1::PIECES] = [packed[at : at + IDENTIFIER_SIZE] for at in range(0, len(packed), IDENTIFIER_SIZE)]
    if level == MQTT_5:
        pieces[2::PIECES] = [before for _, before, _, _ in encoded]
        pieces[3::PIECES], pieces[4::PIECES] = seqs.heads, seqs.tails
        pieces[5::PIECES] = [between for _, _, between, _ in encoded]
        pieces[6::PIECES], pieces[7::PIECES] = numbers.heads, numbers.tails
        pieces[8::PIECES] = [split_via(via.epoch, via.gateway, via.route)[1] if via else b""] * count
    pieces[9::PIECES] = payloads
    return b"".join(pieces), max([one.size for one in of_kind.values()])


def _seqs_of(identities: Sequence[Identity] | Identity, count: int) -> tuple[_Numbers, list[Store]]:
    """Returns the seq of each message, and its origin and epoch."""
    if isinstance(identities, tuple):
        origin, epoch, first = identities
        return _numbers_from(first, count), [(origin, epoch)] * count
    digits = [b"%d" % seq for _, _, seq in identities]
    stores = [(origin, epoch) for origin, epoch, _ in identities]
    return _Numbers([b""] * count, digits, list(map(len, digits))), stores


def _forms_of(seqs: _Numbers, numbers: _Numbers, stores: list[Store]) -> tuple[list[_Form], list[int]]:
    """Returns forms, and the place of the form of each message among them. In most runs all have the same one."""
    found = dict.fromkeys(zip(seqs.sizes, numbers.sizes, stores, strict=True))
    forms = [_Form(*form) for form in found]
    if len(forms) == 1:
        return forms, [0] * len(stores)
    places = {form: place for place, form in enumerate(forms)}
    return forms, [places[form] for form in map(_Form, seqs.sizes, numbers.sizes, stores)]


def _numbers_from(first: int, count: int) -> _Numbers:
    """Returns numbers that follow each other."""
    found = _Numbers([], [], [])
    end = first + count
    while first < end:
        thousands, rest = divmod(first, THOUSAND)
        more = min(end - first, THOUSAND - rest)
        head = b"%d" % thousands if thousands else b""
        tails = (_LAST_DIGITS if thousands else _BELOW_THOUSAND)[rest : rest + more]
        found.heads.extend([head] * more)
        found.tails.extend(tails)
        found.sizes.extend([len(head) + 3] * more if thousands else map(len, tails))
        first += more
    return found


def _encode_kind(
    kind: _Kind, form: _Form, qos: int, level: int, received_ms: int, received_by: str, hop: str, via: FirstVia | None
) -> _Encoded:
    before = between = b""
    size = len(kind.topic) + 2 + IDENTIFIER_SIZE + kind.payload_size
    if level == MQTT_5:
        before, between = split_identified_contents(
            kind.block, *form.store, form.seq_size, received_ms, received_by, hop
        )
        properties_size = len(before) + form.seq_size + len(between)
        if via:
            heads, behind = split_via(via.epoch, via.gateway, via.route)
            between += heads[form.number_size]
            properties_size += len(heads[form.number_size]) + form.number_size + len(behind)
        before = encode_length(properties_size) + before
        size += properties_size + len(encode_length(properties_size))
    head = FIRST_BYTE_OF[qos] + encode_length(size) + len(kind.topic).to_bytes(2, "big") + kind.topic
    return _Encoded(head, before, between, size + len(head) - len(kind.topic) - 2)
