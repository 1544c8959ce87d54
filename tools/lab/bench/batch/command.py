"""`holdfast lab bench batch`: what column batches save on the link, and how fast they are landed."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.lab.bench.batch.fleet import BME280, DS18B20, FORMATS, Sensor, Sent, sent_by_fleet
from tools.lab.bench.batch.landing import landing
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE
from wire.bulk.property_block import encode_contents, encode_identified_block
from wire.bulk.publishes import join_publishes, split_publish
from wire.codec.packets import MQTT_5, Publish, encode
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY

GATEWAY = "gateway-1"
BATCH_TOPIC = f"holdfast/batch/{GATEWAY}/central"
DEVICES = 10
LANDED = 50_000  # messages: no more than packet identifiers
SENSORS: dict[str, Sensor] = {"BME280": BME280, "DS18B20": DS18B20}
BARS = {500: 8, 50: 12}
"""Messages in a batch, and the most bytes that a reading may take; a DS18B20 has one reading a message, and no goal."""


def batch(
    rounds: Annotated[int, typer.Option(min=1, help="How often the messages are sent to the lander.")] = 3,
    seed: Annotated[int, typer.Option(help="The seed of the readings: the same seed gives the same bytes.")] = 1,
    quick: Annotated[bool, quick_option(rounds=1)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure column batches beside the same messages one by one. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    figures = [*_sizes(seed), *_landing(seed, rounds)]
    about = {"seed": str(seed), "devices": str(DEVICES)}
    end_bench("batch", figures, time.monotonic() - started, as_json, ("batch", "one by one"), about)


def _sizes(seed: int) -> Iterator[Figure]:
    for name, sensor in SENSORS.items():
        for content_format in FORMATS:
            for messages, bar in BARS.items():
                sent = sent_by_fleet(messages, DEVICES, sensor, content_format, seed)
                readings = messages * len(sensor)
                ours, theirs = len(_as_batch(sent)) / readings, len(_one_by_one(sent)) / readings
                what = f"bytes a reading, {name} in {content_format}, {messages} messages"
                yield Figure(what, "B", ours, theirs, bar if len(sensor) > 1 else None, at_most=True)


def _landing(seed: int, rounds: int) -> Iterator[Figure]:
    size = max(BARS)
    sent = sent_by_fleet(LANDED, DEVICES, BME280, "JSON", seed)
    batches = [_as_batch(sent[at : at + size], 1 + at // size) for at in range(0, LANDED, size)]
    return landing(batches, _one_by_one(sent), LANDED, rounds)


def _as_batch(sent: list[Sent], packet_identifier: int = 1) -> bytes:
    """The PUBLISH with these messages."""
    encoder = ColumnBatchEncoder()
    for one in sent:
        block = encode_contents({CONTENT_TYPE_PROPERTY: one.content_type})
        identity = (one.origin, one.epoch, one.seq)
        encoder.add(one.topic, one.payload, 1, False, block, *identity, one.received_ms, GATEWAY)
    packet = Publish(BATCH_TOPIC, encoder.encode(), 1, properties={CONTENT_TYPE_PROPERTY: CONTENT_TYPE})
    packet.packet_identifier = packet_identifier
    return encode(packet, MQTT_5)


def _one_by_one(sent: list[Sent]) -> bytes:
    """The PUBLISHes that a route sends."""
    halves = [split_publish(one.topic, _identified_block(one), one.payload, 1) for one in sent]
    return join_publishes(halves, range(1, len(sent) + 1))[0]


def _identified_block(one: Sent) -> bytes:
    properties = {CONTENT_TYPE_PROPERTY: one.content_type}
    return encode_identified_block(properties, one.origin, one.epoch, one.seq, one.received_ms, GATEWAY)
