"""Headers: what a message has beside name and payload, as texts by name, in the other system and back.

Identity, provenance and hops go with each message, so that it is counted once and does not come back in a circle. The
rest goes and comes as the route's keys say.
"""

import base64
import contextlib
import json
import re
from typing import Any, Literal
from urllib.parse import quote, unquote

from gateway.routes import Message, plain_properties
from wire import properties
from wire.hops import HOPS_PROPERTY
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY, decode_identity, encode_identity, encode_received

ImportHeaders = Literal["none", "type", "all"]

CONTENT_TYPE = "Content-Type"
RESPONSE_TOPIC = "mqtt-response-topic"
CORRELATION_DATA = "mqtt-correlation-data"
PAYLOAD_FORMAT = "mqtt-payload-format"
EXPIRY = "mqtt-expiry"
QOS = "mqtt-qos"
RETAIN = "mqtt-retain"
USER_PROPERTIES = "mqtt-user-properties"
"""A JSON list of pairs: user properties that cannot be headers of their own."""

OURS = (IDENTITY_PROPERTY, RECEIVED_PROPERTY, HOPS_PROPERTY)
NAME = re.compile(r"(?!(?:hf|mqtt|nats)-|content-type$)[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.IGNORECASE)
VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


def quoted(text: str) -> str:
    """Returns a text as the value of a header: with what is not ASCII, and %, as in a URL."""
    if text.isascii() and text.isprintable() and "%" not in text and text == text.strip():
        return text
    return quote(text, PRINTABLE)


def identity_of(message: Message) -> str:
    """Returns the value of `hf-id` as a header: with what is not ASCII as in a URL; "" without an identity."""
    if not message.origin:
        return ""
    return quoted(encode_identity(message.origin, message.epoch, message.seq))


def read_identity(text: str) -> str:
    """Returns the value of `hf-id` that a header has, "" if it is none."""
    try:
        identity = unquote(text, errors="strict")
        decode_identity(identity)
    except ValueError:  # UnicodeDecodeError is one
        return ""
    return identity


def encode(message: Message, hop: str, *, with_headers: bool, with_properties: bool) -> dict[str, str]:
    """Returns the headers of a message that a route exports.

    Args:
        message: the message.
        hop: the hop of this gateway, added to the others.
        with_headers: whether MQTT's own properties go.
        with_properties: whether user properties go.
    """
    pairs = message.properties.get(properties.USER_PROPERTY, ())
    hops = [value for name, value in pairs if name == HOPS_PROPERTY] if pairs else []
    headers = {
        RECEIVED_PROPERTY: quoted(encode_received(message.received_ms, message.received_by)),
        HOPS_PROPERTY: quoted(",".join([*hops, hop])) if hops else hop,
    }
    if with_headers:
        headers |= _encode_own(message)
    if with_properties and len(pairs) > len(hops):
        headers |= _encode_user_properties([pair for pair in pairs if pair[0] not in OURS])
    return headers


def _encode_own(message: Message) -> dict[str, str]:
    found = plain_properties(message)
    headers = {}
    if message.qos != 1:
        headers[QOS] = str(message.qos)
    if message.retain:
        headers[RETAIN] = "1"
    if not found:
        return headers
    for key, name in ((properties.CONTENT_TYPE, CONTENT_TYPE), (properties.RESPONSE_TOPIC, RESPONSE_TOPIC)):
        if key in found:
            headers[name] = quoted(found[key])
    for key, name in (
        (properties.PAYLOAD_FORMAT_INDICATOR, PAYLOAD_FORMAT),
        (properties.MESSAGE_EXPIRY_INTERVAL, EXPIRY),
    ):
        if key in found:
            headers[name] = str(found[key])
    if properties.CORRELATION_DATA in found:
        headers[CORRELATION_DATA] = base64.b64encode(found[properties.CORRELATION_DATA]).decode()
    return headers


def _encode_user_properties(pairs: list[tuple[str, str]]) -> dict[str, str]:
    names = [name.lower() for name, _ in pairs]  # names of headers may be compared without regard to case
    headers: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in pairs:
        if NAME.fullmatch(name) and VALUE.fullmatch(value) and names.count(name.lower()) == 1:
            headers[name] = value
        else:
            others.append((name, value))
    if others:
        headers[USER_PROPERTIES] = json.dumps(others)
    return headers


def decode(headers: dict[str, str], identity: str, mode: ImportHeaders) -> dict[int, Any]:
    """Returns the properties of a PUBLISH with what a message brought that a route imports.

    What cannot be read is passed over: the message is more than its headers.

    Args:
        headers: its headers.
        identity: the value of `hf-id`, "" for none.
        mode: which headers count, beside our own: none, the content type, or all.
    """
    by_name = {name.lower(): value for name, value in headers.items()}
    found: dict[int, Any] = {}
    pairs: list[tuple[str, str]] = []
    if mode != "none" and (content_type := by_name.get(CONTENT_TYPE.lower())):
        found[properties.CONTENT_TYPE] = unquote(content_type)
    if mode == "all":
        found |= _decode_own(by_name)
        pairs += [(name, value) for name, value in headers.items() if NAME.fullmatch(name)]
        pairs += _decode_user_properties(by_name.get(USER_PROPERTIES, "[]"))
    pairs += [(HOPS_PROPERTY, hop) for hop in filter(None, unquote(by_name.get(HOPS_PROPERTY, "")).split(","))]
    if identity:
        pairs.append((IDENTITY_PROPERTY, identity))
        if received := by_name.get(RECEIVED_PROPERTY):
            pairs.append((RECEIVED_PROPERTY, unquote(received)))
    if pairs:
        found[properties.USER_PROPERTY] = pairs
    return found


def _decode_own(by_name: dict[str, str]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    if topic := by_name.get(RESPONSE_TOPIC):
        found[properties.RESPONSE_TOPIC] = unquote(topic)
    if by_name.get(PAYLOAD_FORMAT) in ("0", "1"):
        found[properties.PAYLOAD_FORMAT_INDICATOR] = int(by_name[PAYLOAD_FORMAT])
    if re.fullmatch("[0-9]{1,9}", by_name.get(EXPIRY, "")):
        found[properties.MESSAGE_EXPIRY_INTERVAL] = int(by_name[EXPIRY])
    if data := by_name.get(CORRELATION_DATA):
        with contextlib.suppress(ValueError):
            found[properties.CORRELATION_DATA] = base64.b64decode(data, validate=True)
    return found


def _decode_user_properties(text: str) -> list[tuple[str, str]]:
    try:
        pairs = json.loads(text)
    except ValueError:
        return []
    if not isinstance(pairs, list):
        return []
    return [
        (name, value)
        for name, value in (pair for pair in pairs if isinstance(pair, list) and len(pair) == 2)
        if isinstance(name, str) and isinstance(value, str) and name not in OURS
    ]
