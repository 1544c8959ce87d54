"""What is on its way to one other end: room in the window and on the line, and what an acknowledgement means."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from operator import is_
from typing import Any, Protocol

from gateway.counters import Counters
from gateway.loop.pace import LineRoom, Shift
from gateway.loop.signals import Signal
from gateway.message import Message, form, identity_properties, plain_properties
from gateway.store import Delivery, DeliveryRun, Grant, MessageLog, Outgoing, Work, drops, qos2
from gateway.streams.naming import Naming
from wire.bulk.connection import BulkConnection
from wire.bulk.property_block import encode_block, encode_identified_block
from wire.bulk.publishes import fill_in, join_publishes, lay_out, split_publish
from wire.codec.packets import MQTT_5
from wire.errors import PacketTooLargeError

Finish = Callable[[list[int]], None]

PLAIN = Grant(1)
LAID_OUT_MAX = 128 * 1024  # bytes of PUBLISHes that are kept for the next subscriber of the same messages

logger = logging.getLogger(__name__)


class Line(Protocol):
    """What the window asks of the line to the other end; a listener's `Port` is one."""

    @property
    def backlog(self) -> int:
        """Bytes that are not on the line yet."""

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the line has ended."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: a client, or the next broker of a route.

    ``protocol`` is the connection, already accepted, and ``port`` the line under it. ``flush`` puts on the line what
    the protocol core has to say. ``may_receive`` says whether this end may have messages of a topic now,
    ``has_identity`` whether identity and provenance come with each message, and ``session_present`` whether this end
    still has its part of the session. ``name`` is its name in the log. ``hop`` is what is added to the hops of each
    message. ``naming`` names the messages of a stream for this end.
    """

    name: str
    protocol: BulkConnection
    port: Line
    flush: Callable[[], None]
    may_receive: Callable[[str], bool]
    has_identity: bool
    session_present: bool = True
    hop: str = ""
    naming: Naming | None = None


class Flight:
    """What is in flight over one connection, whatever the streams: its packet identifiers are those in use.

    ``pubacks`` has what waits for a PUBACK, by packet identifier. ``outgoings`` are the sessions' QoS 2 flows.
    """

    __slots__ = ("acknowledged", "outgoings", "pubacks")

    def __init__(self) -> None:
        self.pubacks: dict[int, Finish] = {}
        self.outgoings: list[Outgoing] = []
        self.acknowledged = Signal()

    def __contains__(self, packet_identifier: object) -> bool:
        return packet_identifier in self.pubacks or any(packet_identifier in one.flows for one in self.outgoings)

    def has_flow_of(self, identifiers: Iterable[int]) -> bool:
        """Whether a flow has one of some packet identifiers."""
        return any(not one.flows.keys().isdisjoint(identifiers) for one in self.outgoings)


class Window:
    """Sends one end its messages, for the time of one connection.

    Args:
        peer: that end.
        log: where it is noted what the other end does not get.
        consumer: the session's name there.
        outgoing: the session's QoS 2 flows.
        shift: the senders that share a slice with this one.
        counters: count what is sent to a client; None for a route.
        flight: what is in flight over the connection, if windows of several streams share it.
        room: the memory that the lines of its owner share; None: it has no limit.
    """

    __slots__ = (
        "_consumer",
        "_counters",
        "_flight",
        "_has_identity",
        "_hop",
        "_log",
        "_naming",
        "_shift",
        "flush",
        "may_receive",
        "name",
        "outgoing",
        "port",
        "protocol",
        "room",
        "session_present",
    )

    def __init__(
        self,
        peer: Peer,
        log: MessageLog,
        consumer: str,
        outgoing: Outgoing,
        shift: Shift,
        counters: Counters | None = None,
        flight: Flight | None = None,
        room: LineRoom | None = None,
    ) -> None:
        self.name = peer.name
        self.protocol = peer.protocol
        self.port = peer.port
        self.flush = peer.flush
        self.outgoing = outgoing
        self.may_receive = peer.may_receive
        self.session_present = peer.session_present
        self._log = log
        self.room = room or LineRoom(sys.maxsize)
        self._consumer = consumer
        self._counters = counters
        self._shift = shift
        self._has_identity = peer.has_identity
        self._hop = peer.hop
        self._naming = peer.naming
        self._flight = flight or Flight()
        self._flight.outgoings.append(outgoing)

    @property
    def inflight(self) -> Container[int]:
        """The packet identifiers in use: of QoS 1 messages that are not acknowledged, and of QoS 2 flows."""
        return self._flight

    def next_identifier(self) -> int:
        """Returns a packet identifier that is not in use."""
        return self.outgoing.next_identifier(self._flight)

    async def wait_for_line(self) -> None:
        """Waits until the line takes a message, and the shift has time for this sender."""
        await self.port.drain()
        await self._shift.wait()

    async def wait_for_room(self, packet_identifier: int | None = None) -> None:
        """Waits until line and window take a message, with this packet identifier if one is given."""
        await self.wait_for_line()
        while self.protocol.send_quota == 0 or packet_identifier in self._flight:
            self.flush()
            self._flight.acknowledged.clear()
            await self._flight.acknowledged.wait()
            await self.wait_for_line()

    def publish(
        self, message: Message, grant: Grant, packet_identifier: int | None = None, *, dup: bool = False
    ) -> bool:
        """Returns whether the message is on its way; one that is too large for this client is passed over."""
        if self._has_identity:
            with contextlib.suppress(PacketTooLargeError):  # it may fit without
                self.send(message, grant, packet_identifier, dup, self.properties_of)
                return True
        try:
            self.send(message, grant, packet_identifier, dup, plain_properties)
        except PacketTooLargeError as error:
            logger.warning("%s: message on %r passed over: %s", self.name, message.topic, error)
            self.drop(drops.OVERSIZE, message)
            return False
        return True

    def properties_of(self, message: Message, identifiers: Sequence[int]) -> dict[int, Any]:
        """Returns the properties of a message with its identity and provenance."""
        return identity_properties(message, identifiers, hop=self._hop)

    def publish_together(self, deliveries: Sequence[Delivery], identifiers: list[int], qos: int) -> bool:
        """Sends plain messages of one QoS in one piece; False, and none is sent, where each goes by itself.

        At QoS 2 their flows have begun.
        """
        messages = [delivery.message for delivery in deliveries]
        if self._naming is not None and not self._naming.is_plain:
            messages = [self._naming.of(message) for message in messages]
        protocol = self.protocol
        if qos == 1 and self._flight.has_flow_of(identifiers):
            return False
        aliases = protocol.aliases_of([message.topic for message in messages]) if protocol.gives_aliases else []
        if None in aliases:
            return False
        level, vias = protocol.protocol_level, self.vias_of(deliveries, identifiers, qos)
        encoded, longest = encode_publishes(
            messages, identifiers, level, qos, self._has_identity, aliases, self._hop, vias
        )
        if not protocol.publish_all(identifiers, encoded, longest, qos):
            return False
        if self._counters is not None:
            self._counters.note_sent(qos, sum([len(message.payload) for message in messages]), len(messages))
        return True

    def take(self, deliveries: Sequence[Delivery]) -> list[Work]:
        """Takes what a cursor has handed out; returns what has to be durable with the flows of these messages."""
        return []

    def vias_of(self, deliveries: Sequence[Delivery], identifiers: Sequence[int], qos: int) -> Sequence[bytes]:
        """Returns the property with the route number of each message, empty where they have none.

        The messages go together at this QoS, under these packet identifiers.
        """
        return ()

    @property
    def run_qos_max(self) -> int:
        """The highest QoS of runs that it sends in one piece, 0 for none: then more than the packet identifiers of the
        PUBLISHes is for this end alone.
        """
        has_own_names = self._naming is not None and not self._naming.is_plain
        return 0 if self._has_identity or has_own_names or self.protocol.gives_aliases else 1

    def publish_run(self, run: DeliveryRun) -> bool:
        """Sends the messages of a run in one piece; False, and none is sent, where each goes by itself."""
        identifiers = run.packet_identifiers
        if run.dup or run.grant != PLAIN or self._flight.has_flow_of(identifiers):
            return False
        parts, longest, payload_size = run.laid_out(self.protocol.protocol_level)
        if not self.protocol.publish_all(identifiers, fill_in(parts, identifiers), longest):
            return False
        if self._counters is not None:
            self._counters.note_sent(1, payload_size, len(identifiers))
        return True

    def send(
        self,
        message: Message,
        grant: Grant,
        packet_identifier: int | None,
        dup: bool,
        properties_of: Callable[[Message, Sequence[int]], dict[int, Any]],
    ) -> None:
        """Sends a message. Raises PacketTooLargeError, WireError."""
        if self._naming is not None:
            message = self._naming.of(message)
        self.protocol.publish(
            message.topic,
            message.payload,
            qos=grant.qos,
            retain=grant.retain,
            dup=dup,
            properties=properties_of(message, grant.identifiers),
            packet_identifier=packet_identifier,
        )
        if self._counters is not None:
            self._counters.note_sent(grant.qos, len(message.payload))

    def drop(self, reason: str, message: Message) -> None:
        """Notes that the client does not get a message."""
        self._log.drop(reason, self._consumer, message)

    async def message_of(self, flow: qos2.Flow) -> Message | None:
        """Returns what the PUBLISH of a flow carries, None if it is gone. Raises sqlite3.Error."""
        return await self.outgoing.message_of(flow)

    def publish_once(self, message: Message, grant: Grant, packet_identifier: int, *, dup: bool = False) -> None:
        """Sends a message whose flow has begun; the flow ends if the message is passed over."""
        if not self.publish(message, grant, packet_identifier, dup=dup):
            self.outgoing.complete([packet_identifier])

    def is_wanted(self, message: Message) -> bool:
        """Whether a message has not expired; one that has is noted."""
        if message.expires_ms and message.expires_ms <= time.time() * 1000:
            self.drop(drops.EXPIRED, message)
            return False
        return True

    def await_pubacks(self, packet_identifiers: Sequence[int], finish: Finish) -> None:
        """Calls ``finish`` when the client has acknowledged QoS 1 messages, with the identifiers of one or more."""
        self._flight.pubacks.update(dict.fromkeys(packet_identifiers, finish))

    def forget(self, packet_identifiers: Iterable[int]) -> None:
        """Frees the packet identifiers of QoS 1 messages that are to be sent again."""
        for packet_identifier in packet_identifiers:
            self._flight.pubacks.pop(packet_identifier, None)
        self._flight.acknowledged.set()

    def handle_pubacks(self, packet_identifiers: list[int]) -> None:
        """The other end has QoS 1 messages, or has refused them for good; either way it does not get them again.

        They may have gone through any window of the connection.
        """
        for finish, acknowledged in groupby(packet_identifiers, self._flight.pubacks.pop):
            finish(list(acknowledged))
        self._flight.acknowledged.set()

    def handle_pubrecs(self, packet_identifiers: list[int], add: Callable[..., None]) -> None:
        """The other end has QoS 2 messages: once that is durable their PUBRELs go out.

        Args:
            packet_identifiers: the packet identifiers of the PUBRECs.
            add: takes what comes then, and the work that has to be durable before; an ``AckBatch.add``.
        """
        add(lambda: self.release(packet_identifiers), *self.outgoing.note_received(packet_identifiers))

    def handle_pubcomps(self, packet_identifiers: list[int]) -> None:
        """QoS 2 flows end: completed, or refused by their PUBRECs."""
        self.outgoing.complete(packet_identifiers)
        self._flight.acknowledged.set()

    def release(self, packet_identifiers: list[int]) -> None:
        """PUBRECs are noted durably: their PUBRELs go out, now or over the next connection."""
        self.outgoing.release(packet_identifiers)
        if self.protocol.connected:
            self.protocol.pubrel_all(packet_identifiers)


def plain_ones(wanted_qos: int, deliveries: list[Delivery]) -> list[Delivery]:
    """Returns the deliveries at the beginning that are of this QoS, 1 or 2, and look the same to all that get them.

    They have neither DUP, RETAIN nor expiry.
    """
    if not wanted_qos:
        return []
    for number, (_, _, message, dup, qos, retain, identifiers, _) in enumerate(deliveries):
        if qos != wanted_qos or dup or retain or identifiers or message.retain or message.expires_ms:
            return deliveries[:number]
    return deliveries


def encode_publishes(
    messages: Sequence[Message],
    identifiers: Sequence[int],
    level: int,
    qos: int,
    has_identity: bool,
    aliases: Sequence[int] = (),
    hop: str = "",
    vias: Sequence[bytes] = (),
) -> tuple[bytes, int]:
    """Returns the PUBLISHes of plain messages at QoS 1 or 2, and a length that none of them exceeds.

    Args:
        messages: the messages.
        identifiers: their packet identifiers.
        level: the protocol level.
        qos: 1 or 2.
        has_identity: whether identity and provenance come with them.
        aliases: the topic alias of each, 0 for none; empty where the connection gives no aliases.
        hop: what a route adds to the hops of each; it is always the same one in one gateway.
        vias: the property with the route number of each, which comes with the identity; empty for none.
    """
    if vias:
        numbered = zip(messages, vias, aliases or repeat(0), strict=False)
        halves = [_split(one, level, qos, has_identity, hop, via, alias) for one, via, alias in numbered]
        return join_publishes(halves, identifiers)
    form_here = form(level, qos, has_identity, bool(hop))
    are_alike = not any(aliases)  # for all subscribers
    if are_alike and (laid_out := _newest.get(messages, form_here)):
        parts, longest = laid_out
        return fill_in(parts, identifiers), longest
    halves = [
        _split(message, level, qos, has_identity, hop, alias=alias)
        if alias
        else (message.halves and message.halves.get(form_here)) or _split_once(message, level, qos, has_identity, hop)
        for message, alias in zip(messages, aliases or repeat(0), strict=False)
    ]
    parts, longest = lay_out(halves)
    encoded = fill_in(parts, identifiers)
    if are_alike and len(encoded) <= LAID_OUT_MAX:
        _newest.keep(messages, form_here, parts, longest)
    return encoded, longest


class _LaidOut:
    """What was laid out last, as the subscribers of a topic mostly get the same messages one after another."""

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._form = 0
        self._found: tuple[list[bytes], int] = [], 0

    def get(self, messages: Sequence[Message], form_here: int) -> tuple[list[bytes], int] | None:
        """Returns the parts of these messages in a form, and the longest length; None if others came meanwhile."""
        is_same = self._form == form_here and len(self._messages) == len(messages)
        return self._found if is_same and all(map(is_, self._messages, messages)) else None

    def keep(self, messages: Sequence[Message], form_here: int, parts: list[bytes], longest: int) -> None:
        """Keeps them for the next subscriber."""
        self._messages, self._form, self._found = messages, form_here, (parts, longest)


_newest = _LaidOut()


def _split_once(message: Message, level: int, qos: int, has_identity: bool, hop: str) -> tuple[bytes, bytes]:
    """The message remembers its halves, for all that get it in this form."""
    halves = _split(message, level, qos, has_identity, hop)
    message.halves = {**(message.halves or {}), form(level, qos, has_identity, bool(hop)): halves}
    return halves


def _split(
    message: Message, level: int, qos: int, has_identity: bool, hop: str, via: bytes = b"", alias: int = 0
) -> tuple[bytes, bytes]:
    """Returns what comes before and behind the packet identifier in a message's PUBLISH."""
    if level != MQTT_5:
        block = b""
    elif has_identity:
        block = encode_identified_block(
            message.properties,
            message.origin,
            message.epoch,
            message.seq,
            message.received_ms,
            message.received_by,
            alias,
            hop,
            via,
        )
    else:
        block = encode_block(message.properties, alias)
    return split_publish("" if alias else message.topic, block, message.payload, qos)
