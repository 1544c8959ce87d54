"""The broker under check, with the connections and names of one check."""

import asyncio
import secrets
import ssl
from dataclasses import dataclass, field
from typing import Any

from tools.lab.check.client import DEADLINE_S, Client
from tools.lab.check.outcome import Failed, Skipped
from wire.codec.packets import MQTT_5, Connack, Connect, Disconnect, Packet, Publish, Will
from wire.properties import SESSION_EXPIRY_INTERVAL
from wire.reasons import UNSPECIFIED_ERROR, describe

KEPT_S = 60  # the expiry of a session that a check does not end


@dataclass(frozen=True)
class Address:
    """The broker's address, and the user to log in. ``tls`` is for a broker with TLS."""

    host: str
    port: int
    user: str | None = None
    password: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


@dataclass
class Broker:
    """The broker, with connections, client identifiers and topics that no other check uses.

    Attributes:
        address: where it is.
        level: the protocol level of this check.
        offered: what its CONNACK announces in MQTT 5: {property: value}.
    """

    address: Address
    level: int
    offered: dict[int, Any] = field(default_factory=dict)
    _clients: list[Client] = field(default_factory=list)
    _sessions: set[str] = field(default_factory=set)
    _retained: set[str] = field(default_factory=set)
    _name: str = field(default_factory=lambda: secrets.token_hex(6))
    _count: int = 0

    def client_id(self) -> str:
        """Returns a new client identifier of letters and digits."""
        self._count += 1
        return f"hfcheck{self._name}x{self._count}"

    def topic(self) -> str:
        """Returns a new topic name of two levels; a check may add more levels."""
        self._count += 1
        return f"hfcheck/{self._name}x{self._count}"

    def retained_topic(self, name: str = "") -> str:
        """Returns `name` or a new topic name; `clean_up` removes its retained message."""
        self._retained.add(topic := name or self.topic())
        return topic

    @property
    def no_properties(self) -> bytes:
        """The bytes of an empty list of properties: none over MQTT 3.1.1."""
        return b"\0" if self.level == MQTT_5 else b""

    def needs(self, announced: int, least: int = 1) -> None:
        """Ends the check if the broker announces less than this."""
        if self.offered.get(announced, least) < least:
            raise Skipped(f"the broker does not offer it (property 0x{announced:02x} of its CONNACK)")

    async def open(self, level: int | None = None) -> Client:
        """Opens a connection, on which nothing has been sent."""
        connecting = asyncio.open_connection(self.address.host, self.address.port, ssl=self.address.tls)
        reader, writer = await asyncio.wait_for(connecting, DEADLINE_S)
        client = Client(reader, writer, level or self.level)
        self._clients.append(client)
        return client

    def connect_packet(
        self,
        client_id: str | None = None,
        *,
        clean_start: bool = True,
        expiry_s: int = 0,
        keep_alive_s: int = 0,
        will: Will | None = None,
        properties: dict[int, Any] | None = None,
    ) -> Connect:
        """Returns a valid CONNECT; MQTT 3.1.1 ignores ``expiry_s``."""
        expiry = {SESSION_EXPIRY_INTERVAL: expiry_s} if expiry_s and self.level == MQTT_5 else {}
        return Connect(
            self.client_id() if client_id is None else client_id,
            clean_start,
            keep_alive_s,
            self.address.user,
            self.address.password,
            will,
            {**expiry, **(properties or {})},
            self.level,
        )

    async def connect(self, client_id: str | None = None, **options: Any) -> Client:
        """Connects a client, with the options of `connect_packet`; the broker must accept it."""
        client = await self.open()
        packet = self.connect_packet(client_id, **options)
        client.client_id = packet.client_id
        if packet.session_expiry_s:
            self._sessions.add(packet.client_id)
        await client.send(packet)
        client.connack = await client.expect(Connack, reason_code=0)
        return client

    async def resume(self, client_id: str, **options: Any) -> Client:
        """Connects a client whose session outlives its connection; it resumes an existing session."""
        return await self.connect(client_id, clean_start=False, expiry_s=KEPT_S, **options)

    async def reconnect(self, client: Client, **options: Any) -> Client:
        """Closes a client's connection without a DISCONNECT and resumes its session over a new one."""
        await client.close()
        return await self.resume(client.client_id, **options)

    async def expect_closed(self, packet: Packet | bytes, *reason_codes: int) -> None:
        """Checks that the broker closes the connection of a new client that sends this, as `Client.expect_closed`."""
        client = await self.connect()
        await client.send(packet)
        await client.expect_closed(*reason_codes)

    async def expect_refused(self, packet: Packet | bytes, *reason_codes: int) -> None:
        """Checks that the broker closes the connection of a new client that sends this as its CONNECT.

        MQTT 5 may answer with one of these reasons before; in 3.1.1 an ill-formed CONNECT is not answered at all.
        """
        client = await self.open()
        await client.send(packet)
        await client.expect_closed()
        answers = [packet for packet in client.received if isinstance(packet, Connack)]
        if self.level != MQTT_5 and answers:
            raise Failed("no CONNACK", repr(answers[0]))
        if answers and answers[0].reason_code not in (*reason_codes, UNSPECIFIED_ERROR):
            raise Failed(" or ".join(map(describe, reason_codes)), repr(answers[0]))
        if any(isinstance(packet, Disconnect) for packet in client.received):
            raise Failed("no DISCONNECT before a CONNACK", repr(client.received[-1]))

    async def watched(self, options: int = 0, *, is_kept: bool = False, **connect: Any) -> tuple[str, Client, Client]:
        """Returns a new topic name, its subscriber, with a kept session if `is_kept`, and another client."""
        topic, make = self.topic(), self.resume if is_kept else self.connect
        watcher = await make(self.client_id(), **connect)
        await watcher.subscribe(topic, options=options)
        return topic, watcher, await self.connect()

    async def clean_up(self) -> None:
        """Ends all connections and sessions of the check, and removes its retained messages."""
        self._hang_up()
        try:
            for client_id in sorted(self._sessions):
                await (await self.connect(client_id)).disconnect()
            if self._retained:
                await self._remove_retained(await self.connect())
        except (Failed, OSError):
            pass  # the broker accepts no more connections; other checks report this
        finally:
            self._hang_up()

    async def _remove_retained(self, client: Client) -> None:
        for topic in sorted(self._retained):
            await client.send(Publish(topic, b"", retain=True))
        await client.ping()
        await client.disconnect()

    def _hang_up(self) -> None:
        while self._clients:
            self._clients.pop().cut()
