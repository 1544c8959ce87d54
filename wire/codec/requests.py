"""How a server decodes the packets that only clients send: CONNECT, SUBSCRIBE, UNSUBSCRIBE.

See sections 3.1, 3.8 and 3.10.
"""

from wire.codec import MQTT_3_1_1, MQTT_5, check_packet_identifier, read_properties
from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.auth import Auth
from wire.codec.connect import (
    CLEAN_START,
    HAS_PASSWORD,
    HAS_USERNAME,
    HAS_WILL,
    WILL_QOS,
    WILL_RETAIN,
    Connect,
    Will,
)
from wire.codec.control import Disconnect, Pingreq
from wire.codec.publish import Publish
from wire.codec.subscribe import Subscribe, Unsubscribe, options_fault, reserved_options
from wire.errors import RemoteProtocolError, WireError
from wire.packet_types import CONNECT, SUBSCRIBE, UNSUBSCRIBE, WILL
from wire.primitives import Reader, malformed
from wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, PROTOCOL_ERROR, QUOTA_EXCEEDED, UNSUPPORTED_PROTOCOL_VERSION
from wire.topics import check_topic_name

MQTT_3_1 = 3  # the level byte of MQTT 3.1, which is served like 3.1.1
BRIDGE = 0x80  # a bridge of mosquitto sets this bit in the level byte
FILTERS_MAX = 10_000  # the most topic filters in one packet; all are in memory at once
LEVELS = {"MQTT": (MQTT_3_1_1, MQTT_3_1_1 | BRIDGE, MQTT_5), "MQIsdp": (MQTT_3_1, MQTT_3_1 | BRIDGE)}
"""The level bytes that a server accepts for each protocol name."""


def decode_connect(flags: int, body: bytes, level: int) -> Connect:
    """Decodes a CONNECT. Its version comes from the packet itself, so `level` is ignored."""
    reader = Reader(body)
    level_byte = _read_level(reader)
    level = MQTT_5 if level_byte == MQTT_5 else MQTT_3_1_1
    try:
        return _decode_connect(reader, flags, level, 0 if level_byte == level else level_byte)
    except RemoteProtocolError as error:
        error.protocol_level = level
        raise


def _decode_connect(reader: Reader, header_flags: int, level: int, level_byte: int) -> Connect:
    is_3_1 = level_byte & ~BRIDGE == MQTT_3_1
    if header_flags and not is_3_1:
        raise malformed(f"a CONNECT has flags 0x{header_flags:x} in its fixed header [MQTT-2.1.3-1]")
    flags = reader.byte()
    if flags & 1 and not is_3_1:
        raise malformed("a CONNECT has its reserved flag set [MQTT-3.1.2-3]")
    clean_start = flags & CLEAN_START != 0
    keep_alive_s = reader.u16()
    properties = read_properties(reader, CONNECT, level)
    client_id = reader.string()
    will = _decode_will(reader, flags, level)
    if is_3_1 and reader.at_end():
        flags &= ~(HAS_USERNAME | HAS_PASSWORD)  # MQTT 3.1 allows these flags without the fields
    username = reader.string() if flags & HAS_USERNAME else None
    password = reader.binary() if flags & HAS_PASSWORD else None
    reader.finish()
    if level == MQTT_3_1_1:
        if password is not None and username is None:
            raise malformed("a CONNECT has a password without a user name [3.1.1 MQTT-3.1.2-22]")
        if not client_id and (is_3_1 or not clean_start):
            text = "no client identifier, which MQTT 3.1 and a session that is kept need [3.1.1 MQTT-3.1.3-8]"
            raise RemoteProtocolError(CLIENT_IDENTIFIER_NOT_VALID, text)
    packet = Connect(client_id, clean_start, keep_alive_s, username, password, will, properties, level)
    packet.level_byte = level_byte
    return packet


def _read_level(reader: Reader) -> int:
    name = reader.string()
    if name not in LEVELS:
        raise malformed(f"protocol name {name!r} is not MQTT [MQTT-3.1.2-1]")
    level = reader.byte()
    if level not in LEVELS[name]:
        text = f"protocol level {level} of {name} is not 3.1, 3.1.1 or 5 [MQTT-3.1.2-2]"
        error = RemoteProtocolError(UNSUPPORTED_PROTOCOL_VERSION, text)
        if level & ~BRIDGE < MQTT_5:  # older clients read the CONNACK of 3.1.1
            error.protocol_level = MQTT_3_1_1
        raise error
    return level


def _decode_will(reader: Reader, flags: int, level: int) -> Will | None:
    qos = (flags & WILL_QOS) >> 3
    retain = flags & WILL_RETAIN != 0
    if not flags & HAS_WILL:
        if qos or retain:
            raise malformed("a CONNECT without a will has will flags [MQTT-3.1.2-11, MQTT-3.1.2-13]")
        return None
    if qos == 3:
        raise malformed("a will has QoS 3 [MQTT-3.1.2-12]")
    properties = read_properties(reader, WILL, level)
    topic = reader.string()
    try:
        check_topic_name(topic)
    except WireError as error:
        raise malformed(f"will: {error}")
    return Will(topic, reader.binary(), qos, retain, properties)


def decode_subscribe(flags: int, body: bytes, level: int) -> Subscribe:
    """Decodes a SUBSCRIBE. An empty topic filter makes the packet malformed.

    A filter with another fault is not an error here: the SUBACK refuses it, and the other filters are served.
    """
    reader = Reader(body)
    packet_identifier = check_packet_identifier(reader.u16())
    properties = read_properties(reader, SUBSCRIBE, level)
    filters = []
    while not reader.at_end():
        topic_filter = _read_filter(reader)
        options = reader.byte()
        if options & reserved_options(level):
            raise malformed("subscription options have reserved bits set [MQTT-3.8.3-5]")
        fault = options_fault(topic_filter, options)
        if fault:
            raise RemoteProtocolError(PROTOCOL_ERROR, fault)
        filters.append((topic_filter, options))
        _check_count(filters)
    if not filters:
        raise RemoteProtocolError(PROTOCOL_ERROR, "a SUBSCRIBE has no filter [MQTT-3.8.3-2]")
    return Subscribe(packet_identifier, filters, properties)


def _check_count(filters: list) -> None:
    if len(filters) > FILTERS_MAX:
        raise RemoteProtocolError(QUOTA_EXCEEDED, f"more than {FILTERS_MAX} filters in one packet")


def decode_unsubscribe(flags: int, body: bytes, level: int) -> Unsubscribe:
    """Decodes an UNSUBSCRIBE; topic filters are treated as in `decode_subscribe`."""
    reader = Reader(body)
    packet_identifier = check_packet_identifier(reader.u16())
    properties = read_properties(reader, UNSUBSCRIBE, level)
    filters = []
    while not reader.at_end():
        filters.append(_read_filter(reader))
        _check_count(filters)
    if not filters:
        raise RemoteProtocolError(PROTOCOL_ERROR, "an UNSUBSCRIBE has no filter [MQTT-3.10.3-2]")
    return Unsubscribe(packet_identifier, filters, properties)


def _read_filter(reader: Reader) -> str:
    topic_filter = reader.string()
    if not topic_filter:
        raise malformed("a topic filter is empty [MQTT-4.7.3-1]")
    return topic_filter


TO_SERVER: dict = {
    kind.TYPE: kind.decode for kind in (Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingreq, Disconnect, Auth)
}
"""The packets that a server reads."""

TO_SERVER.update({CONNECT: decode_connect, SUBSCRIBE: decode_subscribe, UNSUBSCRIBE: decode_unsubscribe})
