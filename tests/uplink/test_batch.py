"""Which deliveries leave together as a column batch, and when."""

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from gateway.message import Message
from gateway.store import Delivery, DeliveryRun, Grant
from gateway.store.consumers.runs import columns_of
from tests.gateway.store.support import random_batch
from uplink.outlet.batch import BatchPacker, messages_in
from uplink.outlet.batch_publish import batch_topic
from wire.bulk.column_batch import SIZE_MAX, BatchMessage, decode_batch
from wire.bulk.property_block import encode_contents
from wire.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL, USER_PROPERTY
from wire.topics import check_topic_name

ROOMY = 1 << 20
AGE_MS = 1000


def delivery(number: int, payload: bytes = b"hello", qos: int = 1, **fields: object) -> Delivery:
    message = Message(
        "telemetry/roof",
        payload,
        qos,
        origin="roof",
        epoch=7,
        seq=number,
        received_ms=1000 * number,
        received_by="gateway-1",
        **fields,  # type: ignore[arg-type]
    )
    return Delivery(number, number, message, False, qos, message.retain)


def packer(max_messages: int = 500, max_bytes: int = 100_000) -> BatchPacker:
    return BatchPacker(max_messages, max_bytes, AGE_MS)


def seqs(payload: bytes | None) -> list[int]:
    assert payload is not None
    return [message.seq for message in decode_batch(payload).messages()]


def test_a_batch_leaves_when_it_has_enough_messages() -> None:
    packing = packer(max_messages=3)
    for number in (1, 2):
        packing.add(delivery(number), 0)
        assert not packing.is_due(0)
    packing.add(delivery(3), 0)
    packing.add(delivery(4), 0)
    assert packing.is_due(0)
    packed = packing.pack(ROOMY)
    assert seqs(packed.payload) == [one.packet_identifier for one in packed.deliveries] == [1, 2, 3]
    assert not packing.is_due(0) and len(packing) == 1


def test_a_batch_leaves_when_it_has_enough_bytes() -> None:
    packing = packer(max_bytes=1000)
    packing.add(delivery(1, bytes(500)), 0)
    assert not packing.is_due(0)
    packing.add(delivery(2, bytes(500)), 0)
    assert packing.is_due(0)
    assert seqs(packing.pack(ROOMY).payload) == [1]
    packing.add(delivery(3, bytes(5000)), 0)
    assert seqs(packing.pack(ROOMY).payload) == [2]
    assert packing.is_due(0)
    assert seqs(packing.pack(ROOMY).payload) == [3]
    assert len(packing) == 0 and not packing.is_due(0)


def test_a_batch_leaves_when_its_oldest_message_is_old_enough() -> None:
    packing = packer()
    due: list[int | None] = [packing.due_ms]
    assert not packing.is_due(10**9)
    packing.add(delivery(1), 50)
    packing.add(delivery(2), 700)
    due.append(packing.due_ms)
    assert not packing.is_due(49 + AGE_MS) and packing.is_due(50 + AGE_MS)
    assert seqs(packing.pack(ROOMY).payload) == [1, 2]
    due.append(packing.due_ms)
    packing.add(delivery(3), 900)
    due.append(packing.due_ms)
    assert due == [None, 50 + AGE_MS, None, 900 + AGE_MS]


def test_a_batch_carries_all_of_its_messages_and_goes_at_their_highest_qos() -> None:
    packing = packer()
    properties = {CONTENT_TYPE: "text/plain", USER_PROPERTY: [("a", "b")]}
    packing.add(delivery(1), 0)
    packing.add(delivery(2, qos=2, properties=properties), 0)
    packed = packing.pack(ROOMY)
    assert packed.qos == 2 and packed.payload is not None
    topic, payload = "telemetry/roof", b"hello"
    block = encode_contents(properties)
    assert list(decode_batch(packed.payload).messages()) == [
        BatchMessage(topic, payload, 1, False, b"", "roof", 7, 1, 1000, "gateway-1"),
        BatchMessage(topic, payload, 2, False, block, "roof", 7, 2, 2000, "gateway-1"),
    ]


def test_a_retained_message_goes_by_itself_at_once_and_those_before_it_go_first() -> None:
    packing = packer()
    for number in (1, 2, 3):
        packing.add(delivery(number, retain=number == 2), 0)
    assert not packing.is_due(0)
    assert seqs(packing.pack(ROOMY).payload) == [1]
    assert packing.is_due(0)
    alone = packing.pack(ROOMY)
    assert (alone.payload, [one.packet_identifier for one in alone.deliveries]) == (None, [2])
    assert seqs(packing.pack(ROOMY).payload) == [3]


def test_a_message_that_expires_has_what_is_left_of_its_interval() -> None:
    packing = packer()
    properties = {MESSAGE_EXPIRY_INTERVAL: 100}
    now_ms = int(time.time() * 1000)
    for number, left_s in ((1, 60), (2, 30)):
        packing.add(delivery(number, properties=properties, expires_ms=now_ms + 1000 * left_s), 0)
    payload = packing.pack(ROOMY).payload
    assert payload is not None
    left = [int.from_bytes(message.block[1:], "big") for message in decode_batch(payload).messages()]
    assert left[0] in range(50, 61) and left[1] in range(20, 31)


def test_a_batch_that_is_too_large_for_the_next_broker_leaves_in_parts(seed: int) -> None:
    packing = packer()
    noise = [bytes((seed * number * place >> 3) % 251 for place in range(100)) for number in range(1, 101)]
    for number, payload in enumerate(noise, start=1):
        packing.add(delivery(number, payload), 0)
    found: list[int] = []
    while len(packing):
        packed = packing.pack(1500)
        assert packed.payload is not None and len(packed.payload) <= 1500
        found += seqs(packed.payload)
    assert found == list(range(1, 101))


def test_a_message_that_no_batch_takes_goes_by_itself_in_its_place() -> None:
    packing = packer()
    for number, size in ((1, 5), (2, SIZE_MAX), (3, 5)):
        packing.add(delivery(number, bytes(size)), 0)
    assert seqs(packing.pack(ROOMY).payload) == [1]
    packed = packing.pack(ROOMY)
    assert packed.payload is None and [one.position for one in packed.deliveries] == [2]
    assert seqs(packing.pack(ROOMY).payload) == [3]


def test_a_message_that_is_too_large_for_the_next_broker_is_a_batch_of_its_own() -> None:
    packing = packer()
    packing.add(delivery(1, bytes(range(256))), 0)
    packing.add(delivery(2), 0)
    packed = packing.pack(10)
    assert seqs(packed.payload) == [1]
    assert [one.position for one in packed.deliveries] == [1]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2000)), max_size=60),
    st.integers(1, 10),
    st.integers(1, 2000),
    st.integers(1, 3000),
)
def test_every_delivery_leaves_once_and_in_order(
    sizes: list[tuple[int, int]], max_messages: int, max_bytes: int, payload_max: int
) -> None:
    packing = BatchPacker(max_messages, max_bytes, AGE_MS)
    left: list[int] = []
    now_ms = 0
    for number, (size, wait_ms) in enumerate(sizes, start=1):
        now_ms += wait_ms
        packing.add(delivery(number, bytes(size)), now_ms)
        while packing.is_due(now_ms):
            packed = packing.pack(payload_max)
            assert 1 <= len(packed.deliveries) <= max_messages
            assert seqs(packed.payload) == [one.position for one in packed.deliveries]
            left += seqs(packed.payload)
    while len(packing):
        left += seqs(packing.pack(payload_max).payload)
    assert left == list(range(1, len(sizes) + 1))


@given(st.data(), st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 2000), st.integers(200, 3000))
def test_messages_that_came_together_leave_in_the_same_bytes_as_one_by_one(
    data: st.DataObject, seed: int, max_messages: int, max_bytes: int, payload_max: int
) -> None:
    dice = random.Random(seed)
    together, one_by_one = packer(max_messages, max_bytes), packer(max_messages, max_bytes)
    position = 1
    for count in data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=5)):
        publishes = random_batch(dice, count)
        publishes.epoch, publishes.first_seq = 9, position
        begin = data.draw(st.integers(0, count - 1))
        sizes = columns_of(publishes).sizes[begin:]
        run = DeliveryRun(position, position - 1, 65535, Grant(1), sizes, publishes, begin, False)
        together.add(run, 0)
        for place, message in enumerate(run.messages(), start=position):
            one_by_one.add(Delivery(place, place, message, False, 1), 0)
        position = run.last + 1
        while len(together) > max_messages or (data.draw(st.booleans()) and len(together)):
            ours, theirs = together.pack(payload_max), one_by_one.pack(payload_max)
            assert ours.payload == theirs.payload
            assert sum(map(messages_in, ours.deliveries)) == len(theirs.deliveries)
            assert (len(together), together.is_due(0)) == (len(one_by_one), one_by_one.is_due(0))


def test_the_usual_topic_name_is_one_that_every_broker_takes() -> None:
    topic = batch_topic("gateway-1", "central")
    check_topic_name(topic)
    assert topic == "holdfast/batch/gateway-1/central" and not topic.startswith("$")
