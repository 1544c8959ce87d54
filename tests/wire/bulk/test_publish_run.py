"""PUBLISHes encoded from columns have the same bytes as PUBLISHes encoded one by one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.delivery.window import encode_publishes
from gateway.message import Message
from wire.bulk.property_block import encode_contents, encode_vias
from wire.bulk.publish_run import FirstVia, encode_run
from wire.codec.packets import MQTT_3_1_1, MQTT_5
from wire.properties import CONTENT_TYPE, USER_PROPERTY

PROPERTIES: tuple[dict[int, Any], ...] = ({}, {CONTENT_TYPE: "text/plain"}, {USER_PROPERTY: [("a", "b" * 120)]})
RECEIVED = (1_767_225_600_000, "gateway-1")

fields = st.tuples(
    st.sampled_from(["a", "telemetry/roof", "ä" * 70]),
    st.binary(max_size=3) | st.binary(min_size=100, max_size=300),
    st.sampled_from(PROPERTIES),
    st.sampled_from([("roof", 7), ("plant-1", 4_000_000_000)]),
    st.integers(1, 999_999_999_999_999_999),
)


@given(
    st.lists(fields, min_size=1, max_size=20),
    st.sampled_from([1, 2]),
    st.sampled_from([MQTT_5, MQTT_3_1_1]),
    st.sampled_from(["", "gateway-1#7"]),
    st.booleans(),
    st.none() | st.integers(1, 30) | st.integers(900, 1100) | st.integers(99_980, 10**17),
    st.data(),
)
def test_publishes_from_columns_are_those_encoded_one_by_one(
    rows: list[tuple[str, bytes, dict[int, object], tuple[str, int], int]],
    qos: int,
    level: int,
    hop: str,
    is_dense: bool,
    number: int | None,
    data: st.DataObject,
) -> None:
    stores = [store for _, _, _, store, _ in rows]
    seqs = [seq for _, _, _, _, seq in rows]
    if is_dense:
        first = data.draw(st.integers(1, 1100) | st.integers(999_980, 10**17), label="first")
        stores, seqs = [stores[0]] * len(rows), list(range(first, first + len(rows)))
    identities = [(*store, seq) for store, seq in zip(stores, seqs, strict=True)]
    messages = [
        Message(
            topic,
            payload,
            qos,
            properties=properties,
            origin=origin,
            epoch=epoch,
            seq=seq,
            received_ms=RECEIVED[0],
            received_by=RECEIVED[1],
        )
        for (topic, payload, properties, _, _), (origin, epoch, seq) in zip(rows, identities, strict=True)
    ]
    identifiers = data.draw(
        st.lists(st.integers(1, 65_535), min_size=len(rows), max_size=len(rows), unique=True), label="identifiers"
    )
    via = None if number is None else FirstVia(7, number, "gateway-1", "next")
    vias = [] if number is None else encode_vias(7, range(number, number + len(rows)), "gateway-1", "next")
    expected, _ = encode_publishes(messages, identifiers, level, qos, True, hop=hop, vias=vias)
    encoded, longest = encode_run(
        [message.topic.encode() for message in messages],
        [encode_contents(message.properties) for message in messages],
        [bytes(message.payload) for message in messages],
        identities[0] if is_dense else identities,
        identifiers,
        qos,
        level,
        *RECEIVED,
        hop,
        via,
    )
    assert encoded == expected
    one_by_one = [
        encode_publishes([message], [1], level, qos, True, hop=hop, vias=vias[at : at + 1])[0]
        for at, message in enumerate(messages)
    ]
    assert longest == max(map(len, one_by_one))
