"""One connection to the broker under check. It is not `tools.lab.testing.client`: a check sends packets that no client
may send, and judges each packet that comes, so that this client follows no protocol state."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from tools.lab.check.outcome import Closed, Failed
from wire.codec.packets import (
    Connack,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    encode,
)
from wire.errors import RemoteProtocolError
from wire.properties import TOPIC_ALIAS
from wire.reasons import IMPLEMENTATION_SPECIFIC_ERROR, UNSPECIFIED_ERROR, describe

DEADLINE_S = 10.0
PATIENCE_S = 1.0  # after so long without a packet the client sends a PINGREQ

NO_REASON = (UNSPECIFIED_ERROR, IMPLEMENTATION_SPECIFIC_ERROR)
"""A server may end any connection with these general reason codes."""

Kind = TypeVar("Kind", bound=Packet)
Answer = TypeVar("Answer", Puback, Pubrec, Pubcomp)


class Client:
    """A client that acknowledges nothing and sends no PINGREQ unless the check tells it to.

    Args:
        reader, writer: the connection.
        level: the protocol level in which packets are written and read.

    Every method that waits raises Failed if another packet comes, if a packet is ill-formed, or if none comes in time.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int) -> None:
        self.level = level
        self.client_id = ""
        self.connack: Connack
        self.received: list[Packet] = []  # all packets, in order
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(level=level)
        self._pending: list[Packet] = []
        self._topics: dict[int, str] = {}
        self._identifier = self._markers = 0

    def identifier(self) -> int:
        """Returns a packet identifier that this client has not used yet."""
        self._identifier += 1
        return self._identifier

    async def send(self, *packets: Packet | bytes) -> None:
        """Sends packets, or plain bytes, in one piece."""
        pieces = [packet if isinstance(packet, bytes) else encode(packet, self.level) for packet in packets]
        if self._writer.is_closing():
            return  # the next read notices the end of the connection
        with contextlib.suppress(ConnectionError):
            self._writer.write(b"".join(pieces))
            await self._writer.drain()

    async def expect(self, kind: type[Kind], **fields: Any) -> Kind:
        """Returns the next packet of this kind, with these fields; packets of other kinds wait for later calls."""
        expected = _words(kind, fields)
        packet = await self._next(kind, expected)
        if any(getattr(packet, name) != value for name, value in fields.items()):
            raise Failed(expected, repr(packet))
        return packet

    async def first_packet(self) -> Packet:
        """Returns the first packet that the broker sends."""
        try:
            packet = await self._read("an answer", DEADLINE_S)
        except TimeoutError:
            raise Failed("an answer", f"nothing within {DEADLINE_S:.0f} s") from None
        if packet is None:
            raise Closed("an answer", "an end of the connection")
        return packet

    async def expect_or_close(self, kind: type[Kind]) -> Kind | None:
        """Returns the next packet of this kind; None if the broker closes the connection instead."""
        try:
            return await self.expect(kind)
        except Closed:
            return None

    def put_back(self, packet: Packet) -> None:
        """Puts the packet back: it is the next of its kind again."""
        self._pending.insert(0, packet)

    async def expect_no(self, kind: type[Packet]) -> None:
        """Checks that no packet of this kind comes before the answer to a PINGREQ."""
        await self.ping()
        for packet in self._pending:
            if type(packet) is kind:
                raise Failed(f"no {kind.__name__.upper()}", repr(packet))

    async def expect_no_message(self) -> None:
        """Checks that no message comes before the one that this client sends to itself now."""
        self._markers += 1
        topic = f"hfcheck/{self.client_id}/marker{self._markers}"
        await self.subscribe(topic, options=1)
        await self.publish(topic, qos=1)
        message = await self.receive()
        if message.topic != topic:
            raise Failed("no message", repr(message))

    async def expect_closed(self, *reason_codes: int) -> None:
        """Checks that the broker closes the connection; a DISCONNECT has one of these reasons or a general one."""
        expected = "that the broker closes the connection"
        asked = False
        while True:
            try:
                packet = await self._read(expected, DEADLINE_S if asked else PATIENCE_S)
            except TimeoutError:
                if asked:
                    raise Failed(expected, f"nothing within {DEADLINE_S:.0f} s") from None
                asked = True
                await self.send(Pingreq())
                continue
            if packet is None:
                break
            if asked and isinstance(packet, Pingresp):
                raise Failed(expected, "the connection stays open, and a PINGREQ is answered")
        said = [packet for packet in self.received if type(packet) is Disconnect]
        if said and reason_codes and said[0].reason_code not in (*reason_codes, *NO_REASON):
            raise Failed(" or ".join(map(describe, reason_codes)), describe(said[0].reason_code))

    async def read_to_end(self) -> bytes:
        """Returns the bytes that come until the broker closes the connection."""
        try:
            return await asyncio.wait_for(self._reader.read(), DEADLINE_S)
        except TimeoutError:
            raise Failed("that the broker closes the connection", "it stays open") from None
        except ConnectionError:
            return b""

    async def ping(self) -> None:
        await self.send(Pingreq())
        await self.expect(Pingresp)

    async def subscribe(self, *filters: str, options: int = 0, properties: dict[int, Any] | None = None) -> Suback:
        """Subscribes to each filter with the same options; the broker must grant all."""
        identifier = self.identifier()
        await self.send(Subscribe(identifier, [(topic_filter, options) for topic_filter in filters], properties))
        suback = await self.expect(Suback, packet_identifier=identifier)
        if max(suback.reason_codes) >= UNSPECIFIED_ERROR:
            raise Failed(f"that {filters} are granted", repr(suback))
        return suback

    async def unsubscribe(self, *filters: str) -> Unsuback:
        identifier = self.identifier()
        await self.send(Unsubscribe(identifier, list(filters)))
        return await self.expect(Unsuback, packet_identifier=identifier)

    async def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **fields: Any) -> None:
        """Publishes and completes the exchange of the QoS; the broker must accept the message."""
        identifier = self.identifier() if qos else None
        await self.exchange(Publish(topic, payload, qos, packet_identifier=identifier, **fields))

    async def exchange(self, message: Publish) -> None:
        """Sends a message and completes the exchange of its QoS; the broker must accept it."""
        identifier = message.packet_identifier
        await self.send(message)
        if message.qos == 1:
            _taken(await self.expect(Puback, packet_identifier=identifier))
        elif message.qos == 2:
            _taken(await self.expect(Pubrec, packet_identifier=identifier))
            await self.send(Pubrel(cast(int, identifier)))
            await self.expect(Pubcomp, packet_identifier=identifier, reason_code=0)

    async def publish_all(self, topic: str, payloads: Iterable[bytes], qos: int = 1) -> None:
        """Publishes one message for each payload."""
        for payload in payloads:
            await self.publish(topic, payload, qos=qos)

    async def answer(self, kind: type[Answer], message: Publish, reason_code: int = 0) -> None:
        """Sends an acknowledgement of this kind for a message."""
        await self.send(kind(cast(int, message.packet_identifier), reason_code))

    async def receive(self, **fields: Any) -> Publish:
        """Returns the next message, which must have these fields, and completes the exchange of its QoS."""
        message = await self.expect(Publish, **fields)
        await self.complete(message)
        return message

    async def complete(self, message: Publish) -> None:
        """Completes the exchange of a message's QoS."""
        if message.qos == 1:
            await self.answer(Puback, message)
        elif message.qos == 2:
            await self.answer(Pubrec, message)
            await self.expect(Pubrel, packet_identifier=message.packet_identifier, reason_code=0)
            await self.answer(Pubcomp, message)

    async def disconnect(self, reason_code: int = 0, properties: dict[int, Any] | None = None) -> None:
        """Sends DISCONNECT and waits until the broker has closed the connection."""
        await self.send(Disconnect(reason_code, properties))
        await self.close()

    async def close(self) -> None:
        """Closes the sending side, where that is possible, and waits until the broker has closed the connection."""
        try:
            if self._writer.can_write_eof():  # TLS cannot
                self._writer.write_eof()
            await asyncio.wait_for(self._reader.read(), DEADLINE_S)
        except (OSError, TimeoutError):
            pass
        self.cut()

    def cut(self) -> None:
        """Ends the connection without a DISCONNECT."""
        self._writer.transport.abort()

    async def _next(self, kind: type[Kind], expected: str) -> Kind:
        for earlier in self._pending:
            if type(earlier) is kind:
                self._pending.remove(earlier)
                return earlier
        while True:
            try:
                packet = await self._read(expected, DEADLINE_S)
            except TimeoutError:
                raise Failed(expected, f"nothing within {DEADLINE_S:.0f} s, only {self._pending}") from None
            if packet is None:
                raise Closed(expected, f"an end of the connection behind {self.received[-1:]}")
            if type(packet) is kind:
                return packet
            self._pending.append(packet)

    async def _read(self, expected: str, seconds: float) -> Packet | None:
        """Returns the next packet; None if the broker has closed the connection. Raises TimeoutError."""
        try:
            while (packet := self._decoder.next_packet()) is None:
                data = await asyncio.wait_for(self._reader.read(65536), seconds)
                if not data:
                    return None
                self._decoder.feed(data)
        except RemoteProtocolError as error:
            raise Failed(expected, f"an ill-formed packet: {error}") from error
        except ConnectionError:
            return None
        if self.received and type(self.received[-1]) is Disconnect:
            raise Failed("no packet behind a DISCONNECT", repr(packet))
        if isinstance(packet, Publish) and (alias := packet.properties.get(TOPIC_ALIAS)):
            packet.topic = self._topics[alias] = packet.topic or self._topics.get(alias, "")
        self.received.append(packet)
        return packet


async def first_of(clients: Sequence[Client], kind: type[Kind]) -> tuple[Client, Kind]:
    """Returns the client that first receives a packet of this kind, and the packet."""
    waiting = {asyncio.ensure_future(client.expect(kind)): client for client in clients}
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.wait(waiting)
    came = [(client, task.result()) for task, client in waiting.items() if not (task.cancelled() or task.exception())]
    if not came:
        done.pop().result()
    for client, packet in came[1:]:
        client.put_back(packet)
    return came[0]


async def elapse(seconds: float) -> None:
    """Waits for a time that the standard defines: an expiry, a delay. Checks do not use it to wait for the broker."""
    await asyncio.sleep(seconds)


def _taken(packet: Puback | Pubrec) -> None:
    if packet.reason_code >= UNSPECIFIED_ERROR:
        raise Failed("that the broker takes the message", repr(packet))


def _words(kind: type[Packet], fields: dict[str, Any]) -> str:
    details = ", ".join(f"{name} {value!r}" for name, value in fields.items())
    return f"{kind.__name__.upper()}{' with ' if details else ''}{details}"
