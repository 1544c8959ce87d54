"""A gateway with a multicast group on the loopback interface, and receivers of it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.broker import Broker
from gateway.config.multicast import MulticastConfig
from gateway.config.schema import TcpConfig, TlsConfig
from gateway.listeners.sockets import TcpListener
from tests.gateway.support import Client, running
from tests.support.coroutines import after_each_test
from tools.cli.multicast.group_socket import open_group_socket
from tools.lab.testing.certificates import Authority
from tools.lab.testing.lines import StreamLine
from tools.lab.testing.ports import free_port
from wire.codec.packets import Publish, Suback
from wire.multicast import DATAGRAM_MAX, MULTICAST_PROPERTY, MULTICAST_TOPIC, decode_key
from wire.multicast.receiver import MulticastReceiver
from wire.properties import USER_PROPERTY

_displays: "list[Display]" = []


def group(name: str = "wall", *topics: str, **settings: Any) -> MulticastConfig:
    """A group with a port of its own, so that tests that run at the same time do not meet."""
    return MulticastConfig(name, "239.192.7.7", free_port(), topics or ("displays/#",), interface="lo", **settings)


@contextlib.asynccontextmanager
async def sending(folder: Path, *groups: MulticastConfig, **settings: Any) -> AsyncIterator[Broker]:
    """A broker with a TCP port and one with TLS, and these groups."""
    authority = Authority(folder)
    certificate, key = map(str, authority.server())
    plain = TcpConfig(port=0, allow_anonymous=True)
    secure = TcpConfig(port=0, allow_anonymous=True, tls=TlsConfig(certificate, key))
    settings.setdefault("multicast", list(groups) or [group()])
    async with running(folder / "store", plain, secure, **settings) as broker:
        yield broker


def ports(broker: Broker) -> list[int]:
    """The plain port and the one with TLS."""
    return [listener.port for listener in broker.listeners.all if isinstance(listener, TcpListener)]


async def plain(broker: Broker, name: str = "publisher", **options: Any) -> Client:
    return await Client(name, **options).connect(ports(broker)[0])


async def secure(folder: Path, broker: Broker, name: str = "display", **options: Any) -> Client:
    client = Client(name, **options)
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    await client.connect_over(StreamLine(*await asyncio.open_connection("127.0.0.1", ports(broker)[1], ssl=context)))
    return client


async def ask(client: Client, *topic_filters: str, name: str = "", options: int = 0, **more: Any) -> Suback:
    """Subscribes over multicast; returns the answer."""
    asked = [(MULTICAST_PROPERTY, name), *more.get("user_properties", ())]
    client.protocol.subscribe([(one, options) for one in topic_filters], {USER_PROPERTY: asked})
    client.flush()
    answer: Suback = await client.expect(Suback)
    return answer


def keys_in(answer: Suback) -> list[str]:
    return [value for name, value in answer.properties.get(USER_PROPERTY, ()) if name == MULTICAST_PROPERTY]


class Display:
    """A receiver of a group: the keys come over its client's connection."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.receiver = MulticastReceiver()
        self._came: list[Publish] = []
        _displays.append(self)

    @classmethod
    async def of(cls, client: Client, *topic_filters: str, name: str = "") -> "Display":
        display = cls(client)
        answer = await ask(client, *(topic_filters or ("displays/#",)), name=name)
        assert max(answer.reason_codes) == 0, answer
        display.take(*keys_in(answer))
        return display

    def take(self, *keys: str) -> None:
        handed = [decode_key(text) for text in keys]
        self._socket = open_group_socket(handed[0].address, handed[0].port, "lo")
        for one in handed:
            self.receiver.take_key(one)

    async def take_next_key(self) -> None:
        """Waits for the next key over the client's connection."""
        packet = await self.client.receive()
        assert packet.topic.startswith(MULTICAST_TOPIC), packet
        self.receiver.take_key(decode_key(packet.payload.decode()))

    async def datagram(self) -> bytes:
        """The next datagram, whatever it is."""
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, DATAGRAM_MAX + 1), 60)

    async def receive(self) -> Publish:
        """The next message."""
        while not self._came:
            self._came += self.receiver.receive(await self.datagram())
        return self._came.pop(0)

    async def payloads(self, count: int) -> list[bytes]:
        return [bytes((await self.receive()).payload) for _ in range(count)]

    def close(self) -> None:
        self._socket.close()


@after_each_test
async def close_all() -> None:
    """Closes the sockets that a test has left."""
    while _displays:
        _displays.pop().close()
