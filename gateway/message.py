"""A message as the gateway stores it, and how it is made from a PUBLISH and becomes one again."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wire import identity, properties
from wire.bulk.property_block import memory_size
from wire.codec.packets import MQTT_5, Publish
from wire.hops import HOPS_PROPERTY
from wire.route_numbers import VIA_PROPERTY, gateway_of_via

TRAVELLING_PROPERTIES = (
    properties.PAYLOAD_FORMAT_INDICATOR,
    properties.MESSAGE_EXPIRY_INTERVAL,
    properties.CONTENT_TYPE,
    properties.RESPONSE_TOPIC,
    properties.CORRELATION_DATA,
)
"""What a Server passes on unaltered, besides user properties [MQTT-3.3.2-4, -15, -16, -17, -20]."""

OUR_PROPERTIES = (identity.IDENTITY_PROPERTY, identity.RECEIVED_PROPERTY)
REALTIME_PROPERTY = "hf-realtime"
"""The property of a real-time message between gateways; its value is "1"."""
REJECTED_SUFFIX = "-rejected"
EXPIRY_LONGEST_S = 0xFFFF_FFFF  # that a Message Expiry Interval can say [section 3.3.2.3.3]
MESSAGE_OVERHEAD = 500  # bytes in memory, roughly


@dataclass(slots=True)
class Message:
    """One message.

    ``properties`` go to subscribers; the identity and the provenance are not among them, and have fields here.
    ``origin`` is empty until the message has an identity. ``received_ms`` (unix time) and ``received_by`` say when and
    where the first gateway accepted it. ``publisher`` is the client identifier that it came from here. ``owner`` is the
    owner that it counts for (``gateway.holdings``) until it is stored.
    ``expires_ms`` (unix time, 0: never) is when its delivery may not begin any more [MQTT-3.3.2-5]; its Message Expiry
    Interval stays among ``properties`` as it was published.
    ``is_realtime``: it is of QoS 0, is not stored, and goes to all neighbours.
    ``position`` is its position in the log, once it is stored. ``halves`` are those of its PUBLISH by ``form``, as far
    as ``gateway.delivery.window`` has needed them.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: dict[int, Any] = field(default_factory=dict)
    origin: str = ""
    epoch: int = 0
    seq: int = 0
    received_ms: int = 0
    received_by: str = ""
    publisher: str = ""
    expires_ms: int = 0
    position: int = field(default=0, compare=False)
    owner: str = field(default="", compare=False, repr=False)
    halves: dict[int, tuple[bytes, bytes]] | None = field(default=None, compare=False, repr=False)
    is_realtime: bool = field(default=False, compare=False, repr=False)

    def renew(self, gateway_name: str, unix_ms: int) -> None:
        """Removes the identity, and sets the provenance as of a new message that came to this gateway at that time."""
        self.origin, self.epoch, self.seq = "", 0, 0
        self._forget_hops()
        self.received_ms, self.received_by = unix_ms, gateway_name

    def reject_links(self, may_identify: Callable[[str], bool]) -> bool:
        """Renames route numbers that cannot be read, or are of gateways whose identities the client may not bring.

        Returns whether there were any. Otherwise a client could make lost messages of a route look as if they had come.
        """
        pairs = self.properties.get(properties.USER_PROPERTY, ())
        kept = [
            (VIA_PROPERTY + REJECTED_SUFFIX, value)
            if name == VIA_PROPERTY and not _is_via(value, may_identify)
            else (name, value)
            for name, value in pairs
        ]
        if kept == list(pairs):
            return False
        self.properties[properties.USER_PROPERTY] = kept
        return True

    def has_passed(self, hop: str) -> bool:
        """Whether the gateway of this hop has handed it on."""
        pairs = self.properties.get(properties.USER_PROPERTY, ())
        return any(name == HOPS_PROPERTY and value == hop for name, value in pairs)

    def take_realtime(self) -> bool:
        """Removes the property of real-time messages; returns whether there was one, and the message is of QoS 0."""
        pairs = self.properties.get(properties.USER_PROPERTY, ())
        if self.qos or not any(name == REALTIME_PROPERTY for name, _ in pairs):
            return False
        self._keep_pairs([pair for pair in pairs if pair[0] != REALTIME_PROPERTY])
        return True

    def reject_realtime(self) -> None:
        """Renames the property of real-time messages: the client of this one may not have it sent to all neighbours."""
        pairs = self.properties.get(properties.USER_PROPERTY, ())
        if any(name == REALTIME_PROPERTY for name, _ in pairs):
            renamed = REALTIME_PROPERTY + REJECTED_SUFFIX
            self._keep_pairs([(renamed if name == REALTIME_PROPERTY else name, value) for name, value in pairs])

    def for_neighbours(self) -> "Message":
        """Returns the message with the property of real-time messages."""
        pairs = [*self.properties.get(properties.USER_PROPERTY, ()), (REALTIME_PROPERTY, "1")]
        return replace(self, properties={**self.properties, properties.USER_PROPERTY: pairs}, halves=None)

    @property
    def gateways_of_links(self) -> list[str]:
        """The gateways whose routes have numbered it, as far as their numbers can be read."""
        pairs = self.properties.get(properties.USER_PROPERTY, ())
        found = []
        for name, value in pairs:
            if name == VIA_PROPERTY:
                with contextlib.suppress(ValueError):
                    found.append(gateway_of_via(value))
        return found

    def _forget_hops(self) -> None:
        pairs = self.properties.get(properties.USER_PROPERTY, ())
        self._keep_pairs([(name, value) for name, value in pairs if name != HOPS_PROPERTY])

    def _keep_pairs(self, pairs: list[tuple[str, str]]) -> None:
        self.properties.pop(properties.USER_PROPERTY, None)
        if pairs:
            self.properties[properties.USER_PROPERTY] = pairs

    @property
    def count(self) -> int:
        """1, where a ``PublishBatch`` has more."""
        return 1

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """(), where a route's message with a column batch has the positions of the messages in it."""
        return ()

    def messages(self) -> "list[Message]":
        """Itself alone, as of a batch of one message."""
        return [self]

    @property
    def topics(self) -> tuple[str]:
        """Its topic name, as of a batch of one message."""
        return (self.topic,)

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        names = len(self.topic) + len(self.origin) + len(self.received_by) + len(self.publisher)
        return len(self.payload) + names + self.properties_size + MESSAGE_OVERHEAD

    @property
    def content_size(self) -> int:
        """The bytes that it counts for in a backlog: payload, topic name and properties."""
        size = len(self.payload) + len(self.topic)  # asked for each delivery, so it calls nothing in vain
        return size + memory_size(self.properties) if self.properties else size

    @property
    def properties_size(self) -> int:
        """About how many bytes of memory its properties take."""
        return memory_size(self.properties) if self.properties else 0


def content_sizes(messages: Sequence[Message]) -> list[int]:
    """Returns the ``content_size`` of each message, without a call for each."""
    return [
        len(one.payload) + len(one.topic) + (memory_size(one.properties) if one.properties else 0) for one in messages
    ]


def form(level: int, qos: int, has_identity: bool, has_hop: bool = False) -> int:
    """Returns a number for the form of a PUBLISH: its protocol level, its QoS, and whether it has identity and hop.

    Over MQTT 3.1.1 there is neither.
    """
    return level << 4 | qos << 2 | (level == MQTT_5 and has_hop << 1 | has_identity)


def message_from(packet: Publish, publisher: str, gateway_name: str, unix_ms: int) -> Message:
    """Returns the message of a PUBLISH, with the identity and provenance that it brings, or with our provenance.

    A user property of ours that cannot be read is passed on unaltered, under its name + ``-rejected``.
    """
    message = Message(
        packet.topic,
        bytes(packet.payload),
        packet.qos,
        packet.retain,
        {key: packet.properties[key] for key in TRAVELLING_PROPERTIES if key in packet.properties},
        publisher=publisher,
    )
    interval_s = message.properties.get(properties.MESSAGE_EXPIRY_INTERVAL)
    if interval_s is not None:
        message.expires_ms = unix_ms + 1000 * interval_s
    user_properties = [
        (name + REJECTED_SUFFIX if name in OUR_PROPERTIES else name, value)
        for name, value in packet.properties.get(properties.USER_PROPERTY, ())
        if not _take(message, name, value)
    ]
    if user_properties:
        message.properties[properties.USER_PROPERTY] = user_properties
    if message.qos and not message.origin:  # a message that has passed a gateway has an identity, but at QoS 0
        message._forget_hops()
    if not message.origin or not message.received_by:  # another gateway's message has an identity
        message.received_ms, message.received_by = unix_ms, gateway_name
    return message


def identity_properties(message: Message, identifiers: Sequence[int] = (), hop: str = "") -> dict[int, Any]:
    """Returns ``plain_properties`` with the identity and the provenance, which come last; before them a route's hop."""
    user_properties = [*message.properties.get(properties.USER_PROPERTY, ())]
    if hop:
        user_properties.append((HOPS_PROPERTY, hop))
    if message.origin:
        text = identity.encode_identity(message.origin, message.epoch, message.seq)
        user_properties.append((identity.IDENTITY_PROPERTY, text))
    received = identity.encode_received(message.received_ms, message.received_by)
    user_properties.append((identity.RECEIVED_PROPERTY, received))
    return {**plain_properties(message, identifiers), properties.USER_PROPERTY: user_properties}


def plain_properties(message: Message, identifiers: Sequence[int] = ()) -> dict[int, Any]:
    """Returns the properties of the PUBLISH that sends a message on, as they were published.

    ``identifiers`` are the Subscription Identifiers that it matches [MQTT-3.3.4-3].
    """
    travelling = dict(message.properties)
    if message.expires_ms:  # what is left of the interval [MQTT-3.3.2-6]
        left_s = -(-(message.expires_ms - int(time.time() * 1000)) // 1000)
        published_s = travelling.get(properties.MESSAGE_EXPIRY_INTERVAL, EXPIRY_LONGEST_S)
        # A clock that was set back leaves more than was published, and more than a packet can say.
        # A message whose delivery has begun goes on for a second: some brokers take 0 for "never expires".
        travelling[properties.MESSAGE_EXPIRY_INTERVAL] = min(max(1, left_s), published_s)
    if identifiers:
        travelling[properties.SUBSCRIPTION_IDENTIFIER] = list(identifiers)
    return travelling


def _take(message: Message, name: str, value: str) -> bool:
    """Sets the message's fields by a user property of ours, if it can be read and is the first of its name."""
    try:
        if name == identity.IDENTITY_PROPERTY and not message.origin:
            message.origin, message.epoch, message.seq = identity.decode_identity(value)
            return True
        if name == identity.RECEIVED_PROPERTY and not message.received_by:
            message.received_ms, message.received_by = identity.decode_received(value)
            return True
    except ValueError:
        pass
    return False


def _is_via(value: str, may_identify: Callable[[str], bool]) -> bool:
    try:
        return may_identify(gateway_of_via(value))
    except ValueError:
        return False
