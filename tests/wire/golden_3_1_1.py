"""The golden packet table of MQTT 3.1.1, in the form of `golden`; clauses are numbered as in the 3.1.1 standard."""

from binascii import unhexlify

from wire.codec.packets import (
    MQTT_3_1_1,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)

MALFORMED, PROTOCOL, IDENTIFIER = 0x81, 0x82, 0x85


def _table(*rows):
    return [(name, value, unhexlify(text.replace(" ", ""))) for name, value, text in rows]


def _connect(*fields) -> Connect:
    connect = Connect(*fields)
    connect.protocol_level = MQTT_3_1_1
    return connect


GOOD = _table(
    ("CONNECT least [MQTT-3.1.3-6]", _connect("", True), "10 0c 0004 4d515454 04 02 0000 0000"),
    ("CONNECT to a session", _connect("dev", False, 60), "10 0f 0004 4d515454 04 00 003c 0003 646576"),
    (
        "CONNECT will and credentials",
        _connect("d", True, 10, "u", b"\x00p", Will("w/t", b"gone", 2, True)),
        "10 1f 0004 4d515454 04 f6 000a 0001 64 0003 772f74 0004 676f6e65 0001 75 0002 0070",
    ),
    ("CONNACK accepted", Connack(False), "20 02 00 00"),
    ("CONNACK session present [MQTT-3.2.2-2]", Connack(True), "20 02 01 00"),
    ("CONNACK unacceptable protocol version", Connack(False, 0x84), "20 02 00 01"),
    ("CONNACK identifier rejected", Connack(False, 0x85), "20 02 00 02"),
    ("CONNACK server unavailable", Connack(False, 0x88), "20 02 00 03"),
    ("CONNACK bad user name or password", Connack(False, 0x86), "20 02 00 04"),
    ("CONNACK not authorized", Connack(False, 0x87), "20 02 00 05"),
    ("PUBLISH QoS 0", Publish("a/b", b"hi"), "30 07 0003 612f62 6869"),
    ("PUBLISH empty payload, retain", Publish("a", b"", retain=True), "31 03 0001 61"),
    ("PUBLISH QoS 1", Publish("a", b"x", 1, packet_identifier=10), "32 06 0001 61 000a 78"),
    ("PUBLISH QoS 2 again", Publish("a", b"x", 2, True, True, 65535), "3d 06 0001 61 ffff 78"),
    ("PUBLISH with a two-byte length", Publish("a", b"\x55" * 200), "30 cb01 0001 61" + "55" * 200),
    ("PUBACK", Puback(10), "40 02 000a"),
    ("PUBREC", Pubrec(1), "50 02 0001"),
    ("PUBREL [MQTT-3.6.1-1]", Pubrel(1), "62 02 0001"),
    ("PUBCOMP", Pubcomp(256), "70 02 0100"),
    ("SUBSCRIBE", Subscribe(1, [("a/#", 1), ("b", 2)]), "82 0c 0001 0003 612f23 01 0001 62 02"),
    ("SUBACK", Suback(1, [0, 1, 2, 0x80]), "90 06 0001 00 01 02 80"),
    ("UNSUBSCRIBE", Unsubscribe(3, ["a", "b/+"]), "a2 0a 0003 0001 61 0003 622f2b"),
    ("UNSUBACK", Unsuback(3, []), "b0 02 0003"),
    ("PINGREQ", Pingreq(), "c0 00"),
    ("PINGRESP", Pingresp(), "d0 00"),
    ("DISCONNECT", Disconnect(), "e0 00"),
)

ALSO_GOOD = _table(
    ("SUBSCRIBE # not last [MQTT-4.7.1-2]", Subscribe(1, [("#/a", 0)]), "82 08 0001 0003 232f61 00"),
    ("UNSUBSCRIBE + not alone [MQTT-4.7.1-3]", Unsubscribe(1, ["a+"]), "a2 06 0001 0002 612b"),
)

BAD = _table(
    ("CONNECT reserved flag [MQTT-3.1.2-3]", MALFORMED, "10 0c 0004 4d515454 04 03 0000 0000"),
    ("CONNECT will QoS without will [MQTT-3.1.2-13]", MALFORMED, "10 0c 0004 4d515454 04 0a 0000 0000"),
    ("CONNECT will retain without will [MQTT-3.1.2-15]", MALFORMED, "10 0c 0004 4d515454 04 22 0000 0000"),
    ("CONNECT will QoS 3 [MQTT-3.1.2-14]", MALFORMED, "10 11 0004 4d515454 04 1e 0000 0000 0001 77 0000"),
    ("CONNECT will missing [MQTT-3.1.2-9]", MALFORMED, "10 0c 0004 4d515454 04 06 0000 0000"),
    ("CONNECT user name missing [MQTT-3.1.2-19]", MALFORMED, "10 0c 0004 4d515454 04 82 0000 0000"),
    ("CONNECT password without user name [MQTT-3.1.2-22]", MALFORMED, "10 0f 0004 4d515454 04 42 0000 0000 0001 70"),
    ("CONNECT session without identifier [MQTT-3.1.3-8]", IDENTIFIER, "10 0c 0004 4d515454 04 00 0000 0000"),
    ("CONNECT without identifier [MQTT-3.1.3-3]", MALFORMED, "10 0a 0004 4d515454 04 02 0000"),
    ("CONNECT bytes left over", MALFORMED, "10 0d 0004 4d515454 04 02 0000 0000 00"),
    ("CONNACK reserved flags [table 3.1]", MALFORMED, "20 02 02 00"),
    ("CONNACK reserved return code [table 3.1]", PROTOCOL, "20 02 00 06"),
    ("CONNACK session present on refusal [MQTT-3.2.2-4]", PROTOCOL, "20 02 01 05"),
    ("CONNACK in the form of 5", MALFORMED, "20 03 00 00 00"),
    ("PUBLISH QoS 3 [MQTT-3.3.1-4]", MALFORMED, "36 05 0001 61 0001"),
    ("PUBLISH DUP at QoS 0 [MQTT-3.3.1-2]", MALFORMED, "38 03 0001 61"),
    ("PUBLISH wildcard [MQTT-3.3.2-2]", MALFORMED, "30 03 0001 2b"),
    ("PUBLISH empty topic name [MQTT-4.7.3-1]", PROTOCOL, "30 02 0000"),
    ("PUBLISH packet identifier 0 [MQTT-2.3.1-1]", PROTOCOL, "32 05 0001 61 0000"),
    ("PUBLISH without packet identifier [MQTT-2.3.1-1]", MALFORMED, "32 03 0001 61"),
    ("PUBLISH U+0000 in the topic name [MQTT-1.5.3-2]", MALFORMED, "30 05 0003 610062"),
    ("PUBLISH surrogate in the topic name [MQTT-1.5.3-1]", MALFORMED, "30 05 0003 eda080"),
    ("PUBACK in the form of 5", MALFORMED, "40 03 000a 00"),
    ("PUBREL flags [MQTT-3.6.1-1]", MALFORMED, "60 02 0001"),
    ("PUBREL with DUP [MQTT-3.6.1-1]", MALFORMED, "6a 02 0001"),
    ("PUBCOMP too short", MALFORMED, "70 01 00"),
    ("SUBSCRIBE flags [MQTT-3.8.1-1]", MALFORMED, "80 06 0001 0001 61 00"),
    ("SUBSCRIBE without a filter [MQTT-3.8.3-3]", PROTOCOL, "82 02 0001"),
    ("SUBSCRIBE reserved bits [MQTT-3-8.3-4]", MALFORMED, "82 06 0001 0001 61 04"),
    ("SUBSCRIBE QoS 3 [MQTT-3-8.3-4]", PROTOCOL, "82 06 0001 0001 61 03"),
    ("SUBSCRIBE in the form of 5", MALFORMED, "82 07 0001 00 0001 61 00"),
    ("SUBACK without a return code", PROTOCOL, "90 02 0001"),
    ("SUBACK reserved return code [MQTT-3.9.3-2]", PROTOCOL, "90 03 0001 87"),
    ("UNSUBSCRIBE without a filter [MQTT-3.10.3-2]", PROTOCOL, "a2 02 0001"),
    ("UNSUBACK in the form of 5", MALFORMED, "b0 04 0003 00 00"),
    ("PINGRESP with a body", MALFORMED, "d0 01 00"),
    ("DISCONNECT in the form of 5", MALFORMED, "e0 01 00"),
    ("AUTH, which 3.1.1 has not [table 2.1]", MALFORMED, "f0 00"),
    ("packet type 0 [table 2.1]", MALFORMED, "00 00"),
    ("remaining length of five bytes [section 2.2.3]", MALFORMED, "30 ff ff ff ff 01"),
)
