"""Column batches land as the same messages do one by one."""

import random
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cloud.landing import manifest
from cloud.landing.batch import to_table
from cloud.landing.file import SCHEMA
from tests.cloud.landing.running_lander import DEADLINE_S, RunningLander, landed, publish, wait_until
from tests.cloud.landing.test_lander import take_over
from wire.bulk.column_batch import CONTENT_TYPE, BatchMessage, ColumnBatchEncoder, decode_batch
from wire.bulk.property_block import encode_contents
from wire.identity import encode_identity, encode_received
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.properties import USER_PROPERTY

NOON_MS = 1_767_225_600_000
SENML = "application/senml+json"


def some_messages(dice: random.Random, root: str, count: int) -> list[BatchMessage]:
    """Messages of a few devices and gateways, of every QoS, with and without properties."""
    seqs = dict.fromkeys(["roof", "barn/äöü", "gateway-1"], 1)
    messages = []
    for number in range(count):
        origin = dice.choice(list(seqs))
        seqs[origin] += dice.choice((1, 1, 1, 2))
        properties: dict[int, Any] = dice.choice(
            ({}, {CONTENT_TYPE_PROPERTY: SENML}, {CONTENT_TYPE_PROPERTY: "x/y", USER_PROPERTY: [("a", "b")]})
        )
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


def publish_one_by_one(port: int, messages: list[BatchMessage]) -> None:
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for message in messages:
        packed = Properties(PacketTypes.PUBLISH)
        content_type = decode_batch(encoded([message])).content_types[0]
        if content_type is not None:
            packed.ContentType = content_type
        packed.UserProperty = [
            ("hf-id", encode_identity(message.origin, message.epoch, message.seq)),
            ("hf-received", encode_received(message.received_ms, message.received_by)),
        ]
        sent = client.publish(message.topic, message.payload, message.qos, properties=packed)
    sent.wait_for_publish(DEADLINE_S)
    client.disconnect()
    client.loop_stop()


def test_a_batch_and_the_same_messages_one_by_one_land_as_equal_rows(broker: int, tmp_path: Path, seed: int) -> None:
    messages = some_messages(random.Random(seed), "even", 500)
    found = []
    for name, topic_filter in (("one-by-one", "even/#"), ("batched", "batches/even")):
        landing = tmp_path / name
        running = RunningLander(broker, landing, name, topic_filter=topic_filter)
        running.wait_for("connected")
        if name == "batched":
            publish(broker, "batches/even", [encoded(messages[:300])], ContentType=CONTENT_TYPE)
            publish(broker, "batches/even", [encoded(messages[300:])], qos=2, ContentType=CONTENT_TYPE)
        else:
            publish_one_by_one(broker, messages)
        wait_until(lambda landing=landing: len(landed(landing)) == 500, "500 rows")  # type: ignore[misc]
        running.stop()
        rows = landed(landing)
        assert all(row.pop("landed_ms") > NOON_MS and row.pop("lander") == name for row in rows)
        intervals = [one.intervals for one in map(manifest.read_manifest, sorted(landing.glob("[!.]*.json")))]
        found.append((rows, sorted(interval for one in intervals for interval in one)))
    (rows, _), (batch_rows, _) = found
    assert sorted(batch_rows, key=str) == sorted(rows, key=str)
    assert [row["payload"] for row in batch_rows] == [message.payload for message in messages]


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
    assert [(row["origin"], row["seq"], row["payload"]) for row in landed(landing)] == [
        ("roof", 41, b"hello"),
        ("centre", 1, b""),
        ("roof", 41, b"hello"),
        ("centre", 2, b""),
    ]
    assert [row["content_type"] for row in landed(landing)] == [None, CONTENT_TYPE] * 2


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
    running.wait_for("corrupt: a column batch that cannot be decoded lands as it is (the zstd frame is cut off")


def test_an_unacknowledged_batch_comes_again_and_lands_once(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "twice", topic_filter="twice", roll_s=1)
    running.wait_for("connected")
    messages = some_messages(random.Random(1), "t", 50)
    publish(broker, "twice", [encoded(messages)], ContentType=CONTENT_TYPE)
    with take_over(broker, "twice"):
        running.wait_for("lost")
    running.wait_for("connected", times=2)
    wait_until(lambda: bool(landed(landing)), "the batch, sent again")
    running.stop()
    assert [row["payload"] for row in landed(landing)] == [message.payload for message in messages]


def test_messages_without_provenance_have_none_in_their_rows() -> None:
    one = BatchMessage("t", b"", 0, True, b"", "roof", 7, 41, NOON_MS, "gw")
    batch = decode_batch(encoded([one, one._replace(seq=42, received_ms=0, received_by="")]))
    table = to_table(batch, NOON_MS, 1, "lander-1")
    assert table.schema == SCHEMA
    assert [(row["received_ms"], row["gateway"], row["qos"], row["retain"]) for row in table.to_pylist()] == [
        (NOON_MS, "gw", 0, False),
        (None, None, 0, False),
    ]
