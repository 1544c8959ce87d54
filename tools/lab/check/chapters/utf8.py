"""UTF-8 encoded strings (section 1.5.3 of MQTT 3.1.1, 1.5.4 of MQTT 5.0), wherever they stand."""

from tools.lab.check.chapters.connect import HAS_USERNAME, HAS_WILL, raw_connect
from tools.lab.check.chapters.publish import raw_publish
from tools.lab.check.chapters.subscribe import raw_subscribe
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import reasons
from wire.codec import frame
from wire.codec.packets import MQTT_5
from wire.primitives import encode_binary, encode_string

ILL_FORMED = {
    "surrogate": b"\xed\xa0\x80",
    "pair_of_surrogates": b"\xed\xa0\xb5\xed\xb4\x9e",
    "overlong_slash": b"\xc0\xaf",
    "overlong_of_three_bytes": b"\xe0\x80\xaf",
    "overlong_null": b"\xc0\x80",
    "beyond_unicode": b"\xf4\x90\x80\x80",
    "lone_continuation": b"\x80",
    "cut_off": b"\xe2\x82",
    "byte_fe": b"\xfe",
}
NULL = {"null": b"a\x00b"}
ANY = {**ILL_FORMED, **NULL}
MALFORMED = (reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v3="1.5.3-1 3.3.2-1", v5="1.5.4-1 3.3.2-1", cases=ILL_FORMED)
async def an_ill_formed_topic_name_closes_the_connection(broker: Broker, text: bytes) -> None:
    packet = raw_publish(broker, broker.topic().encode() + text)
    await broker.expect_closed(packet, *MALFORMED, reasons.TOPIC_NAME_INVALID)


@check(v3="1.5.3-2 4.7.3-2", v5="1.5.4-2 4.7.3-2")
async def a_null_in_a_topic_name_closes_the_connection(broker: Broker) -> None:
    packet = raw_publish(broker, broker.topic().encode() + b"\x00")
    await broker.expect_closed(packet, *MALFORMED, reasons.TOPIC_NAME_INVALID)


@check(v3="1.5.3-1 3.8.3-1", v5="1.5.4-1 3.8.3-1", cases=ILL_FORMED)
async def an_ill_formed_filter_closes_the_connection(broker: Broker, text: bytes) -> None:
    packet = raw_subscribe(broker, broker.topic().encode() + text)
    await broker.expect_closed(packet, *MALFORMED, reasons.TOPIC_FILTER_INVALID)


@check(v3="1.5.3-2 4.7.3-2", v5="1.5.4-2 4.7.3-2")
async def a_null_in_a_filter_closes_the_connection(broker: Broker) -> None:
    packet = raw_subscribe(broker, broker.topic().encode() + b"\x00")
    await broker.expect_closed(packet, *MALFORMED, reasons.TOPIC_FILTER_INVALID)


@check(v3="1.5.3-1 3.10.3-1", v5="1.5.4-1 3.10.3-1", cases=ANY)
async def an_ill_formed_filter_to_unsubscribe_closes_the_connection(broker: Broker, text: bytes) -> None:
    packet = frame(0xA2, b"\x00\x01" + broker.no_properties + encode_binary(text))
    await broker.expect_closed(packet, *MALFORMED, reasons.TOPIC_FILTER_INVALID)


@check(v3="1.5.3-1 1.5.3-2 3.1.3-4", v5="1.5.4-1 1.5.4-2 3.1.3-4 3.1.3-8", cases=ANY)
async def an_ill_formed_client_identifier_is_refused(broker: Broker, text: bytes) -> None:
    head = encode_string("MQTT") + bytes((broker.level, 2)) + b"\0\0" + broker.no_properties
    packet = frame(0x10, head + encode_binary(text))
    if broker.level == MQTT_5:
        await broker.expect_refused(packet, *MALFORMED, reasons.CLIENT_IDENTIFIER_NOT_VALID)
    else:
        client = await broker.open()
        await client.send(packet)
        await client.expect_closed()  # a server may reject the identifier, or find the CONNECT malformed


@check(v3="1.5.3-1 1.5.3-2 3.1.3-10", v5="1.5.4-1 1.5.4-2 3.1.3-11", cases=ANY)
async def an_ill_formed_will_topic_is_refused(broker: Broker, text: bytes) -> None:
    await broker.expect_refused(
        raw_connect(broker, HAS_WILL, broker.no_properties + encode_binary(text) + encode_string("gone")),
        *MALFORMED,
        reasons.TOPIC_NAME_INVALID,
    )


@check(v3="1.5.3-1 1.5.3-2 3.1.3-11", v5="1.5.4-1 1.5.4-2 3.1.3-12", cases=ANY)
async def an_ill_formed_user_name_is_refused(broker: Broker, text: bytes) -> None:
    await broker.expect_refused(
        raw_connect(broker, HAS_USERNAME, encode_binary(text)), *MALFORMED, reasons.BAD_USER_NAME_OR_PASSWORD
    )


@check(v5="1.5.4-1 1.5.4-2 3.3.2-13", cases=ANY)
async def an_ill_formed_response_topic_closes_the_connection(broker: Broker, text: bytes) -> None:
    await broker.expect_closed(raw_publish(broker, broker.topic().encode(), b"\x08" + encode_binary(text)), *MALFORMED)


@check(v5="1.5.4-1 1.5.4-2 3.3.2-19", cases=ANY)
async def an_ill_formed_content_type_closes_the_connection(broker: Broker, text: bytes) -> None:
    await broker.expect_closed(raw_publish(broker, broker.topic().encode(), b"\x03" + encode_binary(text)), *MALFORMED)


@check(v5="1.5.7-1 1.5.4-1 1.5.4-2", cases=ANY)
async def an_ill_formed_user_property_closes_the_connection(broker: Broker, text: bytes) -> None:
    for pair in (encode_binary(text) + encode_string("b"), encode_string("a") + encode_binary(text)):
        await broker.expect_closed(raw_publish(broker, broker.topic().encode(), b"\x26" + pair), *MALFORMED)


@check(v3="1.5.3-3 4.7.3-4", v5="1.5.4-3 4.7.3-4")
async def a_byte_order_mark_stays_where_it_is(broker: Broker) -> None:
    topic = f"{broker.topic()}/\ufeff"
    client = await broker.connect()
    await client.subscribe(topic)
    await client.publish(topic.removesuffix("\ufeff"), b"without")
    await client.publish(topic, b"with")
    await client.receive(topic=topic, payload=b"with")


@check(v3="4.7.3-4 1.5.3-1", v5="4.7.3-4 1.5.4-1")
async def any_character_may_stand_in_a_topic(broker: Broker) -> None:
    topic = f"{broker.topic()}/é 日本 𝄞 \U0010ffff \x01"
    client = await broker.connect()
    await client.subscribe(topic.rpartition("/")[0] + "/+")
    text = topic.replace("\U0010ffff", "").replace("\x01", "")  # a server may refuse control and non-characters
    await client.publish(text)
    await client.receive(topic=text)


@check(v3="4.7.3-3", v5="4.7.3-3")
async def a_long_topic_name_arrives(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(f"{topic}/#")
    name = f"{topic}/" + "x" * 10_000
    await client.publish(name)
    await client.receive(topic=name)
