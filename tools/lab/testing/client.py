"""One MQTT client for tests and tools: the wire's protocol core on a line."""

import asyncio
import time
from typing import Any, Self, TypeVar

from tools.lab.testing.lines import Line, StreamLine, connect_tcp
from wire.codec.connect import FOR_EVER_S
from wire.codec.packets import Connack, Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Unsuback
from wire.connection.client import ClientConnection
from wire.errors import Closed
from wire.identity import WISH_PROPERTY
from wire.properties import (
    MAXIMUM_PACKET_SIZE,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    TOPIC_ALIAS_MAXIMUM,
    USER_PROPERTY,
)
from wire.reasons import NO_MATCHING_SUBSCRIBERS, SUCCESS

TAKEN = (SUCCESS, NO_MATCHING_SUBSCRIBERS)
"""The reason codes with which a broker accepts a message."""

OWN_OPTIONS = ("retry_interval_ms", "authentication", "first_identifier")
PROPERTIES = {
    "session_expiry_s": SESSION_EXPIRY_INTERVAL,
    "receive_maximum": RECEIVE_MAXIMUM,
    "maximum_packet_size": MAXIMUM_PACKET_SIZE,
    "topic_alias_maximum": TOPIC_ALIAS_MAXIMUM,
}
LONG_S = 60.0  # no answer takes so long, also on a machine that does other things as well

Kind = TypeVar("Kind")
_open_clients: "set[Client]" = set()


def client_connection(client_id: str, **options: Any) -> ClientConnection:
    """Makes a connection whose session stays and whose keep alive is 60 s, unless the options say something else.

    Args:
        options: arguments of `ClientConnection` and of `Connect`, and properties of the CONNECT: `session_expiry_s`,
            `receive_maximum`, `maximum_packet_size` and `topic_alias_maximum`.
    """
    own = {name: options.pop(name) for name in OWN_OPTIONS if name in options}
    asked = {"session_expiry_s": FOR_EVER_S, "keep_alive_s": 60, **options}
    named = {PROPERTIES[name]: asked.pop(name) for name in PROPERTIES if name in asked}
    properties = {number: value for number, value in named.items() if value}
    return ClientConnection(Connect(client_id, properties=properties, **asked), **own)


class UnexpectedEvent(Exception):
    """The server did something else than what a client waits for; the text says what came and what was expected."""


class Client:
    """One client. It acknowledges nothing and sends no PINGREQ unless it is told to.

    Every method that waits raises TimeoutError after `deadline_s`, UnexpectedEvent when something else comes than what
    it waits for, and OSError when the line fails.

    Args:
        client_id: of its CONNECT.
        options: more arguments of `client_connection`, and `wishes`: what its CONNECT says about message identities
            (docs/reference/wire.md), `user_properties`: more user properties of its CONNECT, and `address`: the address
            of this machine from which it connects.

    Attributes:
        protocol: the protocol core; what it has to send goes out with `flush`.
        connack: the answer to its CONNECT.
        line: what it is connected over.
        port: the TCP port to which it connected.
        deadline_s: how long it waits for one event.
    """

    def __init__(self, client_id: str = "client", **options: Any) -> None:
        self._address = options.pop("address", None)
        wishes = [(WISH_PROPERTY, wish) for wish in options.pop("wishes", ())]
        self._user_properties = [*wishes, *options.pop("user_properties", ())]
        self._unread = b""
        self._markers = 0
        self.protocol = client_connection(client_id, **options)
        self.connack: Connack
        self.line: Line
        self.port = 0
        self.deadline_s = LONG_S

    async def connect(self, port: int, host: str = "127.0.0.1") -> Self:
        """Connects over TCP and waits for the CONNACK. Raises OSError where no server is there."""
        await self.open(port, host)
        self.connack = await self.expect(Connack)
        return self

    async def connect_over(self, line: Line) -> None:
        """Sends the CONNECT over a line that is open, and waits for the CONNACK."""
        self._begin(line)
        self.connack = await self.expect(Connack)

    async def open(self, port: int, host: str = "127.0.0.1") -> None:
        """Connects over TCP and sends the CONNECT, without waiting for its answer. Raises OSError."""
        self.port = port
        self._begin(await connect_tcp(port, host, self._address))

    def _begin(self, line: Line) -> None:
        self.line = line
        _open_clients.add(self)
        self.protocol.connect(_now_ms(), {USER_PROPERTY: self._user_properties} if self._user_properties else {})
        self.flush()

    def flush(self) -> None:
        """Sends what the protocol core has to send."""
        self.line.send(self.protocol.data_to_send())

    def write(self, data: bytes) -> None:
        """Sends bytes past the protocol core."""
        self.line.send(data)

    async def read(self, size: int) -> bytes:
        """Returns ``size`` bytes as they come, past the protocol core."""
        async with asyncio.timeout(self.deadline_s):
            while len(self._unread) < size:
                data = await self.line.read()
                if not data:
                    raise UnexpectedEvent(f"{size} bytes expected, but the connection has ended")
                self._unread += data
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken

    async def event(self) -> Packet | Closed | None:
        """Returns the next event, or None when the connection has ended without one."""
        while (event := self.protocol.next_event()) is None:
            self.flush()
            data, self._unread = self._unread or await self._next_data(), b""
            if not data:
                return None
            self.protocol.receive_data(data, _now_ms())
            self.flush()
        return event

    async def _next_data(self) -> bytes:
        async with asyncio.timeout(self.deadline_s):  # in Python 3.11 wait_for may forget that the task is cancelled
            return await self.line.read()

    async def expect(self, kind: type[Kind]) -> Kind:
        """Returns the next event, which has to be of this kind."""
        event = await self.event()
        if not isinstance(event, kind):
            raise UnexpectedEvent(f"{kind.__name__} expected, got {event!r}")
        return event

    async def ping(self) -> None:
        """Sends PINGREQ and waits for the PINGRESP, before which nothing else may come."""
        self.flush()
        self.write(b"\xc0\0")
        pingresp = await self.read(2)
        _check(pingresp == b"\xd0\0", pingresp)

    async def expect_no_message(self, retained: bool = True) -> None:
        """Checks that no message waits for this client: the next ones are messages that it sends to itself now.

        Args:
            retained: whether it sends itself a retained message as well.
        """
        self._markers += 1
        topic = f"{self.protocol.client_id}/marker/{self._markers}"
        await self.subscribe(topic)
        for payload in (b"marker", b"") if retained else (b"marker",):
            self.send(topic, payload, retain=retained)
            for event in (await self.event(), await self.event()):
                if isinstance(event, Publish):
                    self.acknowledge(event)
                    _check((event.topic, event.payload) == (topic, payload), event)
                else:
                    _check(isinstance(event, Puback), event)
            if payload and retained:
                await self.subscribe(topic)
                packet = await self.receive()
                _check((packet.topic, packet.retain) == (topic, True), packet)

    async def subscribe(self, *filters: str, options: int = 1) -> list[int]:
        """Subscribes to filters with the same options; returns the reason codes of the SUBACK."""
        self.protocol.subscribe([(topic_filter, options) for topic_filter in filters])
        self.flush()
        return (await self.expect(Suback)).reason_codes

    async def unsubscribe(self, *filters: str) -> list[int]:
        """Returns the reason codes of the UNSUBACK."""
        self.protocol.unsubscribe(list(filters))
        self.flush()
        return (await self.expect(Unsuback)).reason_codes

    def send(self, topic: str, payload: bytes = b"", **options: Any) -> int | None:
        """Publishes; returns the packet identifier, None at QoS 0."""
        packet_identifier = self.protocol.publish(topic, payload, **options)
        self.flush()
        return packet_identifier

    async def publish(self, topic: str, payload: bytes = b"", **options: Any) -> Puback:
        """Publishes at QoS 1 and waits for the PUBACK."""
        packet_identifier = self.send(topic, payload, **options)
        puback = await self.expect(Puback)
        _check(puback.packet_identifier == packet_identifier and puback.reason_code in TAKEN, puback)
        return puback

    async def publish_once(self, topic: str, payload: bytes = b"", **options: Any) -> None:
        """Publishes at QoS 2 and waits for the PUBCOMP."""
        packet_identifier = self.send(topic, payload, qos=2, **options)
        assert packet_identifier is not None
        pubrec = await self.expect(Pubrec)
        _check(pubrec.packet_identifier == packet_identifier and pubrec.reason_code in TAKEN, pubrec)
        self.release(packet_identifier)
        pubcomp = await self.expect(Pubcomp)
        _check(pubcomp.packet_identifier == packet_identifier, pubcomp)

    def release(self, packet_identifier: int) -> None:
        """Sends the PUBREL of a message."""
        self.protocol.pubrel(packet_identifier)
        self.flush()

    async def receive(self) -> Publish:
        """Returns the next message, acknowledged to its end."""
        packet = await self.expect(Publish)
        if packet.packet_identifier is not None:
            self.acknowledge(packet)
        if packet.qos == 2:
            pubrel = await self.expect(Pubrel)
            _check(pubrel.packet_identifier == packet.packet_identifier, pubrel)
            self.complete(packet)
        return packet

    def acknowledge(self, packet: Publish) -> None:
        """Sends a message's PUBACK or PUBREC."""
        assert packet.packet_identifier is not None
        answer = self.protocol.puback if packet.qos == 1 else self.protocol.pubrec
        answer(packet.packet_identifier)
        self.flush()

    def complete(self, packet: Publish) -> None:
        """Sends a message's PUBCOMP."""
        assert packet.packet_identifier is not None
        self.protocol.pubcomp(packet.packet_identifier)
        self.flush()

    async def disconnect(self) -> None:
        """Sends DISCONNECT and waits until the server has closed the connection."""
        self.protocol.disconnect()
        self.flush()
        await self.line.drain()
        data = await self._next_data()
        _check(not data, data)
        self.cut()

    def cut(self) -> None:
        """Ends the connection without a DISCONNECT; without effect where there is none."""
        if self in _open_clients:
            _open_clients.discard(self)
            self.line.close()


async def cut_all() -> None:
    """Ends the connections of all clients that still have one, and waits until the system has closed them."""
    while _open_clients:
        client = next(iter(_open_clients))
        client.cut()
        if isinstance(client.line, StreamLine):
            await client.line.closed()


async def end_session(port: int, client_id: str, host: str = "127.0.0.1") -> bool:
    """Ends a session on a broker by a clean start without expiry [MQTT-3.1.2-4, MQTT-3.1.2-23]. Returns False if no
    broker answers."""
    client = Client(client_id, clean_start=True, session_expiry_s=0)
    try:
        await client.connect(port, host)
        await client.disconnect()
    except (OSError, UnexpectedEvent):
        return False
    return True


def _check(is_expected: bool, came: object) -> None:
    if not is_expected:
        raise UnexpectedEvent(f"something else expected, got {came!r}")


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
