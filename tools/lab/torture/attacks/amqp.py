"""Attacks by a broker that speaks AMQP 1.0. They need Apache Qpid Proton, as the route does."""

import asyncio
import importlib.util
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tools.lab.torture.attacks.line import PIECE, filled
from tools.lab.torture.attacks.peer import Peer
from tools.lab.torture.attacks.server import dropping, serve

FRAME = 16_000  # bytes of a message in one frame
CREDIT = 1_000


class Broker:
    """One connection, on which it lets the route in and grants it all. It has no memory of what it sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import proton

        self._proton = proton
        self._reader, self._writer = reader, writer
        self._engine = proton.Transport(proton.Transport.SERVER)
        sasl = self._engine.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        sasl.done(sasl.OK)
        self._connection = proton.Connection()
        self._collector = proton.Collector()
        self._connection.collect(self._collector)
        self._engine.bind(self._connection)
        self.sender: Any = None

    async def let_in(self) -> None:
        """Answers until the route has granted credit for messages. Raises ConnectionError."""
        while self.sender is None or not self.sender.credit:
            data = await self._reader.read(PIECE)
            if not data:
                raise ConnectionResetError
            self._engine.push(data)
            while (event := self._collector.peek()) is not None:
                self._answer(event)
                self._collector.pop()
            await self.flush()

    def _answer(self, event: Any) -> None:
        kinds = self._proton.Event
        if event.type == kinds.CONNECTION_REMOTE_OPEN:
            event.connection.open()
        elif event.type == kinds.SESSION_REMOTE_OPEN:
            event.session.open()
        elif event.type == kinds.LINK_REMOTE_OPEN:
            event.link.source.copy(event.link.remote_source)
            event.link.target.copy(event.link.remote_target)
            event.link.open()
            if event.link.is_sender:
                self.sender = event.link
            else:
                event.link.flow(CREDIT)

    async def flush(self) -> None:
        while (pending := self._engine.pending()) > 0:
            await self.write(self._engine.peek(pending) or b"")
            self._engine.pop(pending)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


async def send_to_each(port: int, attack: Callable[[Broker], AsyncIterator[bytes]]) -> None:
    """Lets each connection in, and sends it what the attack yields."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker = Broker(reader, writer)
        await broker.let_in()
        async with dropping(reader) as reading:
            async for data in attack(broker):
                await broker.write(data)
            await reading

    await serve(port, answer)


def _frame(performative: bytes, payload: bytes = b"") -> bytes:
    body = performative + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\0\0\0" + body


def _list(code: int, *fields: bytes) -> bytes:
    packed = b"".join(fields)
    return bytes((0, 0x53, code, 0xC0, len(packed) + 1, len(fields))) + packed


def _uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def transfer(number: int, payload: bytes, *, more: bool) -> bytes:
    """Returns a transfer on the first link: its handle, delivery's identifier and tag, format, settled, more."""
    tag = b"\xa0\4" + (number & 0xFFFFFFFF).to_bytes(4, "big")
    fields = (_uint(0), _uint(number), tag, b"\x43", b"\x42", b"\x41" if more else b"\x42")
    return _frame(_list(0x14, *fields), payload)


def _again(data: bytes) -> Callable[[Broker], AsyncIterator[bytes]]:
    async def pieces(broker: Broker) -> AsyncIterator[bytes]:
        while True:
            yield filled(data)

    return pieces


async def amqp_flows(port: int, other: int) -> None:
    """Flow frames: an AMQP broker grants the same credit again and again."""
    flow = _frame(_list(0x13, *(_uint(one) for one in (0, 1 << 20, 0, 1 << 20))))
    await send_to_each(other, _again(flow))


async def amqp_outcomes(port: int, other: int) -> None:
    """Outcomes of deliveries that there are not."""
    disposition = _frame(_list(0x15, b"\x41", _uint(0), _uint(1 << 20), b"\x41", b"\0\x53\x24\x45"))
    await send_to_each(other, _again(disposition))


async def amqp_messages(port: int, other: int) -> None:
    """Messages of the smallest size, as many as come, beyond the credit."""

    async def pieces(broker: Broker) -> AsyncIterator[bytes]:
        for first in itertools.count(0, 1_000):
            yield b"".join(transfer(first + n, b"\0\x53\x75\xa0\0", more=False) for n in range(1_000))

    await send_to_each(other, pieces)


def _properties(count: int) -> bytes:
    """Returns a message with application properties."""
    import proton

    return bytes(proton.Message(body=b"", subject="a", properties={f"{n:x}": "" for n in range(count)}).encode())


def _nested(depth: int) -> bytes:
    """Returns a message whose body is a list in a list, and so on."""
    body = b"\x45"
    for _ in range(depth):
        body = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\0\0\0\1" + body
    return b"\0\x53\x77" + body


async def cut(messages: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the frames of messages, one after the other."""
    for number, message in enumerate(messages):
        for start in range(0, len(message), FRAME):
            yield transfer(number, message[start : start + FRAME], more=start + FRAME < len(message))


async def amqp_properties(port: int, other: int) -> None:
    """Messages with thirty thousand properties."""
    message = _properties(30_000)
    await send_to_each(other, lambda broker: cut(itertools.repeat(message)))


async def amqp_nested(port: int, other: int) -> None:
    """Messages with lists that are nested thousands of times."""
    message = _nested(20_000)
    await send_to_each(other, lambda broker: cut(itertools.repeat(message)))


async def amqp_large(port: int, other: int) -> None:
    """A message that never ends."""

    async def pieces(broker: Broker) -> AsyncIterator[bytes]:
        while True:
            yield transfer(0, bytes(FRAME), more=True)

    await send_to_each(other, pieces)


_AMQP = """
[[route]]
kind = "amqp"
name = "amqp"
servers = ["amqp://127.0.0.1:{other}"]
address = "/queue/out"
backoff_shortest_ms = 10
backoff_longest_ms = 100
filters = []
[[route.incoming]]
address = "/queue/in"
topic = "a/#"
"""
ATTACKS = tuple(
    Peer(attack, _AMQP)
    for attack in (amqp_flows, amqp_outcomes, amqp_messages, amqp_properties, amqp_nested, amqp_large)
    if importlib.util.find_spec("proton") is not None
)
