"""CONNECT and CONNACK (sections 3.1 and 3.2), but for wills and sessions."""

import string
import time

from tools.lab.check.client import elapse
from tools.lab.check.outcome import Closed, Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec import frame
from wire.codec.packets import MQTT_5, Connack, Disconnect, Pingreq, Pingresp, Publish, Suback, Subscribe
from wire.primitives import encode_string

LETTERS_AND_DIGITS = string.digits + string.ascii_letters
HAS_USERNAME, HAS_PASSWORD, HAS_WILL, CLEAN = 0x80, 0x40, 0x04, 0x02
NO_CLIENT_IDENTIFIER = frame(0x10, encode_string("MQTT") + b"\x04\x00\x00\x00" + encode_string(""))
# (connect flags, payload behind the client identifier) with what the flags leave out, or leave in
FLAGS_AND_FIELDS = {
    "no_will_where_there_should_be_one": (HAS_WILL, b""),
    "no_user_name_where_there_should_be_one": (HAS_USERNAME, b""),
    "no_password_where_there_should_be_one": (HAS_USERNAME | HAS_PASSWORD, encode_string("user")),
    "a_user_name_without_its_flag": (0, encode_string("user")),
    "a_password_without_its_flag": (HAS_USERNAME, encode_string("user") + encode_string("password")),
}
WILL_FLAGS = {"will_qos_1_without_a_will": 0x08, "will_qos_2_without_a_will": 0x10, "will_retain_without_a_will": 0x20}


def raw_connect(
    broker: Broker, flags: int, payload: bytes = b"", *, name: str = "MQTT", level: int | None = None
) -> bytes:
    """A CONNECT of the check's version, with these flags, and fields behind its client identifier."""
    head = encode_string(name) + bytes((level or broker.level, flags | CLEAN)) + b"\0\0" + broker.no_properties
    return frame(0x10, head + encode_string(broker.client_id()) + payload)


@check(v3="3.1.0-1 3.2.0-1", v5="3.1.0-1 3.14.0-1 3.2.0-1")
async def a_first_packet_that_is_no_connect_closes_the_connection(broker: Broker) -> None:
    client = await broker.open()
    await client.send(Publish(broker.topic(), b""))
    answer = await client.read_to_end()  # a CONNACK that refuses, in whichever version, does no harm
    if answer and (answer[:1] != b"\x20" or answer[3:4] in (b"", b"\x00")):
        raise Failed("an end without a word", answer.hex(" "))


@check(v3="3.1.0-2", v5="3.1.0-2 3.2.0-2")
async def a_second_connect_closes_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    await client.send(broker.connect_packet(client.client_id))
    await client.expect_closed(reasons.PROTOCOL_ERROR)
    if any(isinstance(packet, Connack) for packet in client.received[1:]):
        raise Failed("no second CONNACK", repr(client.received))


@check(v3="3.1.2-1", v5="3.1.2-1")
async def another_protocol_name_is_not_served(broker: Broker) -> None:
    client = await broker.open()
    await client.send(raw_connect(broker, 0, name="MQTS"))
    answer = await client.read_to_end()
    if answer[:1] == b"\x20" and answer[3:4] == b"\x00":
        raise Failed("that the broker closes the connection", f"CONNACK {answer.hex(' ')}")


@check(v3="3.1.2-2", v5="3.1.2-2")
async def an_unknown_protocol_level_is_refused(broker: Broker) -> None:
    client = await broker.open()
    await client.send(raw_connect(broker, 0, level=99))
    answer = await client.read_to_end()
    in_3_1_1, in_5 = b"\x20\x02\x00\x01", answer[:1] == b"\x20" and answer[2:4] == b"\x00\x84"
    silent_in_5 = broker.level == MQTT_5 and not answer
    if not (answer == in_3_1_1 or in_5 or silent_in_5):
        raise Failed("CONNACK with return code 1 (3.1.1) or reason code 0x84 (5)", answer.hex(" ") or "nothing")


@check(v3="3.1.2-3 3.1.4-1", v5="3.1.2-3 3.1.4-1")
async def the_reserved_connect_flag_is_refused(broker: Broker) -> None:
    await broker.expect_refused(raw_connect(broker, 1), reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v3="3.1.2-11 3.1.2-13 3.1.2-15 3.1.4-1", v5="3.1.2-11 3.1.2-13 3.1.4-1", cases=WILL_FLAGS)
async def will_flags_without_a_will_are_refused(broker: Broker, flags: int) -> None:
    await broker.expect_refused(raw_connect(broker, flags), reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(
    v3="3.1.2-9 3.1.2-18 3.1.2-19 3.1.2-20 3.1.2-21 3.1.3-1 3.1.4-1",
    v5="3.1.2-9 3.1.2-16 3.1.2-17 3.1.2-18 3.1.2-19 3.1.3-1 3.1.4-1",
    cases=FLAGS_AND_FIELDS,
)
async def flags_that_do_not_fit_the_payload_are_refused(broker: Broker, case: tuple[int, bytes]) -> None:
    await broker.expect_refused(raw_connect(broker, *case), reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v3="3.1.2-22")
async def a_password_without_a_user_name_is_refused(broker: Broker) -> None:
    await broker.expect_refused(raw_connect(broker, HAS_PASSWORD, encode_string("password")))


@check(v3="3.1.3-3 3.1.4-1", v5="3.1.3-3 3.1.4-1")
async def a_connect_without_a_client_identifier_is_refused(broker: Broker) -> None:
    head = encode_string("MQTT") + bytes((broker.level, CLEAN)) + b"\0\0" + broker.no_properties
    await broker.expect_refused(frame(0x10, head), reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v3="3.1.3-5 3.1.4-4", v5="3.1.3-5 3.1.4-5 3.2.2-1 3.2.2-8")
async def client_identifiers_of_23_letters_and_digits_are_accepted(broker: Broker) -> None:
    unique = broker.client_id()[-8:]
    for start in range(0, len(LETTERS_AND_DIGITS), 15):
        client_id = (LETTERS_AND_DIGITS[start : start + 15] + unique)[:23]
        client = await broker.connect(client_id)
        await client.disconnect()


@check(v3="3.1.3-6", v5="3.1.3-6 3.1.3-7 3.2.2-16")
async def an_empty_client_identifier_stands_for_a_unique_one(broker: Broker) -> None:
    first, second = await broker.connect(""), await broker.connect("")
    await first.ping()
    if broker.level == MQTT_5:
        assigned = [client.connack.properties.get(p.ASSIGNED_CLIENT_IDENTIFIER) for client in (first, second)]
        if not all(assigned) or assigned[0] == assigned[1]:
            raise Failed("two different Assigned Client Identifiers", str(assigned))


@check(v5="3.1.3-7")
async def an_assigned_client_identifier_can_be_connected_with(broker: Broker) -> None:
    first = await broker.connect("", clean_start=False, expiry_s=60)
    assigned = first.connack.properties.get(p.ASSIGNED_CLIENT_IDENTIFIER, "")
    await first.disconnect()
    second = await broker.resume(assigned)
    if not second.connack.session_present:
        raise Failed("the session of the assigned client identifier", repr(second.connack))


@check(v3="3.1.3-7 3.1.3-8 3.1.3-9 3.2.2-4 3.2.2-5")
async def an_empty_client_identifier_without_clean_session_is_rejected(broker: Broker) -> None:
    client = await broker.open()
    await client.send(NO_CLIENT_IDENTIFIER)
    await client.expect(Connack, reason_code=reasons.CLIENT_IDENTIFIER_NOT_VALID, session_present=False)
    await client.expect_closed()


@check(v3="3.1.4-2", v5="3.1.4-3")
async def a_client_identifier_that_comes_again_ends_the_first_connection(broker: Broker) -> None:
    first = await broker.connect()
    second = await broker.connect(first.client_id)
    await first.expect_closed(reasons.SESSION_TAKEN_OVER)
    if broker.level == MQTT_5 and not isinstance(first.received[-1], Disconnect):
        raise Failed("DISCONNECT 0x8E", "an end without a word")
    await second.ping()


@check(v3="3.1.4-4 3.2.0-1", v5="3.1.4-5 3.2.0-1")
async def what_follows_a_connect_at_once_is_answered_behind_the_connack(broker: Broker) -> None:
    client = await broker.open()
    await client.send(broker.connect_packet(), Subscribe(1, [(broker.topic(), 0)]), Pingreq())
    await client.expect(Pingresp)
    kinds = [type(packet) for packet in client.received]
    if kinds != [Connack, Suback, Pingresp]:
        raise Failed("CONNACK, SUBACK, PINGRESP", repr(client.received))


@check(v5="3.1.4-6 3.2.2-7 4.13.2-1 4.12.0-1")
async def nothing_behind_a_refused_connect_is_processed(broker: Broker) -> None:
    topic = broker.topic()
    watcher, client = await broker.connect(), await broker.open()
    await watcher.subscribe(topic)
    unknown_method = broker.connect_packet(properties={p.AUTHENTICATION_METHOD: "no such method"})
    await client.send(unknown_method, Publish(topic, b"behind a refused CONNECT"))
    await client.expect_closed()
    await watcher.publish(topic, b"marker")
    await watcher.receive(payload=b"marker")


@check(v3="3.1.4-5 3.2.2-5")
async def nothing_behind_a_rejected_connect_is_processed(broker: Broker) -> None:
    topic = broker.topic()
    watcher, client = await broker.connect(), await broker.open()
    await watcher.subscribe(topic)
    await client.send(NO_CLIENT_IDENTIFIER, Publish(topic, b"behind a rejected CONNECT"))
    await client.expect_closed()
    await watcher.publish(topic, b"marker")
    await watcher.receive(payload=b"marker")


@check(v5="3.2.2-6 4.12.0-1 4.13.2-1")
async def a_refusal_says_no_session_even_where_there_is_one(broker: Broker) -> None:
    kept = await broker.resume(broker.client_id())
    await kept.disconnect()
    client = await broker.open()
    method = {p.AUTHENTICATION_METHOD: "no such method"}
    await client.send(broker.connect_packet(kept.client_id, clean_start=False, properties=method))
    await client.expect_closed()
    refused = (reasons.BAD_AUTHENTICATION_METHOD, reasons.NOT_AUTHORIZED)
    for packet in client.received:
        if not isinstance(packet, Connack) or packet.reason_code not in refused or packet.session_present:
            raise Failed("CONNACK 0x8C or 0x87, or nothing", repr(packet))


@check(v3="3.1.2-24", v5="3.1.2-22 3.2.2-22")
async def silence_of_one_and_a_half_keep_alives_closes_the_connection(broker: Broker) -> None:
    client = await broker.open()
    sent_s = time.monotonic()  # the silence begins with the CONNECT, however late this client reads the answer
    await client.send(broker.connect_packet(keep_alive_s=2))
    client.connack = await client.expect(Connack, reason_code=0)
    keep_alive_s = client.connack.properties.get(p.SERVER_KEEP_ALIVE, 2)
    await client.read_to_end()
    silent_s = time.monotonic() - sent_s
    if silent_s < keep_alive_s:
        raise Failed(f"no end within the keep alive of {keep_alive_s} s", f"an end after {silent_s:.1f} s")


@check(v3="3.1.2-24", v5="3.1.2-22 3.2.2-22")
async def a_client_that_sends_in_time_stays_connected(broker: Broker) -> None:
    keep_alive_s, silent_s = 3, 0.0
    while True:
        sent_s = time.monotonic()
        client = await broker.connect(keep_alive_s=keep_alive_s)
        try:
            for _ in range(6):
                await elapse(1)
                silent_s, sent_s = time.monotonic() - sent_s, time.monotonic()
                await client.ping()
        except Closed:
            if silent_s <= keep_alive_s:
                raise
        else:
            return
        # This client was late itself, so the end says nothing of the broker: once more.


@check(v5="3.1.2-28")
async def response_information_comes_only_to_clients_that_ask(broker: Broker) -> None:
    for asked in ({}, {p.REQUEST_RESPONSE_INFORMATION: 0}):
        client = await broker.connect(properties=asked)
        if p.RESPONSE_INFORMATION in client.connack.properties:
            raise Failed("no Response Information", repr(client.connack))


@check(v5="3.2.2-19 3.2.2-20 3.1.2-24")
async def a_connack_is_no_larger_than_the_client_takes(broker: Broker) -> None:
    largest = 40
    client = await broker.connect(properties={p.MAXIMUM_PACKET_SIZE: largest})
    size = len(client.connack.encode())
    if size > largest:
        raise Failed(f"a CONNACK of {largest} bytes at most", f"{size} bytes: {client.connack!r}")


@check(v5="4.12.0-6")
async def a_client_without_an_authentication_method_is_not_asked_for_it(broker: Broker) -> None:
    client = await broker.connect()
    if p.AUTHENTICATION_METHOD in client.connack.properties:
        raise Failed("no Authentication Method", repr(client.connack))


@check(v5="4.12.0-7 4.13.1-1")
async def an_auth_without_a_method_agreed_closes_the_connection(broker: Broker) -> None:
    await broker.expect_closed(frame(0xF0, b"\x19\x00"), reasons.PROTOCOL_ERROR)


def connect_with(broker: Broker, properties: bytes) -> bytes:
    """A CONNECT of MQTT 5 with these bytes as its properties."""
    head = encode_string("MQTT") + bytes((MQTT_5, CLEAN)) + b"\0\0" + bytes((len(properties),)) + properties
    return frame(0x10, head + encode_string(broker.client_id()))


BAD_PROPERTIES = {
    "receive_maximum_0": b"\x21\x00\x00",
    "maximum_packet_size_0": b"\x27\x00\x00\x00\x00",
    "request_problem_information_2": b"\x17\x02",
    "request_response_information_2": b"\x19\x02",
    "authentication_data_without_a_method": b"\x16\x00\x01a",
    "session_expiry_interval_twice": b"\x11\x00\x00\x00\x01" * 2,
    "receive_maximum_twice": b"\x21\x00\x01" * 2,
    "a_property_of_publish": b"\x23\x00\x01",
    "an_unknown_property": b"\x7f\x00",
    "a_property_cut_off": b"\x11\x00\x00",
}


@check(v5="3.1.4-1 4.13.1-1", cases=BAD_PROPERTIES)
async def bad_properties_of_a_connect_are_refused(broker: Broker, properties: bytes) -> None:
    await broker.expect_refused(connect_with(broker, properties), reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)
