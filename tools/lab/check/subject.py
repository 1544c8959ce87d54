"""The broker under check, as one check sees it."""

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any

from tools.check.client import DEADLINE_S, Client
from tools.check.outcome import Failed, Skipped
from wire.packets import MQTT_5, Connack, Connect, Publish, Will
from wire.properties import SESSION_EXPIRY_INTERVAL

KEPT_S = 60  # how long a session of a check stays at most, should its end be forgotten


@dataclass(frozen=True)
class Address:
    """Where the broker is, and how to log in there."""

    host: str
    port: int
    user: str | None = None
    password: bytes | None = field(default=None, repr=False)


@dataclass
class Broker:
    """What each check gets for itself: connections, and names that no other check uses.

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
        """A new one, of letters and digits alone."""
        self._count += 1
        return f"hfcheck{self._name}x{self._count}"

    def topic(self) -> str:
        """A new topic name of two levels, to which more may be added."""
        self._count += 1
        return f"hfcheck/{self._name}x{self._count}"

    def retained_topic(self, name: str = "") -> str:
        """A new topic name, or that one; what is retained there at the end is removed."""
        self._retained.add(topic := name or self.topic())
        return topic

    @property
    def no_properties(self) -> bytes:
        """What stands in a packet where MQTT 5 has properties, and there are none."""
        return b"\0" if self.level == MQTT_5 else b""

    def needs(self, announced: int, least: int = 1) -> None:
        """Ends the check where the broker announces less than this."""
        if self.offered.get(announced, least) < least:
            raise Skipped(f"the broker does not offer it (property 0x{announced:02x} of its CONNACK)")

    async def open(self, level: int | None = None) -> Client:
        """A connection on which nothing has been sent."""
        connecting = asyncio.open_connection(self.address.host, self.address.port)
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
        """A CONNECT that a broker takes; ``expiry_s`` is said in MQTT 5 alone."""
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
        """A client whose CONNECT, with the options of `connect_packet`, was accepted."""
        client = await self.open()
        packet = self.connect_packet(client_id, **options)
        client.client_id = packet.client_id
        if packet.session_expiry_s:
            self._sessions.add(packet.client_id)
        await client.send(packet)
        client.connack = await client.expect(Connack, reason_code=0)
        return client

    async def resume(self, client_id: str, **options: Any) -> Client:
        """A client whose session outlives its connection, and goes on where there is one."""
        return await self.connect(client_id, clean_start=False, expiry_s=KEPT_S, **options)

    async def clean_up(self) -> None:
        """Leaves the broker as it was: no connections, no sessions, nothing retained."""
        self._hang_up()
        try:
            for client_id in sorted(self._sessions):
                await (await self.connect(client_id)).disconnect()
            if self._retained:
                await self._remove_retained(await self.connect())
        except (Failed, OSError):
            pass  # the broker no longer lets anybody in: the checks say so
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
