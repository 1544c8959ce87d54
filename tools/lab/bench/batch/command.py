"""`holdfast bench batch`: what column batches save on the link, and how fast they are made and landed."""

import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from cloud.landing.batch import to_table
from cloud.landing.file import Row, join
from tools.lab.bench.batch.fleet import BME280, DS18B20, FORMATS, START_MS, Sensor, Sent, sent_by_fleet
from tools.lab.bench.batch.landing import landing
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from wire.bulk.column_batch import CONTENT_TYPE, ColumnBatchEncoder, decode_batch
from wire.bulk.property_block import encode_block, encode_contents, encode_identified_block
from wire.bulk.publishes import join_publishes, read_publishes, split_publish
from wire.codec.packets import MQTT_5, Publish, encode
from wire.identity import decode_identity, decode_received, encode_identity, encode_received
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY

GATEWAY = "gateway-1"
BATCH_TOPIC = f"holdfast/batch/{GATEWAY}/central"
EPOCH = 0xCAFE
DEVICES = 10
LANDED = 50_000  # messages: no more than packet identifiers
SENSORS: dict[str, Sensor] = {"BME280": BME280, "DS18B20": DS18B20}
BARS = {500: 8, 50: 12}
"""Messages in a batch, and the most bytes that a reading may take; a DS18B20 has one reading a message, and no goal."""


def batch(
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds for which each rate is measured.")] = 3.0,
    seed: Annotated[int, typer.Option(help="The seed of the readings: the same seed gives the same bytes.")] = 1,
    quick: Annotated[bool, quick_option(seconds=0.3)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure column batches beside the same messages one by one. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    figures = [*_sizes(seed), *_rates(seed, seconds), *_landing(seed, seconds)]
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


def _landing(seed: int, seconds: float) -> Iterator[Figure]:
    size = max(BARS)
    sent = sent_by_fleet(LANDED, DEVICES, BME280, "JSON", seed)
    batches = [_as_batch(sent[at : at + size], 1 + at // size) for at in range(0, LANDED, size)]
    return landing(batches, _one_by_one(sent), LANDED, max(1, round(seconds)))


def _as_batch(sent: list[Sent], packet_identifier: int = 1) -> bytes:
    """The PUBLISH with these messages."""
    encoder = ColumnBatchEncoder()
    for one in sent:
        block = _block(one)
        identity = (one.origin, one.epoch, one.seq)
        encoder.add(one.topic, one.payload, 1, False, block, *identity, one.received_ms, GATEWAY)
    packet = Publish(BATCH_TOPIC, encoder.encode(), 1, properties={CONTENT_TYPE_PROPERTY: CONTENT_TYPE})
    packet.packet_identifier = packet_identifier
    return encode(packet, MQTT_5)


def _one_by_one(sent: list[Sent]) -> bytes:
    """The PUBLISHes that a route sends."""
    halves = [
        split_publish(one.topic, _identified_block(one, one.origin, one.epoch, one.seq), one.payload, 1) for one in sent
    ]
    return join_publishes(halves, range(1, len(sent) + 1))[0]


def _block(one: Sent) -> bytes:
    return encode_contents({CONTENT_TYPE_PROPERTY: one.content_type})


def _identified_block(one: Sent, origin: str, epoch: int, seq: int) -> bytes:
    properties = {CONTENT_TYPE_PROPERTY: one.content_type}
    return encode_identified_block(properties, origin, epoch, seq, one.received_ms, GATEWAY)


def _rates(seed: int, seconds: float) -> Iterator[Figure]:
    messages = max(BARS)
    sent = sent_by_fleet(messages, DEVICES, BME280, "JSON", seed)
    stored = _stored(sent)

    def cut() -> bytes:
        encoder = ColumnBatchEncoder()
        encoder.add_publishes(stored, MQTT_5, GATEWAY, EPOCH, 1, START_MS, GATEWAY)
        return encoder.encode()

    ours, theirs = _both(cut, lambda: _resend(stored), messages, seconds)
    yield Figure("messages encoded from the bytes of the store", "1/s", ours, theirs)

    payload = cut()
    texts = [
        (encode_identity(one.origin, one.epoch, one.seq), encode_received(one.received_ms, GATEWAY)) for one in sent
    ]
    ours, theirs = _both(
        lambda: join([to_table(decode_batch(payload), START_MS, 1, "lander-1")]),
        lambda: join([_row(one, *text) for one, text in zip(sent, texts, strict=True)]),
        messages,
        seconds,
    )
    yield Figure("rows of a landing file, from the payload of a PUBLISH", "1/s", ours, theirs)


def _stored(sent: list[Sent]) -> bytes:
    """The PUBLISHes as devices of other makers send them: the gateway gives the identities."""
    halves = [
        split_publish(one.topic, encode_block({CONTENT_TYPE_PROPERTY: one.content_type}), one.payload, 1)
        for one in sent
    ]
    return join_publishes(halves, range(1, len(sent) + 1))[0]


def _resend(stored: bytes) -> bytes:
    """What a route does with stored PUBLISHes one by one."""
    halves = [
        split_publish(
            topic,
            encode_identified_block(common.properties if common else {}, GATEWAY, EPOCH, seq, START_MS, GATEWAY),
            payload,
            1,
        )
        for seq, (topic, payload, common, *_) in enumerate(read_publishes(stored, MQTT_5), start=1)
    ]
    return join_publishes(halves, range(1, len(halves) + 1))[0]


def _row(one: Sent, identity: str, received: str) -> Row:
    """What a lander does with one message, once its PUBLISH is decoded."""
    origin, epoch, seq = decode_identity(identity)
    received_ms, gateway = decode_received(received)
    return Row(
        origin=origin,
        epoch=epoch,
        seq=seq,
        received_ms=received_ms,
        gateway=gateway,
        landed_ms=time.time_ns() // 1_000_000,
        topic=one.topic,
        qos=1,
        retain=False,
        content_type=one.content_type,
        payload=one.payload,
        lander="lander-1",
    )


def _both(
    ours: Callable[[], object], theirs: Callable[[], object], messages: int, seconds: float
) -> tuple[float, float]:
    """Returns how many messages each does in a second of processor time, in its best run; they take turns."""
    best = dict.fromkeys((ours, theirs), float("inf"))
    ours(), theirs()  # Arrow imports pandas when it is first used
    until = time.perf_counter() + 2 * seconds
    while time.perf_counter() < until:
        for work in best:
            began = time.process_time()
            work()
            best[work] = min(best[work], time.process_time() - began)
    return messages / best[ours], messages / best[theirs]
