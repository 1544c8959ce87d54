"""What goes out by the hot path is what the protocol core would have sent."""

import random

import pytest

from gateway.hot.outflow import encode_publishes, is_plain
from gateway.message import Message, identity_properties, plain_properties
from gateway.store.delivery import Delivery
from wire.packets import MQTT_3_1_1, MQTT_5, Publish
from wire.properties import CONTENT_TYPE, USER_PROPERTY


@pytest.mark.parametrize("has_identity", [False, True])
@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_it_is_the_same_as_each_publish_by_itself(seed: int, level: int, has_identity: bool) -> None:
    properties_of = identity_properties if has_identity else plain_properties
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
        encoded, longest = encode_publishes(messages, identifiers, level, qos, has_identity)
        assert encoded == b"".join(packets)
        assert longest >= max(map(len, packets))


def test_what_looks_different_to_somebody_is_not_plain() -> None:
    plain = Delivery(1, 1, Message("a", b""), False, 1)
    assert is_plain(1, plain)
    assert is_plain(2, plain._replace(qos=2))
    assert not is_plain(0, plain._replace(qos=0))
    for other in (
        plain._replace(qos=0),
        plain._replace(qos=2),
        plain._replace(dup=True),
        plain._replace(retain=True),
        plain._replace(identifiers=(1,)),
        plain._replace(message=Message("a", b"", retain=True)),
        plain._replace(message=Message("a", b"", expires_ms=5)),
    ):
        assert not is_plain(1, other)
