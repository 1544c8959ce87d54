"""A gateway in the test's own event loop or in a process of its own, and a client with the wire's protocol core."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway.broker import Broker
from gateway.config import GatewayConfig, ListenerConfig, StoreConfig, TcpConfig
from gateway.listeners.tcp import TcpListener
from gateway.store.log import MessageLog
from wire.client import ClientConnection
from wire.errors import Closed
from wire.identity import WISH_PROPERTY
from wire.packets import Connack, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Unsuback
from wire.properties import USER_PROPERTY

ROOT = Path(__file__).parents[2]
LONG_S = 60.0  # far more than anything takes, also on a machine that does other things as well
_writers: list[asyncio.StreamWriter] = []
_processes: "set[GatewayProcess]" = set()
Kind = TypeVar("Kind")


def configure(folder: Path, *listeners: ListenerConfig, **settings: Any) -> GatewayConfig:
    settings.setdefault("store", StoreConfig(str(folder)))
    return GatewayConfig("test-gateway", listener=list(listeners) or [TcpConfig(port=0)], **settings)


@contextlib.asynccontextmanager
async def running(folder: Path, *listeners: ListenerConfig, **settings: Any) -> AsyncIterator[Broker]:
    """A broker on a store folder, on a free TCP port unless listeners are given, with settings of its configuration."""
    config = configure(folder, *listeners, **settings)
    log = await MessageLog.open(folder, origin=config.name)
    try:
        broker = Broker(config, log)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.close()
    finally:
        await log.close()


def tcp_port(broker: Broker) -> int:
    return next(listener.port for listener in broker.listeners.all if isinstance(listener, TcpListener))


async def until(condition: Callable[[], Any], what: str) -> None:
    """Waits for a condition that nobody signals."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LONG_S} s: {what}"
        await asyncio.sleep(0.005)


class Client:
    """A client on a TCP connection; nothing is acknowledged unless the test does so.

    The option ``wishes`` is what its CONNECT says of identities, ``address`` where it connects from.
    """

    def __init__(self, client_id: str = "client", **options: Any) -> None:
        self._address = options.pop("address", "127.0.0.1")
        self._wishes = [(WISH_PROPERTY, wish) for wish in options.pop("wishes", ())]
        self.protocol = ClientConnection(client_id, **options)
        self.connack: Connack
        self._events: list[Packet | Closed] = []
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self, port: int) -> "Client":
        await self.open(port)
        self.connack = await self.expect(Connack)
        return self

    async def open(self, port: int) -> None:
        """Connects and sends the CONNECT, without waiting for its answer."""
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader()
        line = _Line(self._reader)
        transport, _ = await loop.create_connection(lambda: line, "127.0.0.1", port, local_addr=(self._address, 0))
        self._writer = asyncio.StreamWriter(transport, line, self._reader, loop)
        _writers.append(self._writer)
        self.protocol.connect(_now_ms(), {USER_PROPERTY: self._wishes} if self._wishes else {})
        self.flush()

    def flush(self) -> None:
        self._writer.write(self.protocol.data_to_send())

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self, size: int) -> bytes:
        """So many bytes as they come, past the protocol core."""
        return await asyncio.wait_for(self._reader.readexactly(size), LONG_S)

    async def event(self) -> Packet | Closed | None:
        """The next event, or None when the connection has ended without one."""
        while (event := self.protocol.next_event()) is None:
            self.flush()
            data = await asyncio.wait_for(self._reader.read(65536), LONG_S)
            if not data:
                return None
            self.protocol.receive_data(data, _now_ms())
            self.flush()
        return event

    async def expect(self, kind: type[Kind]) -> Kind:
        event = await self.event()
        assert isinstance(event, kind), f"{kind.__name__} expected, got {event!r}"
        return event

    async def silent(self, for_s: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        try:
            async with asyncio.timeout(for_s):
                while (event := self.protocol.next_event()) is None:
                    data = await self._reader.read(65536)
                    assert data, "silence expected, but the connection has ended"
                    self.protocol.receive_data(data, _now_ms())
        except TimeoutError:
            return True
        raise AssertionError(f"silence expected, got {event!r}")

    async def subscribe(self, *filters: str, options: int = 1) -> list[int]:
        self.protocol.subscribe([(topic_filter, options) for topic_filter in filters])
        self.flush()
        return (await self.expect(Suback)).reason_codes

    async def unsubscribe(self, *filters: str) -> list[int]:
        self.protocol.unsubscribe(list(filters))
        self.flush()
        return (await self.expect(Unsuback)).reason_codes

    def send(self, topic: str, payload: bytes = b"", **options: Any) -> int | None:
        packet_identifier = self.protocol.publish(topic, payload, **options)
        self.flush()
        return packet_identifier

    async def publish(self, topic: str, payload: bytes = b"", **options: Any) -> Puback:
        """Publishes at QoS 1 and waits for the PUBACK."""
        packet_identifier = self.send(topic, payload, **options)
        puback = await self.expect(Puback)
        assert (puback.packet_identifier, puback.reason_code) == (packet_identifier, 0)
        return puback

    async def publish_once(self, topic: str, payload: bytes = b"", **options: Any) -> None:
        """Publishes at QoS 2, to its PUBCOMP."""
        packet_identifier = self.send(topic, payload, qos=2, **options)
        assert packet_identifier is not None
        pubrec = await self.expect(Pubrec)
        assert (pubrec.packet_identifier, pubrec.reason_code) == (packet_identifier, 0)
        self.release(packet_identifier)
        assert (await self.expect(Pubcomp)).packet_identifier == packet_identifier

    def release(self, packet_identifier: int) -> None:
        self.protocol.pubrel(packet_identifier)
        self.flush()

    async def receive(self) -> Publish:
        """The next message, acknowledged to its end."""
        packet = await self.expect(Publish)
        if packet.packet_identifier is not None:
            self.acknowledge(packet)
        if packet.qos == 2:
            assert (await self.expect(Pubrel)).packet_identifier == packet.packet_identifier
            self.complete(packet)
        return packet

    def acknowledge(self, packet: Publish) -> None:
        """Sends its PUBACK or PUBREC."""
        assert packet.packet_identifier is not None
        answer = self.protocol.puback if packet.qos == 1 else self.protocol.pubrec
        answer(packet.packet_identifier)
        self.flush()

    def complete(self, packet: Publish) -> None:
        assert packet.packet_identifier is not None
        self.protocol.pubcomp(packet.packet_identifier)
        self.flush()

    async def disconnect(self) -> None:
        self.protocol.disconnect()
        self.flush()
        await self._writer.drain()
        assert await self._reader.read() == b""
        self._writer.close()

    def cut(self) -> None:
        """Ends the connection without a word."""
        self._writer.transport.abort()


class _Line(asyncio.StreamReaderProtocol):
    """A client's end of a connection, which closes when the broker's does: a broker that ends waits for that."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


def user_property(packet: Publish, name: str) -> str | None:
    return dict(packet.properties.get(USER_PROPERTY, ())).get(name)


async def hang_up() -> None:
    """Ends what connections and processes a test has left."""
    for process in list(_processes):
        await process.kill()
    while _writers:
        writer = _writers.pop()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class GatewayProcess:
    """A gateway in a process of its own, to be killed; ``wrapper`` is a command that runs it."""

    def __init__(self, folder: Path, *wrapper: str) -> None:
        self.port = 0
        self._folder = folder
        self._wrapper = wrapper
        self._pid = 0
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        program = str(Path(__file__).with_name("process.py"))
        self._process = await asyncio.create_subprocess_exec(
            *self._wrapper,
            sys.executable,
            program,
            str(self._folder),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), LONG_S)
        self.port, self._pid = (int(word) for word in line.split())
        _processes.add(self)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        os.kill(self._pid, number)
        _processes.discard(self)
        assert self._process.stdout is not None
        await asyncio.wait_for(self._process.stdout.read(), LONG_S)  # its end may be seen before that of its pipe
        return await asyncio.wait_for(self._process.wait(), LONG_S)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def reasons_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why connections ended and logins were refused, by the log."""
    abouts = [getattr(record, "about", {}) for record in caplog.records]
    return [about["reason"] for about in abouts if "reason" in about]


def said_of(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """What each line of the log with this event is about."""
    return [getattr(record, "about", {}) for record in caplog.records if record.getMessage() == event]
