"""MQTT 5 properties (section 2.2.2): a dict from identifier to value.

The value of USER_PROPERTY is a list of (name, value), the value of SUBSCRIPTION_IDENTIFIER a list of int, because these
may occur more than once.
"""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    WILL,
)
from wire.primitives import Reader, encode_binary, encode_integer, encode_string, encode_varint, malformed
from wire.reasons import PROTOCOL_ERROR, QUOTA_EXCEEDED, TOPIC_ALIAS_INVALID

PAYLOAD_FORMAT_INDICATOR = 0x01
MESSAGE_EXPIRY_INTERVAL = 0x02
CONTENT_TYPE = 0x03
RESPONSE_TOPIC = 0x08
CORRELATION_DATA = 0x09
SUBSCRIPTION_IDENTIFIER = 0x0B
SESSION_EXPIRY_INTERVAL = 0x11
ASSIGNED_CLIENT_IDENTIFIER = 0x12
SERVER_KEEP_ALIVE = 0x13
AUTHENTICATION_METHOD = 0x15
AUTHENTICATION_DATA = 0x16
REQUEST_PROBLEM_INFORMATION = 0x17
WILL_DELAY_INTERVAL = 0x18
REQUEST_RESPONSE_INFORMATION = 0x19
RESPONSE_INFORMATION = 0x1A
SERVER_REFERENCE = 0x1C
REASON_STRING = 0x1F
RECEIVE_MAXIMUM = 0x21
TOPIC_ALIAS_MAXIMUM = 0x22
TOPIC_ALIAS = 0x23
MAXIMUM_QOS = 0x24
RETAIN_AVAILABLE = 0x25
USER_PROPERTY = 0x26
MAXIMUM_PACKET_SIZE = 0x27
WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
SUBSCRIPTION_IDENTIFIERS_AVAILABLE = 0x29
SHARED_SUBSCRIPTION_AVAILABLE = 0x2A

_FLAG, _U16, _U32, _VARINT, _STRING, _BINARY, _PAIR = range(7)


def _rule(kind: int, *packet_types: int) -> int:
    return kind << 16 | sum([1 << packet_type for packet_type in packet_types])


# identifier: its kind, then a bit for each packet type that may have it (table 2-4); tuples would need more memory
_RULES = {
    PAYLOAD_FORMAT_INDICATOR: _rule(_FLAG, PUBLISH, WILL),
    MESSAGE_EXPIRY_INTERVAL: _rule(_U32, PUBLISH, WILL),
    CONTENT_TYPE: _rule(_STRING, PUBLISH, WILL),
    RESPONSE_TOPIC: _rule(_STRING, PUBLISH, WILL),
    CORRELATION_DATA: _rule(_BINARY, PUBLISH, WILL),
    SUBSCRIPTION_IDENTIFIER: _rule(_VARINT, PUBLISH, SUBSCRIBE),
    SESSION_EXPIRY_INTERVAL: _rule(_U32, CONNECT, CONNACK, DISCONNECT),
    ASSIGNED_CLIENT_IDENTIFIER: _rule(_STRING, CONNACK),
    SERVER_KEEP_ALIVE: _rule(_U16, CONNACK),
    AUTHENTICATION_METHOD: _rule(_STRING, CONNECT, CONNACK, AUTH),
    AUTHENTICATION_DATA: _rule(_BINARY, CONNECT, CONNACK, AUTH),
    REQUEST_PROBLEM_INFORMATION: _rule(_FLAG, CONNECT),
    WILL_DELAY_INTERVAL: _rule(_U32, WILL),
    REQUEST_RESPONSE_INFORMATION: _rule(_FLAG, CONNECT),
    RESPONSE_INFORMATION: _rule(_STRING, CONNACK),
    SERVER_REFERENCE: _rule(_STRING, CONNACK, DISCONNECT),
    REASON_STRING: _rule(_STRING, CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH),
    RECEIVE_MAXIMUM: _rule(_U16, CONNECT, CONNACK),
    TOPIC_ALIAS_MAXIMUM: _rule(_U16, CONNECT, CONNACK),
    TOPIC_ALIAS: _rule(_U16, PUBLISH),
    MAXIMUM_QOS: _rule(_FLAG, CONNACK),
    RETAIN_AVAILABLE: _rule(_FLAG, CONNACK),
    USER_PROPERTY: _PAIR << 16 | 0xFFFF,
    MAXIMUM_PACKET_SIZE: _rule(_U32, CONNECT, CONNACK),
    WILDCARD_SUBSCRIPTION_AVAILABLE: _rule(_FLAG, CONNACK),
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE: _rule(_FLAG, CONNACK),
    SHARED_SUBSCRIPTION_AVAILABLE: _rule(_FLAG, CONNACK),
}


VALUES_MAX = 10_000


def decode_properties(reader: Reader, packet_type: int) -> dict:
    """Decodes the properties at `reader`; `packet_type` (or WILL) says which ones are allowed.

    Raises RemoteProtocolError: 0x81 for a property that is unknown, cut off or not allowed in this packet [section
    2.2.2.2], 0x82 for one that occurs twice or has a value that the standard forbids, 0x94 for topic alias 0, 0x97 for
    more than VALUES_MAX user properties or subscription identifiers, because all of them are kept in memory.
    """
    length = reader.varint()
    properties: dict = {}
    if length == 0:
        return properties
    end = reader.offset + length
    while reader.offset < end:
        identifier = reader.byte()  # a variable byte integer, but all existing identifiers fit into one byte
        rule = _RULES.get(identifier, 0)
        kind = rule >> 16
        if not rule >> packet_type & 1:
            raise malformed(f"property 0x{identifier:02x} may not stand in packet type {packet_type}")
        value = _decode_value(reader, kind)
        fault = None if kind == _PAIR else _fault(identifier, kind, value)
        if fault:
            reason_code = TOPIC_ALIAS_INVALID if identifier == TOPIC_ALIAS else PROTOCOL_ERROR
            raise RemoteProtocolError(reason_code, fault)
        if kind == _PAIR or (kind == _VARINT and packet_type == PUBLISH):
            values = properties.setdefault(identifier, [])
            if len(values) == VALUES_MAX:
                raise RemoteProtocolError(QUOTA_EXCEEDED, f"property 0x{identifier:02x} more than {VALUES_MAX} times")
            values.append(value)
        elif identifier in properties:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"property 0x{identifier:02x} stands twice")
        else:
            properties[identifier] = [value] if kind == _VARINT else value
    if reader.offset != end:
        raise malformed("a property crosses the end of the properties")
    if AUTHENTICATION_DATA in properties and AUTHENTICATION_METHOD not in properties:
        raise RemoteProtocolError(PROTOCOL_ERROR, "authentication data without an authentication method")
    return properties


def _decode_value(reader: Reader, kind: int):
    if kind == _STRING:
        return reader.string()
    if kind == _PAIR:
        return (reader.string(), reader.string())
    if kind == _FLAG:
        return reader.byte()
    if kind == _U16:
        return reader.u16()
    if kind == _U32:
        return reader.u32()
    if kind == _VARINT:
        return reader.varint()
    return reader.binary()


def _fault(identifier: int, kind: int, value) -> str | None:
    """Returns why the standard forbids this value; None if it allows it."""
    if kind == _FLAG and value > 1:
        return f"property 0x{identifier:02x} is {value}, not 0 or 1"
    if identifier == RESPONSE_TOPIC and ("+" in value or "#" in value):
        return "a response topic holds a wildcard [MQTT-3.3.2-14]"
    if value == 0 and identifier in (SUBSCRIPTION_IDENTIFIER, RECEIVE_MAXIMUM, TOPIC_ALIAS, MAXIMUM_PACKET_SIZE):
        return f"property 0x{identifier:02x} may not be 0"
    return None


def encode_properties(properties: dict | None, packet_type: int) -> bytes:
    """Encodes properties with their length. Raises LocalProtocolError for any that `decode_properties` would refuse."""
    if not properties:
        return b"\0"
    parts = []
    for identifier in sorted(properties):  # MicroPython's dict keeps no order
        value = properties[identifier]
        rule = _RULES.get(identifier, 0)
        kind = rule >> 16
        if not rule >> packet_type & 1:
            raise LocalProtocolError(f"property 0x{identifier:02x} may not stand in packet type {packet_type}")
        for one in value if kind in (_PAIR, _VARINT) else (value,):
            fault = _fault(identifier, kind, one)
            if fault:
                raise LocalProtocolError(fault)
            parts.append(bytes((identifier,)))
            parts.append(_encode_value(kind, one))
    encoded = b"".join(parts)
    return encode_varint(len(encoded)) + encoded


def _encode_value(kind: int, value) -> bytes:
    if kind == _STRING:
        return encode_string(value)
    if kind == _PAIR:
        return encode_string(value[0]) + encode_string(value[1])
    if kind == _FLAG:
        return encode_integer(value, 1)
    if kind == _U16:
        return encode_integer(value, 2)
    if kind == _U32:
        return encode_integer(value, 4)
    if kind == _VARINT:
        return encode_varint(value)
    return encode_binary(value)
