"""PUBLISHes that become rows together land as the same ones do one by one."""

import random
from typing import Any

import pytest

from cloud.landing.connect.reader import PublishReader
from cloud.landing.publishes import LEAST, Published, find_publishes, to_rows
from wire.bulk.connection import BulkClientConnection
from wire.codec.connect import Connect
from wire.codec.packets import Connack, Publish, encode
from wire.identity import decode_identity, decode_received, find_user_property
from wire.route_numbers import decode_via, encode_via

NOON_MS = 1_767_225_600_000


def some_publishes(dice: random.Random, count: int) -> list[Publish]:
    """PUBLISHes of QoS 1 of devices, gateways and stock clients."""
    found = []
    for number in range(1, count + 1):
        properties: dict[int, Any] = dict(
            dice.choice(({}, {3: "application/json"}, {3: "ä/b", 2: 3600}, {1: 1, 8: "r"}))
        )
        pairs = list(dice.choice(([], [("a", "b")], [("hf-hops", "gateway-9")])))
        if dice.random() < 0.7:
            origin = dice.choice(("roof", "barn/äöü", "hf-id", "hf-received"))
            pairs.append(("hf-id", f"{dice.choice((7, 0xCAFE)):08x}/{number}/{origin}"))
            if dice.random() < 0.8:
                pairs.append(("hf-received", f"{dice.choice((0, NOON_MS + number))}/{dice.choice(('gw-1', 'größe'))}"))
            if dice.random() < 0.8:
                gateway, route = dice.choice((("gw-1", "up"), ("größe/2", "a/b"), ("hf-via", "100%")))
                pairs.append(("hf-via", encode_via(dice.choice((31, 0xCAFE)), [(number, number)], gateway, route)))
        if pairs:
            properties[0x26] = pairs
        topic = dice.choice(("t", "telemetry/" + "x" * dice.choice((1, 100)), "größe"))
        payload = dice.randbytes(dice.choice((0, 3, 40, 300)))
        found.append(Publish(topic, payload, 1, packet_identifier=number, properties=properties))
    return found


def expected(message: Publish) -> dict[str, Any]:
    """The row that the message's own bytes ask for."""
    identity = find_user_property(message.properties, "hf-id")
    origin, epoch, seq = ("lander-1", 0, 0) if identity is None else decode_identity(identity)
    received = find_user_property(message.properties, "hf-received")
    received_ms, gateway = (None, None) if received is None else decode_received(received)
    return {
        "origin": origin,
        "epoch": epoch,
        "seq": seq,
        "received_ms": received_ms,
        "gateway": gateway,
        "topic": message.topic,
        "qos": 1,
        "retain": False,
        "content_type": message.properties.get(3),
        "payload": message.payload,
        "lander": "lander-1",
        "via": vias(message),
    }


def vias(message: Publish) -> list[dict[str, Any]]:
    found = find_user_property(message.properties, "hf-via")
    if found is None:
        return []
    epoch, ((number, _),), gateway, route = decode_via(found)
    return [{"epoch": epoch, "number": number, "gateway": gateway, "route": route}]


def together(messages: list[Publish]) -> Published | None:
    buffer = b"".join(map(encode, messages))
    starts, end = find_publishes(buffer, 0)
    assert (len(starts), end) == (len(messages), len(buffer))
    return to_rows(buffer, starts, end, "lander-1")


def test_rows_have_every_field_of_their_messages(seed: int) -> None:
    messages = some_publishes(random.Random(seed), 500)
    published = together(messages)
    assert published is not None
    rows = published.rows.to_pylist()
    assert all(row.pop("landed_ms") > NOON_MS - 10**11 for row in rows)
    assert rows == [expected(message) for message in messages]
    assert published.identifiers == list(range(1, 501))
    own = [message.packet_identifier if row["seq"] == 0 else 0 for message, row in zip(messages, rows, strict=True)]
    assert published.packets.tolist() == own


ODD: list[Publish] = [
    Publish("a/#", b"", 1, packet_identifier=1),
    Publish("", b"", 1, packet_identifier=1, properties={0x23: 5}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "bad")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/01/a")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", f"00000001/1/{'a' * 257}")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("hf-id", "bad")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("x", "y")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-received", "1/gw")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("hf-received", "01/g")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-via", "0000001f/42/gw-1/up")]}),
    Publish("t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("hf-via", "bad")]}),
    Publish(
        "t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("hf-via", "0000001f/1-2/g/r")]}
    ),
    Publish(
        "t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("hf-via", "0000001f/1/%41/r")]}
    ),
    Publish(
        "t", b"", 1, packet_identifier=1, properties={0x26: [("hf-id", "00000001/1/a"), ("hf-via", "0000001f/1/r")]}
    ),
    Publish(
        "t",
        b"",
        1,
        packet_identifier=1,
        properties={0x26: [("hf-via", "0000001f/1/g/r"), ("hf-id", "00000001/1/a"), ("hf-via", "0000001f/1/g/r")]},
    ),
    Publish("t", b"", 1, packet_identifier=1, properties={3: "application/vnd.holdfast.batch"}),
    Publish("t", b"", 1, packet_identifier=1, properties={9: b"\x26\x00\x05hf-id\x00\x0c00000001/1/a"}),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda message: str(message.properties)[:60])
def test_a_message_that_has_to_be_read_by_itself_keeps_all_from_being_rows_or_is_the_same_row(odd: Publish) -> None:
    messages = [Publish("t", b"", 1, packet_identifier=number) for number in range(2, 40)]
    published = together([*messages, odd, *messages]) if "#" not in odd.topic else together_raw(messages, odd)
    if published is not None:
        (row,) = published.rows.slice(len(messages), 1).to_pylist()
        row.pop("landed_ms")
        assert row == expected(odd)
        assert not find_user_property(odd.properties, "hf-via")


def together_raw(messages: list[Publish], odd: Publish) -> Published | None:
    """As `together`; the encoder refuses no topic name, a decoder does."""
    buffer = b"".join(map(encode, [*messages, odd]))
    published = to_rows(buffer, *find_publishes(buffer, 0), "lander-1")
    assert published is None
    return None


def test_bytes_mean_the_same_however_they_are_cut(seed: int) -> None:
    dice = random.Random(seed)
    messages = some_publishes(dice, 400)
    for message in messages:
        if dice.random() < 0.02:
            message.retain = True
        elif dice.random() < 0.03:
            message.payload = dice.choice((b"2", b"\xc0")) * 60_000  # as if packets began in it
    buffer = b"".join(map(encode, messages))
    client = BulkClientConnection(Connect("lander-1"))
    client.connect(0)
    client.receive_data(encode(Connack(False)), 0)
    assert isinstance(client.next_event(), Connack) and client.next_event() is None
    reader = PublishReader(client, "lander-1")
    payloads: list[bytes] = []
    in_columns = at = 0
    while at < len(buffer):
        size = dice.choice((1, 2, 100, 20_000, 100_000))  # bytes
        for step in reader.feed(buffer[at : at + size], 0):
            if step is None:
                while (event := client.next_event()) is not None:
                    assert isinstance(event, Publish)
                    payloads.append(event.payload)
            else:
                payloads += step.rows["payload"].to_pylist()
                in_columns += step.rows.num_rows
        at += size
    assert payloads == [message.payload for message in messages]
    assert in_columns >= LEAST


@pytest.mark.parametrize("size", [1, 3, 7])
def test_random_bytes_behind_a_first_byte_raise_nothing(seed: int, size: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        bodies = [dice.randbytes(dice.choice((2, 5, 8, 20, 130))) for _ in range(LEAST * size)]
        buffer = b"".join(
            b"\x32"
            + (bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 127 | 128, len(body) >> 7)))
            + body
            for body in bodies
        )
        starts, end = find_publishes(buffer, 0)
        to_rows(buffer, starts, end, "lander-1")
