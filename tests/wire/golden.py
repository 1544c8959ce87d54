"""The golden packet table: MQTT 5.0 control packets byte by byte, good and bad, for the tests of both VMs.

Packets of MQTT 3.1.1 are in `golden_3_1_1`; `VERSIONS` has both.

GOOD holds (name, packet, bytes): the packet encodes to the bytes and the bytes decode to the packet.
ALSO_GOOD holds (name, packet, bytes): other bytes that decode to the packet.
BAD holds (name with the clause broken, reason code, bytes).
"""

from binascii import unhexlify

from tests.wire import golden_3_1_1
from wire import properties as p
from wire.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Auth,
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

MALFORMED, PROTOCOL, BAD_VERSION = 0x81, 0x82, 0x84
ALIAS_INVALID, TOO_LARGE = 0x94, 0x95


def _hex(text: str) -> bytes:
    return unhexlify(text.replace(" ", ""))


def _table(*rows):
    return [(name, value, _hex(text)) for name, value, text in rows]


GOOD = _table(
    # CONNECT
    ("CONNECT least", Connect("", True), "10 0d 0004 4d515454 05 02 0000 00 0000"),
    ("CONNECT keep alive", Connect("dev", False, 60), "10 10 0004 4d515454 05 00 003c 00 0003 646576"),
    (
        "CONNECT credentials",
        Connect("d", True, 10, "u", b"\x00p"),
        "10 15 0004 4d515454 05 c2 000a 00 0001 64 0001 75 0002 0070",
    ),
    (
        "CONNECT password without username [MQTT-3.1.2-18]",
        Connect("d", True, 0, None, b"p"),
        "10 11 0004 4d515454 05 42 0000 00 0001 64 0001 70",
    ),
    (
        "CONNECT properties",
        Connect(
            "d",
            properties={
                p.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF,
                p.RECEIVE_MAXIMUM: 8,
                p.MAXIMUM_PACKET_SIZE: 4096,
                p.TOPIC_ALIAS_MAXIMUM: 2,
                p.REQUEST_RESPONSE_INFORMATION: 1,
                p.REQUEST_PROBLEM_INFORMATION: 0,
                p.USER_PROPERTY: [("a", "b"), ("a", "c")],
                p.AUTHENTICATION_METHOD: "M",
                p.AUTHENTICATION_DATA: b"\x01\x02",
            },
        ),
        "10 39 0004 4d515454 05 00 0000 2b 11 ffffffff 15 0001 4d 16 0002 0102 17 00 19 01 21 0008 22 0002"
        "26 0001 61 0001 62 26 0001 61 0001 63 27 00001000 0001 64",
    ),
    (
        "CONNECT will",
        Connect("d", True, 0, None, None, Will("w/t", b"gone", 1, True, {p.WILL_DELAY_INTERVAL: 5})),
        "10 1f 0004 4d515454 05 2e 0000 00 0001 64 05 18 00000005 0003 772f74 0004 676f6e65",
    ),
    # CONNACK
    ("CONNACK success", Connack(False, 0), "20 03 00 00 00"),
    ("CONNACK session present", Connack(True, 0), "20 03 01 00 00"),
    ("CONNACK not authorized", Connack(False, 0x87), "20 03 00 87 00"),
    (
        "CONNACK properties",
        Connack(
            False,
            0,
            {
                p.SESSION_EXPIRY_INTERVAL: 60,
                p.ASSIGNED_CLIENT_IDENTIFIER: "x1",
                p.SERVER_KEEP_ALIVE: 30,
                p.RECEIVE_MAXIMUM: 20,
                p.MAXIMUM_QOS: 1,
                p.RETAIN_AVAILABLE: 0,
                p.MAXIMUM_PACKET_SIZE: 65536,
                p.WILDCARD_SUBSCRIPTION_AVAILABLE: 1,
                p.SUBSCRIPTION_IDENTIFIERS_AVAILABLE: 0,
                p.SHARED_SUBSCRIPTION_AVAILABLE: 1,
                p.RESPONSE_INFORMATION: "r",
                p.SERVER_REFERENCE: "s",
                p.REASON_STRING: "ok",
            },
        ),
        "20 2f 00 00 2c 11 0000003c 12 0002 7831 13 001e 1a 0001 72 1c 0001 73 1f 0002 6f6b 21 0014 24 01"
        "25 00 27 00010000 28 01 29 00 2a 01",
    ),
    # PUBLISH
    ("PUBLISH QoS 0", Publish("a/b", b"hi"), "30 08 0003 612f62 00 6869"),
    ("PUBLISH empty payload, retain", Publish("a", b"", retain=True), "31 04 0001 61 00"),
    ("PUBLISH QoS 1", Publish("a", b"x", 1, packet_identifier=10), "32 07 0001 61 000a 00 78"),
    ("PUBLISH QoS 1 again", Publish("a", b"x", 1, dup=True, packet_identifier=65535), "3a 07 0001 61 ffff 00 78"),
    ("PUBLISH QoS 2, retain", Publish("a", b"x", 2, True, True, packet_identifier=1), "3d 07 0001 61 0001 00 78"),
    (
        "PUBLISH properties",
        Publish(
            "t",
            b"[]",
            1,
            packet_identifier=2,
            properties={
                p.PAYLOAD_FORMAT_INDICATOR: 1,
                p.MESSAGE_EXPIRY_INTERVAL: 256,
                p.CONTENT_TYPE: "j",
                p.RESPONSE_TOPIC: "r/t",
                p.CORRELATION_DATA: b"\x00",
                p.SUBSCRIPTION_IDENTIFIER: [1, 128],
                p.TOPIC_ALIAS: 3,
                p.USER_PROPERTY: [("hf-id", "0000000a/1/d")],
            },
        ),
        "32 3b 0001 74 0002 33 01 01 02 00000100 03 0001 6a 08 0003 722f74 09 0001 00 0b 01 0b 8001 23 0003"
        "26 0005 68662d6964 000c 30303030303030612f312f64 5b5d",
    ),
    ("PUBLISH by alias alone", Publish("", b"x", properties={p.TOPIC_ALIAS: 1}), "30 07 0000 03 23 0001 78"),
    ("PUBLISH non-ASCII topic", Publish("é/𝄞", b""), "30 0a 0007 c3a92ff09d849e 00"),
    ("PUBLISH with a two-byte length", Publish("a", b"\x55" * 200), "30 cc01 0001 61 00" + "55" * 200),
    # Acknowledgements
    ("PUBACK", Puback(10), "40 02 000a"),
    ("PUBACK no matching subscribers", Puback(10, 0x10), "40 03 000a 10"),
    (
        "PUBACK quota exceeded with reason",
        Puback(1, 0x97, {p.REASON_STRING: "full"}),
        "40 0b 0001 97 07 1f 0004 66756c6c",
    ),
    ("PUBREC", Pubrec(1), "50 02 0001"),
    ("PUBREL", Pubrel(1), "62 02 0001"),
    ("PUBREL identifier not found", Pubrel(1, 0x92), "62 03 0001 92"),
    ("PUBCOMP", Pubcomp(256), "70 02 0100"),
    # SUBSCRIBE and its kin
    ("SUBSCRIBE", Subscribe(1, [("a/#", 1)]), "82 09 0001 00 0003 612f23 01"),
    (
        "SUBSCRIBE options and identifier",
        Subscribe(2, [("+", 0x2E), ("$share/g/x", 2)], {p.SUBSCRIPTION_IDENTIFIER: [268435455]}),
        "82 19 0002 05 0b ffffff7f 0001 2b 2e 000a 2473686172652f672f78 02",
    ),
    ("SUBACK", Suback(1, [0, 1, 2, 0x80]), "90 07 0001 00 00 01 02 80"),
    ("UNSUBSCRIBE", Unsubscribe(3, ["a", "b/+"]), "a2 0b 0003 00 0001 61 0003 622f2b"),
    ("UNSUBACK", Unsuback(3, [0, 0x11]), "b0 05 0003 00 00 11"),
    # The rest
    ("PINGREQ", Pingreq(), "c0 00"),
    ("PINGRESP", Pingresp(), "d0 00"),
    ("DISCONNECT", Disconnect(), "e0 00"),
    ("DISCONNECT with will", Disconnect(4), "e0 01 04"),
    ("DISCONNECT server moved", Disconnect(0x9D, {p.SERVER_REFERENCE: "h"}), "e0 06 9d 04 1c 0001 68"),
    ("DISCONNECT new expiry", Disconnect(0, {p.SESSION_EXPIRY_INTERVAL: 1}), "e0 07 00 05 11 00000001"),
    (
        "AUTH",
        Auth(0x18, {p.AUTHENTICATION_METHOD: "M", p.AUTHENTICATION_DATA: b"d"}),
        "f0 0a 18 08 15 0001 4d 16 0001 64",
    ),
)

ALSO_GOOD = _table(
    ("PUBACK with a reason said in full", Puback(1), "40 03 0001 00"),
    ("PUBACK with empty properties", Puback(1), "40 04 0001 00 00"),
    ("DISCONNECT with a reason said in full", Disconnect(), "e0 01 00"),
    ("DISCONNECT with empty properties", Disconnect(), "e0 02 00 00"),
    ("a string may begin with U+FEFF [MQTT-1.5.4-3]", Publish("\ufeff", b""), "30 06 0003 efbbbf 00"),
    # The SUBACK refuses an ill-formed filter, not the connection.
    ("SUBSCRIBE # not last [MQTT-4.7.1-1]", Subscribe(1, [("#/a", 0)]), "82 09 0001 00 0003 232f61 00"),
    ("SUBSCRIBE + not alone [MQTT-4.7.1-2]", Subscribe(1, [("a+", 0)]), "82 08 0001 00 0002 612b 00"),
    (
        "SUBSCRIBE share name empty [MQTT-4.8.2-1]",
        Subscribe(1, [("$share//x", 0)]),
        "82 0f 0001 00 0009 2473686172652f2f78 00",
    ),
    (
        "SUBSCRIBE share without filter [MQTT-4.8.2-2]",
        Subscribe(1, [("$share/g", 0)]),
        "82 0e 0001 00 0008 2473686172652f67 00",
    ),
)

BAD = _table(
    # Fixed header
    ("packet type 0", MALFORMED, "00 00"),
    ("CONNECT flags [MQTT-2.1.3-1]", MALFORMED, "11 0d 0004 4d515454 05 02 0000 00 0000"),
    ("CONNACK flags [MQTT-2.1.3-1]", MALFORMED, "21 03 00 00 00"),
    ("PUBACK flags [MQTT-2.1.3-1]", MALFORMED, "41 02 000a"),
    ("PUBREL flags [MQTT-3.6.1-1]", MALFORMED, "60 02 0001"),
    ("SUBSCRIBE flags [MQTT-3.8.1-1]", MALFORMED, "80 09 0001 00 0003 612f23 01"),
    ("UNSUBSCRIBE flags [MQTT-3.10.1-1]", MALFORMED, "a0 06 0003 00 0001 61"),
    ("PINGREQ flags [MQTT-2.1.3-1]", MALFORMED, "c1 00"),
    ("DISCONNECT flags [MQTT-3.14.1-1]", MALFORMED, "e1 00"),
    ("AUTH flags [MQTT-3.15.1-1]", MALFORMED, "f8 00"),
    ("remaining length of five bytes", MALFORMED, "30 ff ff ff ff 01"),
    ("remaining length longer than need be [MQTT-1.5.5-1]", MALFORMED, "c0 80 00"),
    ("PINGREQ with a body", MALFORMED, "c0 01 00"),
    # CONNECT
    ("CONNECT other protocol name [MQTT-3.1.2-1]", MALFORMED, "10 0d 0004 4d515455 05 02 0000 00 0000"),
    ("CONNECT version 3 named MQTT [MQTT-3.1.2-2]", BAD_VERSION, "10 0c 0004 4d515454 03 02 0000 0000"),
    ("CONNECT version 6 [MQTT-3.1.2-2]", BAD_VERSION, "10 0d 0004 4d515454 06 02 0000 00 0000"),
    ("CONNECT MQIsdp of version 4 [MQTT-3.1.2-2]", BAD_VERSION, "10 0e 0006 4d5149736470 04 02 0000 0000"),
    ("CONNECT MQTT of version 3 [MQTT-3.1.2-2]", BAD_VERSION, "10 0c 0004 4d515454 03 02 0000 0000"),
    ("CONNECT bridge of version 5 [MQTT-3.1.2-2]", BAD_VERSION, "10 0d 0004 4d515454 85 02 0000 00 0000"),
    ("SUBSCRIBE empty filter [MQTT-4.7.3-1]", MALFORMED, "82 06 0001 00 0000 00"),
    ("SUBSCRIBE second filter empty [MQTT-4.7.3-1]", MALFORMED, "82 0a 0001 00 0001 61 00 0000 00"),
    ("UNSUBSCRIBE empty filter [MQTT-4.7.3-1]", MALFORMED, "a2 05 0001 00 0000"),
    ("CONNECT reserved flag [MQTT-3.1.2-3]", MALFORMED, "10 0d 0004 4d515454 05 03 0000 00 0000"),
    ("CONNECT will QoS without will [MQTT-3.1.2-11]", MALFORMED, "10 0d 0004 4d515454 05 0a 0000 00 0000"),
    ("CONNECT will retain without will [MQTT-3.1.2-13]", MALFORMED, "10 0d 0004 4d515454 05 22 0000 00 0000"),
    ("CONNECT will QoS 3 [MQTT-3.1.2-12]", MALFORMED, "10 13 0004 4d515454 05 1e 0000 00 0000 00 0001 77 0000"),
    ("CONNECT will topic with wildcard", MALFORMED, "10 13 0004 4d515454 05 06 0000 00 0000 00 0001 23 0000"),
    ("CONNECT will missing [MQTT-3.1.3-1]", MALFORMED, "10 0d 0004 4d515454 05 06 0000 00 0000"),
    ("CONNECT username missing [MQTT-3.1.3-1]", MALFORMED, "10 0d 0004 4d515454 05 82 0000 00 0000"),
    ("CONNECT password missing [MQTT-3.1.3-1]", MALFORMED, "10 0d 0004 4d515454 05 42 0000 00 0000"),
    ("CONNECT no client identifier [MQTT-3.1.3-3]", MALFORMED, "10 0b 0004 4d515454 05 02 0000 00"),
    ("CONNECT bytes left over", MALFORMED, "10 0e 0004 4d515454 05 02 0000 00 0000 00"),
    ("CONNECT cut off", MALFORMED, "10 05 0004 4d5154"),
    ("CONNECT Receive Maximum 0 [section 3.1.2.11.3]", PROTOCOL, "10 10 0004 4d515454 05 02 0000 03 21 0000 0000"),
    (
        "CONNECT Maximum Packet Size 0 [section 3.1.2.11.4]",
        PROTOCOL,
        "10 12 0004 4d515454 05 02 0000 05 27 00000000 0000",
    ),
    (
        "CONNECT Request Problem Information 2 [section 3.1.2.11.7]",
        PROTOCOL,
        "10 0f 0004 4d515454 05 02 0000 02 17 02 0000",
    ),
    (
        "CONNECT authentication data alone [section 3.1.2.11.10]",
        PROTOCOL,
        "10 11 0004 4d515454 05 02 0000 04 16 0001 00 0000",
    ),
    (
        "CONNECT session expiry twice [section 3.1.2.11.2]",
        PROTOCOL,
        "10 17 0004 4d515454 05 02 0000 0a 11 00000001 11 00000001 0000",
    ),
    ("CONNECT with a property of PUBLISH [section 2.2.2.2]", MALFORMED, "10 0f 0004 4d515454 05 02 0000 02 01 01 0000"),
    # CONNACK
    ("CONNACK reserved flags [MQTT-3.2.2-1]", MALFORMED, "20 03 02 00 00"),
    ("CONNACK session present on refusal [MQTT-3.2.2-6]", PROTOCOL, "20 03 01 87 00"),
    ("CONNACK unknown reason [MQTT-3.2.2-8]", PROTOCOL, "20 03 00 02 00"),
    ("CONNACK with a return code of MQTT 3.1.1 [3.1.1 MQTT-3.1.2-2]", BAD_VERSION, "20 03 00 01 00"),
    ("CONNACK of MQTT 3.1.1, without properties", BAD_VERSION, "20 02 00 00"),
    ("CONNACK Maximum QoS 2 [section 3.2.2.3.4]", PROTOCOL, "20 05 00 00 02 24 02"),
    ("CONNACK Receive Maximum 0 [section 3.2.2.3.3]", PROTOCOL, "20 06 00 00 03 21 0000"),
    ("CONNACK bytes left over", MALFORMED, "20 04 00 00 00 00"),
    # PUBLISH
    ("PUBLISH QoS 3 [MQTT-3.3.1-4]", MALFORMED, "36 06 0001 61 0001 00"),
    ("PUBLISH DUP at QoS 0 [MQTT-3.3.1-2]", MALFORMED, "38 04 0001 61 00"),
    ("PUBLISH packet identifier 0 [MQTT-2.2.1-3]", PROTOCOL, "32 06 0001 61 0000 00"),
    ("PUBLISH + in the topic name [MQTT-3.3.2-2]", MALFORMED, "30 04 0001 2b 00"),
    ("PUBLISH # in the topic name [MQTT-3.3.2-2]", MALFORMED, "30 06 0003 612f23 00"),
    ("PUBLISH neither topic nor alias [section 3.3.2.1]", PROTOCOL, "30 03 0000 00"),
    ("PUBLISH U+0000 in the topic name [MQTT-1.5.4-2]", MALFORMED, "30 06 0003 610062 00"),
    ("PUBLISH surrogate in the topic name [MQTT-1.5.4-1]", MALFORMED, "30 06 0003 eda080 00"),
    ("PUBLISH overlong topic name [MQTT-1.5.4-1]", MALFORMED, "30 05 0002 c0af 00"),
    ("PUBLISH topic name beyond Unicode [MQTT-1.5.4-1]", MALFORMED, "30 07 0004 f4908080 00"),
    ("PUBLISH topic name not UTF-8 [MQTT-1.5.4-1]", MALFORMED, "30 04 0001 ff 00"),
    ("PUBLISH topic name cut off", MALFORMED, "30 03 0005 61"),
    ("PUBLISH without packet identifier [MQTT-2.2.1-3]", MALFORMED, "32 04 0001 61 00"),
    ("PUBLISH without properties", MALFORMED, "30 03 0001 61"),
    ("PUBLISH Topic Alias 0 [MQTT-3.3.2-8]", ALIAS_INVALID, "30 07 0001 61 03 23 0000"),
    ("PUBLISH Topic Alias twice [section 3.3.2.3.4]", PROTOCOL, "30 0a 0001 61 06 23 0001 23 0001"),
    ("PUBLISH payload format 2 [section 3.3.2.3.2]", PROTOCOL, "30 06 0001 61 02 01 02"),
    ("PUBLISH response topic with wildcard [MQTT-3.3.2-14]", PROTOCOL, "30 08 0001 61 04 08 0001 23"),
    ("PUBLISH subscription identifier 0 [section 3.3.2.3.8]", PROTOCOL, "30 06 0001 61 02 0b 00"),
    ("PUBLISH unknown property [section 2.2.2.2]", MALFORMED, "30 06 0001 61 02 7f 00"),
    ("PUBLISH property identifier of two bytes", MALFORMED, "30 07 0001 61 03 8101 00"),
    ("PUBLISH properties longer than the packet", MALFORMED, "30 06 0001 61 05 01 01"),
    ("PUBLISH property crosses their end", MALFORMED, "30 09 0001 61 02 02 00000001"),
    ("PUBLISH user property cut off", MALFORMED, "30 08 0001 61 04 26 0001 61"),
    # Acknowledgements
    ("PUBACK packet identifier 0 [MQTT-2.2.1-3]", PROTOCOL, "40 02 0000"),
    ("PUBACK too short", MALFORMED, "40 01 00"),
    ("PUBACK unknown reason [MQTT-3.4.2-1]", PROTOCOL, "40 03 0001 01"),
    ("PUBACK bytes left over", MALFORMED, "40 05 0001 00 00 00"),
    ("PUBREL reason of PUBACK [MQTT-3.6.2-1]", PROTOCOL, "62 03 0001 97"),
    ("PUBACK content type [section 2.2.2.2]", MALFORMED, "40 08 0001 00 04 03 0001 61"),
    ("PUBACK reason string twice [section 3.4.2.2.2]", PROTOCOL, "40 0a 0001 00 06 1f 0000 1f 0000"),
    # SUBSCRIBE and its kin
    ("SUBSCRIBE without a filter [MQTT-3.8.3-2]", PROTOCOL, "82 03 0001 00"),
    ("SUBSCRIBE packet identifier 0 [MQTT-2.2.1-3]", PROTOCOL, "82 07 0000 00 0001 61 00"),
    ("SUBSCRIBE reserved options [MQTT-3.8.3-5]", MALFORMED, "82 07 0001 00 0001 61 40"),
    ("SUBSCRIBE QoS 3 [section 3.8.3.1]", PROTOCOL, "82 07 0001 00 0001 61 03"),
    ("SUBSCRIBE retain handling 3 [section 3.8.3.1]", PROTOCOL, "82 07 0001 00 0001 61 30"),
    ("SUBSCRIBE shared with no local [MQTT-3.8.3-4]", PROTOCOL, "82 10 0001 00 000a 2473686172652f672f78 04"),
    ("SUBSCRIBE without options [section 3.8.3.1]", MALFORMED, "82 06 0001 00 0001 61"),
    ("SUBSCRIBE identifier twice [section 3.8.2.1.2]", PROTOCOL, "82 0b 0001 04 0b 01 0b 02 0001 61 00"),
    ("SUBSCRIBE identifier 0 [section 3.8.2.1.2]", PROTOCOL, "82 09 0001 02 0b 00 0001 61 00"),
    ("SUBACK without reasons", PROTOCOL, "90 03 0001 00"),
    ("SUBACK unknown reason [MQTT-3.9.3-2]", PROTOCOL, "90 04 0001 00 03"),
    ("UNSUBSCRIBE without a filter [MQTT-3.10.3-2]", PROTOCOL, "a2 03 0001 00"),
    ("UNSUBSCRIBE filter cut off", MALFORMED, "a2 05 0001 00 0002"),
    ("UNSUBACK unknown reason [MQTT-3.11.3-1]", PROTOCOL, "b0 04 0001 00 01"),
    # The rest
    ("DISCONNECT unknown reason [MQTT-3.14.2-1]", PROTOCOL, "e0 01 01"),
    ("DISCONNECT bytes left over", MALFORMED, "e0 03 00 00 00"),
    ("AUTH unknown reason [MQTT-3.15.2-1]", PROTOCOL, "f0 02 01 00"),
    ("AUTH data without method [section 3.15.2.2.3]", PROTOCOL, "f0 06 18 04 16 0001 00"),
)

VERSIONS = ((MQTT_5, GOOD, ALSO_GOOD, BAD), (MQTT_3_1_1, golden_3_1_1.GOOD, golden_3_1_1.ALSO_GOOD, golden_3_1_1.BAD))
