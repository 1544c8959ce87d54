"""A client that publishes numbered messages to the gateway, and resumes its session until each is acknowledged."""

import asyncio
import json
from contextlib import suppress

from tools.lab.testing.client import Client, UnexpectedEvent
from wire.codec.packets import Packet, Puback, Pubcomp, Pubrec
from wire.errors import Closed, WireError
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY
from wire.reasons import SUCCESS, UNSPECIFIED_ERROR

EPOCH = 7
WINDOW = 20
RECONNECT_S = 0.05
REFUSED_S = 0.05  # a store that is full refuses at once
TOPIC, MARKERS = "torture", "marker"


class Publisher:
    """Publishes `count` messages under its own identity, and then a marker.

    Args:
        name: its client identifier and origin.
        port: of the gateway.

    Attributes:
        accepted: the numbers of the messages that the gateway has acknowledged, in this order.
        sent: how many messages it has begun to send.
        repeated: the numbers of the messages that it has sent again, because a connection was lost.
        marks: how many markers it has published.
        limit: how many messages it may send in all.
    """

    window = WINDOW  # messages in flight

    def __init__(self, name: str, port: int, qos: int, count: int) -> None:
        self.name = name
        self.accepted: list[int] = []
        self.sent = 0
        self.repeated: set[int] = set()
        self.marks = 0
        self._port = port
        self.qos = qos
        self.count = count
        self.limit = 0
        self._is_connected = False
        self._allowed = asyncio.Event()
        self._progress = asyncio.Event()
        self._in_flight: dict[int, int] = {}  # packet identifier: number
        self._received: dict[int, int] = {}  # the same, for messages that have had their PUBREC
        self._refused: list[int] = []

    @property
    def is_expecting(self) -> bool:
        """Whether an acknowledgement may come over the connection that it has."""
        return self._is_connected and bool(self._in_flight or self._received)

    @property
    def topic(self) -> str:
        """The topic name of its messages."""
        return f"{TOPIC}/{self.name}"

    def payload(self, number: int) -> bytes:
        """The payload of a message, which is the same each time."""
        return json.dumps([self.name, number]).encode()

    def properties(self, number: int) -> dict[int, object]:
        """The properties of a message: its identity."""
        return {USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity(self.name, EPOCH, number))]}

    def is_refused(self, reason_code: int) -> bool:
        """Whether an answer says that the message was not taken, so that it is sent again."""
        return reason_code >= UNSPECIFIED_ERROR

    def allow(self, limit: int) -> None:
        """Lets it send `limit` messages in all."""
        self.limit = min(limit, self.count)
        self._allowed.set()

    async def reached(self, accepted: int) -> None:
        """Returns when the gateway has acknowledged `accepted` messages. The limit has to allow that."""
        while len(self.accepted) < accepted:
            self._progress.clear()
            await self._progress.wait()

    async def settled(self) -> None:
        """Returns when nothing is in flight to the gateway."""
        while self._in_flight or self._received or self._refused or self.sent < self.limit:
            self._progress.clear()
            await self._progress.wait()

    async def run(self) -> None:
        """Publishes until the gateway has acknowledged all messages, over as many connections as it takes."""
        while len(self.accepted) < self.count or self._received:
            client = Client(self.name, clean_start=False, keep_alive_s=0)
            self._is_connected = True
            with suppress(OSError, UnexpectedEvent, TimeoutError, WireError):
                await client.connect(self._port)
                if client.connack.reason_code == SUCCESS:  # it refuses where its disk is full
                    await self._serve(client)
            client.cut()
            self._is_connected = False
            await asyncio.sleep(RECONNECT_S)

    async def mark(self) -> None:
        """Publishes the marker: a message behind all others. Raises TimeoutError, OSError."""
        client = Client(self.name, clean_start=False, keep_alive_s=0)
        await client.connect(self._port)
        self.marks += 1
        publish = client.publish if self.qos == 1 else client.publish_once
        await publish(f"{MARKERS}/{self.name}", properties=self.properties(self.count + self.marks))
        await client.disconnect()

    async def _serve(self, client: Client) -> None:
        self._resume(client, client.connack.session_present)
        while len(self.accepted) < self.count or self._received:
            self._fill(client)
            if self._in_flight or self._received:
                event = await client.event()
                if event is None or isinstance(event, Closed):
                    return
                await self._handle(client, event)
            else:
                self._allowed.clear()
                await self._allowed.wait()

    def _resume(self, client: Client, session_present: bool) -> None:
        """Sends again what is unacknowledged, in its order. A gateway without the session has completed what it has
        received."""
        if not session_present:
            self._received.clear()
        for packet_identifier in self._received:
            client.protocol.pubrel(packet_identifier)
        self.repeated.update(self._in_flight.values())
        for packet_identifier, number in self._in_flight.items():
            self._send(client, number, packet_identifier, dup=session_present)

    def _fill(self, client: Client) -> None:
        while len(self._in_flight) + len(self._received) < self.window and (self._refused or self.sent < self.limit):
            if self._refused:
                number = self._refused.pop(0)
            else:
                number = self.sent = self.sent + 1
            used = self._in_flight.keys() | self._received.keys()
            packet_identifier = next(one for one in range(1, self.window + 1) if one not in used)
            self._in_flight[packet_identifier] = number
            self._send(client, number, packet_identifier, dup=False)
        client.flush()  # all at once

    def _send(self, client: Client, number: int, packet_identifier: int, *, dup: bool) -> None:
        client.protocol.publish(
            self.topic,
            self.payload(number),
            qos=self.qos,
            dup=dup,
            packet_identifier=packet_identifier,
            properties=self.properties(number),
        )

    async def _handle(self, client: Client, event: Packet) -> None:
        if isinstance(event, Pubcomp):
            self._received.pop(event.packet_identifier, None)
        elif isinstance(event, Puback | Pubrec):
            number = self._in_flight.pop(event.packet_identifier)
            if self.is_refused(event.reason_code):
                self._refused.append(number)
                await asyncio.sleep(REFUSED_S)
            else:
                self.accepted.append(number)
                if isinstance(event, Pubrec):
                    self._received[event.packet_identifier] = number
                    client.protocol.pubrel(event.packet_identifier)
        self._progress.set()
