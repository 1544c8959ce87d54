"""What goes out by the hot path is what the protocol core would have sent."""

import random
from collections.abc import Iterator
from functools import partial

import pytest

from gateway.delivery.window import encode_publishes, plain_ones
from gateway.message import Message, identity_properties, plain_properties
from gateway.store import Delivery, DeliveryRun, Grant
from tests.gateway.store.support import random_batch
from wire.bulk.publishes import fill_in
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Decoder, Packet, Publish
from wire.properties import CONTENT_TYPE, TOPIC_ALIAS, USER_PROPERTY


@pytest.mark.parametrize(("has_identity", "hop"), [(False, ""), (True, ""), (True, "0000001f")])
@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_it_is_the_same_as_each_publish_by_itself(seed: int, level: int, has_identity: bool, hop: str) -> None:
    properties_of = partial(identity_properties, hop=hop) if has_identity else plain_properties
    dice = random.Random(seed)
    messages = [
        Message(
            dice.choice(["a", "b/\u00fc", "c" * 300]),
            dice.randbytes(dice.choice([0, 1, 100, 127, 20_000])),
            properties=dice.choice([{}, {CONTENT_TYPE: "text/plain"}, {USER_PROPERTY: [("a", "b" * 200), ("a", "")]}]),
            origin=dice.choice(["gw", ""]),
            epoch=7,
            seq=dice.randrange(1, 10**9),
            received_ms=1234,
            received_by="gw",
        )
        for _ in range(60)
    ]
    for first, qos in ((1, 1), (40_000, 1), (1, 2), (40_000, 2), (2, 1)):
        identifiers = list(range(first, first + len(messages)))
        each = [
            Publish(message.topic, message.payload, qos, False, False, identifier, properties_of(message))
            for message, identifier in zip(messages, identifiers, strict=True)
        ]
        if level == MQTT_3_1_1:
            for publish in each:
                publish.properties = {}
        packets = [publish.encode(level) for publish in each]
        encoded, longest = encode_publishes(messages, identifiers, level, qos, has_identity, hop=hop)
        assert encoded == b"".join(packets)
        assert longest >= max(map(len, packets))
        if level == MQTT_5:
            aliases = [dice.choice([0, 1, 300]) for _ in messages]
            encoded, longest = encode_publishes(messages, identifiers, level, qos, has_identity, aliases, hop)
            assert list(decoded(encoded)) == [with_alias(one, alias) for one, alias in zip(each, aliases, strict=True)]
            assert longest >= max(map(len, packets))


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_a_run_is_the_same_as_each_publish_by_itself(seed: int, level: int) -> None:
    """Over either version of MQTT, whichever the messages came over, with their own identities or without."""
    dice = random.Random(seed)
    for _ in range(20):
        batch = random_batch(dice, 30)
        begin, count = dice.randrange(10), dice.randint(1, 20)
        sizes = [message.content_size for message in batch.messages()[begin : begin + count]]
        run = DeliveryRun(1, 65_530, 65_535, Grant(batch.messages()[0].qos), sizes, batch, begin, False)
        each = [
            Publish(one.topic, one.payload, one.qos, False, False, number, one.properties if level == MQTT_5 else {})
            for one, number in zip(run.messages(), run.packet_identifiers, strict=True)
        ]
        packets = [publish.encode(level) for publish in each]
        parts, longest, payload_size = run.laid_out(level)
        assert fill_in(parts, run.packet_identifiers) == b"".join(packets)
        assert longest >= max(map(len, packets))
        assert payload_size == sum(len(one.payload) for one in run.messages())


def with_alias(publish: Publish, alias: int) -> Publish:
    if not alias:
        return publish
    properties = {**publish.properties, TOPIC_ALIAS: alias}
    return Publish("", publish.payload, publish.qos, False, False, publish.packet_identifier, properties)


def decoded(data: bytes) -> Iterator[Packet | None]:
    decoder = Decoder(len(data))
    decoder.feed(data)
    return iter(decoder.next_packet, None)


def test_a_delivery_that_differs_between_subscribers_is_not_plain() -> None:
    plain = Delivery(1, 1, Message("a", b""), False, 1)
    assert plain_ones(1, [plain]) == [plain]
    assert plain_ones(2, [plain._replace(qos=2)])
    assert not plain_ones(0, [plain._replace(qos=0)])
    for other in (
        plain._replace(qos=0),
        plain._replace(qos=2),
        plain._replace(dup=True),
        plain._replace(retain=True),
        plain._replace(identifiers=(1,)),
        plain._replace(message=Message("a", b"", retain=True)),
        plain._replace(message=Message("a", b"", expires_ms=5)),
    ):
        assert plain_ones(1, [plain, other, plain]) == [plain]
