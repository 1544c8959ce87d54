"""A subscriber that notes what comes, over as many connections as it takes."""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from tools.lab.testing.client import Client, UnexpectedEvent, end_session
from wire.codec.packets import Packet, Publish, Pubrel, Suback
from wire.errors import Closed, WireError
from wire.identity import IDENTITY_PROPERTY, RECEIVE, decode_identity, find_user_property
from wire.reasons import SUCCESS

RECONNECT_S = 0.05
FOR_EVER_S = 0xFFFF_FFFF
PROBE = b"probe "


class Came(NamedTuple):
    """A message that came: its identity (without an origin if it has none), its topic name, and its DUP flag."""

    origin: str
    epoch: int
    number: int
    topic: str
    is_dup: bool


class Subscriber:
    """One subscription of some filters, from its SUBACK until it is over.

    Args:
        name: its client identifier.
        gateway: the number of its gateway.
        port: of the gateway.
        is_durable: whether its session outlives its connections. Otherwise it is over with the first one.

    Attributes:
        since: by publisher, the first number that has to come: its interest was known there before that was sent.
        came: the messages, in their order.
        probes: the payloads of the probes that came.
        is_subscribed: set by the SUBACK.
        is_over: whether no more messages have to come.
    """

    def __init__(self, name: str, gateway: int, port: int, filters: list[str], qos: int, is_durable: bool) -> None:
        self.name = name
        self.gateway = gateway
        self.filters = filters
        self.is_durable = is_durable
        self.since: dict[str, int] = {}
        self.came: list[Came] = []
        self.probes: set[bytes] = set()
        self.is_subscribed = asyncio.Event()
        self.is_over = False
        self._port = port
        self.qos = qos
        self._client: Client | None = None
        self._unreleased: dict[int, None] = {}
        self._may_connect = asyncio.Event()
        self._may_connect.set()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Notes what comes until the subscription is over."""
        while not self.is_over:
            await self._may_connect.wait()
            client = self._client = self._new_client()
            with suppress(OSError, UnexpectedEvent, TimeoutError, WireError):
                await client.connect(self._port)
                if client.connack.reason_code == SUCCESS:
                    await self._serve(client)
            client.cut()
            if self.is_subscribed.is_set() and not self.is_durable:
                self.end()
            await asyncio.sleep(RECONNECT_S)

    def away(self) -> None:
        """Ends the connection, until `back`."""
        self._may_connect.clear()
        if self._client is not None:
            self._client.cut()

    def back(self) -> None:
        """Lets it connect again."""
        self._may_connect.set()

    def end(self) -> None:
        """Ends the subscription; what is under way need not come."""
        self.is_over = True
        self._may_connect.set()
        if self._client is not None:
            self._client.cut()
        self._news.set()

    async def leave(self) -> None:
        """Ends the subscription and its session."""
        self.end()
        if self.is_durable:
            await end_session(self._port, self.name)

    async def probed(self, payload: bytes) -> bool:
        """Returns when a probe has come, or False when the subscription is over."""
        while payload not in self.probes and not self.is_over:
            self._news.clear()
            await self._news.wait()
        return not self.is_over

    def _new_client(self) -> Client:
        expiry_s = FOR_EVER_S if self.is_durable else 0
        client = Client(
            self.name, clean_start=not self.is_durable, session_expiry_s=expiry_s, keep_alive_s=0, wishes=(RECEIVE,)
        )
        client.deadline_s = FOR_EVER_S
        return client

    async def _serve(self, client: Client) -> None:
        if client.connack.session_present:
            client.protocol.resume(list(self._unreleased))
        else:
            self._unreleased.clear()
        if not self.is_subscribed.is_set():
            client.protocol.subscribe([(one, self.qos) for one in self.filters])
        client.flush()
        while (event := await client.event()) is not None and not isinstance(event, Closed):
            self._handle(client, event)

    def _handle(self, client: Client, event: Packet) -> None:
        if isinstance(event, Suback):
            self.is_subscribed.set()
        elif isinstance(event, Publish):
            self._note(event)
            if event.qos:
                client.acknowledge(event)
            if event.qos == 2 and event.packet_identifier is not None:
                self._unreleased[event.packet_identifier] = None
        elif isinstance(event, Pubrel):
            client.protocol.pubcomp(event.packet_identifier)
            client.flush()
            self._unreleased.pop(event.packet_identifier, None)

    def _note(self, packet: Publish) -> None:
        payload = bytes(packet.payload)
        if payload.startswith(PROBE):
            self.probes.add(payload)
            self._news.set()
            return
        text = find_user_property(packet.properties or {}, IDENTITY_PROPERTY)
        identity = ("", 0, 0) if text is None else decode_identity(text)
        self.came.append(Came(*identity, packet.topic, packet.dup))
