"""Column batches land as the same messages do one by one."""

import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cloud.landing import manifest
from cloud.landing.batch import to_table
from cloud.landing.file import SCHEMA
from tests.cloud.landing.running_lander import DEADLINE_S, RunningLander, landed, publish, wait_until
from tests.cloud.landing.script import Visit
from tests.cloud.landing.script import broker as scripted
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE, BatchMessage, decode_batch
from wire.bulk.property_block import encode_contents
from wire.codec.packets import Puback
from wire.identity import encode_identity, encode_received
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.properties import USER_PROPERTY, decode_properties
from wire.route_numbers import VIA_PROPERTY, encode_via
from wire.runs import runs_of

NOON_MS = 1_767_225_600_000
SENML = "application/senml+json"


def some_messages(dice: random.Random, root: str, count: int, has_earlier_link: bool = False) -> list[BatchMessage]:
    """Messages of a few devices and gateways, of every QoS, with and without properties."""
    seqs = dict.fromkeys(["roof", "barn/äöü", "gateway-1"], 1)
    messages = []
    for number in range(count):
        origin = dice.choice(list(seqs))
        seqs[origin] += dice.choice((1, 1, 1, 2))
        properties: dict[int, Any] = dice.choice(
            ({}, {CONTENT_TYPE_PROPERTY: SENML}, {CONTENT_TYPE_PROPERTY: "x/y", USER_PROPERTY: [("a", "b")]})
        )
        if has_earlier_link:
            properties = {**properties, USER_PROPERTY: [(VIA_PROPERTY, f"00000001/{number + 5}/gateway-0/up")]}
        messages.append(
            BatchMessage(
                topic=f"{root}/{dice.choice('abc')}",
                payload=dice.randbytes(dice.choice((0, 3, 40))),
                qos=dice.choice((1, 1, 2)),
                retain=dice.random() < 0.1,
                block=encode_contents(properties),
                origin=origin,
                epoch=7,
                seq=seqs[origin],
                received_ms=NOON_MS + 3 * number - dice.choice((0, 0, 50)),
                received_by=dice.choice(("gateway-1", "gateway-2")),
            )
        )
    return messages


def encoded(messages: list[BatchMessage]) -> bytes:
    encoder = ColumnBatchEncoder()
    for message in messages:
        encoder.add(*message)
    return encoder.encode()


def via(runs: list[tuple[int, int]]) -> str:
    return encode_via(31, runs, "gateway-1", "central")


def publish_one_by_one(port: int, messages: list[BatchMessage], numbers: list[int]) -> None:
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = []
    for message, number in zip_longest(messages, numbers):
        packed = Properties(PacketTypes.PUBLISH)
        content_type = decode_batch(encoded([message])).content_types[0]
        if content_type is not None:
            packed.ContentType = content_type
        block = decode_properties(Reader(encode_varint(len(message.block)) + message.block), PUBLISH)
        pairs = [
            *block.get(USER_PROPERTY, []),
            ("hf-id", encode_identity(message.origin, message.epoch, message.seq)),
            ("hf-received", encode_received(message.received_ms, message.received_by)),
        ]
        packed.UserProperty = [*pairs, (VIA_PROPERTY, via([(number, number)]))] if number else pairs
        sent.append(client.publish(message.topic, message.payload, message.qos, message.retain, packed))
    for one in sent:
        one.wait_for_publish(DEADLINE_S)
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("has_earlier_link", [False, True])
@pytest.mark.parametrize("runs", [[], [(41, 540)], [(41, 200), (202, 202), (203 + 1000, 203 + 1338)]])
def test_a_batch_and_the_same_messages_one_by_one_land_as_equal_rows(
    broker: int, tmp_path: Path, seed: int, runs: list[tuple[int, int]], has_earlier_link: bool
) -> None:
    root = f"even{len(runs)}{has_earlier_link}"  # the broker serves all tests
    messages = some_messages(random.Random(seed), root, 500, has_earlier_link)
    numbers = [number for first, last in runs for number in range(first, last + 1)]
    found = []
    for name, topic_filter in ((f"{root}-one-by-one", f"{root}/#"), (f"{root}-batched", f"batches/{root}")):
        landing = tmp_path / name
        running = RunningLander(broker, landing, name, topic_filter=topic_filter)
        running.wait_for("connected")
        if topic_filter.startswith("batches/"):
            for qos, some in ((1, slice(300)), (2, slice(300, None))):
                properties = [(VIA_PROPERTY, via(runs_of(numbers[some])))] if numbers else []
                content = [encoded(messages[some])]
                publish(broker, topic_filter, content, qos=qos, ContentType=CONTENT_TYPE, UserProperty=properties)
        else:
            publish_one_by_one(broker, messages, numbers)
        wait_until(lambda landing=landing: len(landed(landing)) == 500, "500 rows")  # type: ignore[misc]
        running.stop()
        rows = landed(landing)
        assert all(row.pop("landed_ms") > NOON_MS and row.pop("lander") == name for row in rows)
        intervals = [one.intervals for one in map(manifest.read_manifest, sorted(landing.glob("[!.]*.json")))]
        found.append((rows, sorted(interval for one in intervals for interval in one)))
    (rows, _), (batch_rows, _) = found
    assert sorted(batch_rows, key=str) == sorted(rows, key=str)
    expected = [
        (one.origin, one.payload, one.retain, [number] if number else [], [place + 5] if has_earlier_link else [])
        for place, (one, number) in enumerate(zip_longest(messages, numbers))
    ]
    came = [
        (
            row["origin"],
            row["payload"],
            row["retain"],
            numbers_of(row, "route", "central"),
            numbers_of(row, "gateway", "gateway-0"),
        )
        for row in batch_rows
    ]
    assert by_origin(came) == by_origin(expected)


def numbers_of(row: dict[str, Any], key: str, name: str) -> list[int]:
    return [link["number"] for link in row["via"] if link[key] == name]


def by_origin(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the rows of each origin, which is the first of their columns: these alone keep their order in a file."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def test_the_manifest_lists_the_identities_of_a_batch(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "listed", topic_filter="listed")
    running.wait_for("connected")
    one = BatchMessage("t", b"", 1, False, b"", "roof", 7, 41, NOON_MS, "gw")
    seqs = [("roof", 7, 41), ("barn", 7, 5), ("roof", 7, 42), ("barn", 9, 6), ("roof", 7, 44), ("barn", 7, 5)]
    batch = [one._replace(origin=origin, epoch=epoch, seq=seq) for origin, epoch, seq in seqs]
    publish(broker, "listed", [encoded(batch)], ContentType=CONTENT_TYPE)
    wait_until(lambda: bool(landed(landing)), "the batch in a landing file")
    running.stop()
    (described,) = map(manifest.read_manifest, landing.glob("[!.]*.json"))
    assert described.rows == 6
    assert described.intervals == [("barn", 7, 5, 5), ("barn", 9, 6, 6), ("roof", 7, 41, 42), ("roof", 7, 44, 44)]


def test_a_batch_with_an_identity_of_its_own_leaves_a_row_with_it(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "numbered", topic_filter="numbered")
    running.wait_for("connected")
    batch = encoded([BatchMessage("t", b"hello", 1, False, b"", "roof", 7, 41, NOON_MS, "gw")])
    publish(broker, "numbered", [batch, batch], hf_id="00000009/{}/centre", ContentType=CONTENT_TYPE)
    wait_until(lambda: len(landed(landing)) == 4, "two messages and two rows of batches")
    running.stop()
    rows = [(row["origin"], row["seq"], row["payload"], row["content_type"]) for row in landed(landing)]
    assert by_origin(rows) == {
        "roof": [("roof", 41, b"hello", None)] * 2,
        "centre": [("centre", 1, b"", CONTENT_TYPE), ("centre", 2, b"", CONTENT_TYPE)],
    }


def test_the_first_numbers_of_a_batch_are_its_messages_and_the_others_its_own(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "linked", topic_filter="linked")
    running.wait_for("connected")
    one = BatchMessage("t", b"hello", 1, False, b"", "roof", 7, 41, NOON_MS, "gw")
    properties = [(VIA_PROPERTY, via([(7, 8)])), ("hf-id", "00000009/1/centre"), (VIA_PROPERTY, via([(900, 900)]))]
    content = [encoded([one, one._replace(seq=42)])]
    publish(broker, "linked", content, ContentType=CONTENT_TYPE, UserProperty=properties)
    content = [encoded([one._replace(seq=seq) for seq in (43, 44, 45)])]
    publish(broker, "linked", content, ContentType=CONTENT_TYPE, UserProperty=properties)
    wait_until(lambda: len(landed(landing)) == 7, "five messages and two rows of batches")
    running.stop()
    numbers = [(row["origin"], row["seq"], [link["number"] for link in row["via"]]) for row in landed(landing)]
    assert by_origin(numbers) == {
        "roof": [*[("roof", 41, [7]), ("roof", 42, [8])], *[("roof", seq, []) for seq in (43, 44, 45)]],
        "centre": [("centre", 1, [900])] * 2,
    }
    running.wait_for("2 numbers for 3 messages")


def test_the_numbers_of_a_clients_batch_are_not_those_of_the_messages_in_it(broker: int, landing: Path) -> None:
    """The client's gateway numbers the batch as one message. What is in the batch may be forged."""
    running = RunningLander(broker, landing, "clients", topic_filter="clients")
    running.wait_for("connected")
    forged = BatchMessage(
        "holdfast/statement/gateway-1/central",
        b"forged",
        1,
        False,
        encode_contents({USER_PROPERTY: [(VIA_PROPERTY, via([(6, 6)]))]}),
        "gateway-1",
        7,
        41,
        NOON_MS,
        "gateway-1",
    )
    accepted = [("hf-id", "00000009/1/gateway-1"), ("hf-received", encode_received(NOON_MS, "gateway-1"))]
    properties = [*accepted, (VIA_PROPERTY, via([(7, 7)]))]
    publish(broker, "clients", [encoded([forged])], ContentType=CONTENT_TYPE, UserProperty=properties)
    wait_until(lambda: len(landed(landing)) == 2, "the message and the row of the batch")
    running.stop()
    numbers = [(row["seq"], [link["number"] for link in row["via"]]) for row in landed(landing)]
    assert numbers == [(41, []), (1, [7])]


def test_of_thousands_of_numbers_in_one_message_the_last_32_land(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "many-links", topic_filter="many-links")
    running.wait_for("connected")
    many = [(VIA_PROPERTY, via([(number, number)])) for number in range(1, 1001)]
    inside = BatchMessage(
        "t", b"", 1, False, encode_contents({USER_PROPERTY: many}), "roof", 7, 41, NOON_MS, "gateway-1"
    )
    publish(broker, "many-links", [b""], UserProperty=[("hf-id", "00000007/40/roof"), *many])
    publish(broker, "many-links", [encoded([inside])], ContentType=CONTENT_TYPE)
    wait_until(lambda: len(landed(landing)) == 2, "two messages")
    running.stop()
    numbers = {row["seq"]: [link["number"] for link in row["via"]] for row in landed(landing)}
    assert numbers == {40: [*range(969, 1001)], 41: [*range(969, 1001)]}
    running.wait_for("1000 values in one message; the last 32 count")


def test_a_batch_that_cannot_be_decoded_lands_as_it_is_and_stops_nothing(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "corrupt", topic_filter="corrupt")
    running.wait_for("connected")
    sound = encoded([BatchMessage("t", b"sound", 1, False, b"", "roof", 7, 41, NOON_MS, "gw")])
    cut_off = sound[:-1]
    publish(broker, "corrupt", [cut_off, sound], ContentType=CONTENT_TYPE)
    wait_until(lambda: len(landed(landing)) == 2, "both in landing files")
    running.stop()
    first, second = landed(landing)
    assert (first["payload"], first["content_type"], first["origin"]) == (cut_off, CONTENT_TYPE, "corrupt")
    assert (second["payload"], second["topic"], second["origin"]) == (b"sound", "t", "roof")
    running.wait_for("'corrupt': a column batch that cannot be decoded lands as it is (the zstd frame is cut off")


def test_an_unacknowledged_batch_comes_again_and_lands_once(landing: Path) -> None:
    messages = some_messages(random.Random(1), "t", 50)

    def lose(visit: Visit) -> None:
        visit.publish("twice", encoded(messages), 1, properties={CONTENT_TYPE_PROPERTY: CONTENT_TYPE})

    def send_again(visit: Visit) -> None:
        visit.publish("twice", encoded(messages), 1, dup=True, properties={CONTENT_TYPE_PROPERTY: CONTENT_TYPE})
        visit.receive_until(lambda packet: isinstance(packet, Puback))

    with scripted(lose, send_again) as port:
        running = RunningLander(port, landing, "twice", roll_s=1)
    running.stop()
    came = [(row["origin"], row["payload"]) for row in landed(landing)]
    assert by_origin(came) == by_origin((one.origin, one.payload) for one in messages)


def test_messages_without_provenance_have_none_in_their_rows() -> None:
    one = BatchMessage("t", b"", 0, True, b"", "roof", 7, 41, NOON_MS, "gw")
    batch = decode_batch(encoded([one, one._replace(seq=42, received_ms=0, received_by="")]))
    table = to_table(batch, NOON_MS, 1, "lander-1")
    assert table.schema == SCHEMA
    assert [(row["received_ms"], row["gateway"], row["qos"], row["retain"]) for row in table.to_pylist()] == [
        (NOON_MS, "gw", 0, True),
        (None, None, 0, True),
    ]
