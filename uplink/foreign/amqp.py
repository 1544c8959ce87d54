"""AMQP 1.0 as a transport, by Apache Qpid Proton: its engine reads and writes no socket, so it runs in this event loop.

A message is sent unsettled, and the broker's outcome says what has become of it [OASIS AMQP 1.0, part 3, section 3.4]:
accepted is custody; released and modified are "later"; rejected is "never".
"""

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import proton
from proton import SASL, Delivery, Event, Message, Transport

from gateway.routes import Slice
from uplink.foreign.config import AMQP_PORTS, Address, AmqpConfig, parse_address
from uplink.foreign.headers import CONTENT_TYPE, read_identity
from uplink.foreign.transport import (
    Answer,
    Answered,
    Arrival,
    CannotCarry,
    Importer,
    Login,
    NotLetIn,
    Parcel,
    TransportDown,
    Verdict,
)

CONNECT_DEADLINE_S = 10
IDLE_S = 30
TICK_S = 1.0
CREDIT = 256  # messages that a source may have on their way to here
WRITE_BUFFER = 1 << 20  # bytes on the line, beyond which nothing more is sent
PIECE = 2048  # bytes that are read at a time: 50 of the smallest frames
RECEIVED_MAX = 64 * 1024  # bytes that were not read; beyond it TCP stops the broker
MESSAGE_MAX = 8 << 20  # bytes of a message with its properties
OUTCOMES = {
    Delivery.ACCEPTED: Verdict.TAKEN,
    Delivery.REJECTED: Verdict.NEVER,
    Delivery.RELEASED: Verdict.LATER,
    Delivery.MODIFIED: Verdict.LATER,
}


@dataclass(slots=True)
class _Sent:
    answered: Answered
    sent_s: float


class Amqp(asyncio.Protocol):
    """One connection to a broker that speaks AMQP 1.0.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        login: the password and the TLS context.
    """

    problem: str

    def __init__(self, config: AmqpConfig, gateway_name: str, login: Login) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.server = self.problem = ""
        self._config = config
        self._name = f"{gateway_name}-{config.name}"
        self._password, self._tls = login
        self._begin_engine("")

    def _begin_engine(self, host: str) -> None:
        self._line: asyncio.Transport | None = None
        self._collector = proton.Collector()
        self._connection = proton.Connection()
        self._connection.collect(self._collector)
        self._connection.container = self._name
        virtual_host = self._config.virtual_host
        self._connection.hostname = host if virtual_host is None else f"vhost:{virtual_host}"
        self._engine = Transport()
        self._engine.idle_timeout = IDLE_S
        self._session: Any = None
        self._sender: Any = None
        self._count = 0
        self._pending: dict[str, _Sent] = {}  # without an outcome, by delivery tag, the oldest first
        self._receiving: dict[str, Callable[[Any], None]] = {}  # what takes the deliveries of a link, by its name
        self._news = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._received: deque[bytes] = deque()
        self._received_size = 0
        self._reading: asyncio.Task[None] | None = None
        self._skipped: set[str] = set()  # links whose delivery is too large, of which the rest still comes
        self._fault = ""  # why the broker ends the connection
        self._has_begun = False

    async def connect(self) -> None:
        faults, refusals = [], 0
        for url in self._config.servers:
            address = parse_address(url, AMQP_PORTS)
            try:
                await self._connect_to(address)
            except (OSError, TransportDown) as error:
                faults.append(f"{address}: {self._fault or error or type(error).__name__}")
                refusals += self._is_login_refused or isinstance(error, ssl.SSLCertVerificationError)
                if self._line is not None:
                    self._line.abort()
            else:
                self.server = str(address)
                self._ticking = asyncio.get_running_loop().create_task(self._tick())
                return
        raise (NotLetIn if refusals == len(faults) else TransportDown)("; ".join(faults))

    @property
    def _is_login_refused(self) -> bool:
        """Whether the broker has refused the user and the password, or the virtual host.

        Source: OASIS AMQP 1.0, part 5, section 5.3.3.6, for the outcome of SASL, and part 2, section 2.8.15.
        """
        condition = self._connection.remote_condition
        is_denied = condition is not None and condition.name in ("amqp:unauthorized-access", "amqp:not-allowed")
        return is_denied or self._engine.sasl().outcome in (SASL.AUTH, SASL.PERM)

    async def _connect_to(self, address: Address) -> None:
        self._begin_engine(address.host)
        sasl = self._engine.sasl()
        if self._config.user is None:
            sasl.allowed_mechs("ANONYMOUS")
        else:
            sasl.allowed_mechs("PLAIN")
            sasl.allow_insecure_mechs = True
            self._connection.user = self._config.user
            self._connection.password = (self._password or b"").decode()
        self._connection.open()
        self._session = self._connection.session()
        self._session.open()
        self._sender = self._session.sender(f"{self._name}-out")
        self._sender.target.address = self._config.address
        self._sender.target.durability = proton.Terminus.DELIVERIES  # or RabbitMQ makes a queue that a restart empties
        self._sender.snd_settle_mode = proton.Link.SND_UNSETTLED
        if self._config.filters:
            self._sender.open()
        self._engine.bind(self._connection)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: self, address.host, address.port, ssl=self._tls
                )
                while not self._is_open:
                    self._news.clear()
                    await self._news.wait()
                    if self._fault:
                        raise TransportDown(self._fault)
        except TimeoutError:
            raise TransportDown(f"no answer in {CONNECT_DEADLINE_S} s") from None
        self._has_begun = True

    @property
    def _is_open(self) -> bool:
        """Whether the broker has let the route in, and takes messages at the target address."""
        if not self._connection.state & proton.Endpoint.REMOTE_ACTIVE:
            return False
        return not self._config.filters or bool(self._sender.state & proton.Endpoint.REMOTE_ACTIVE)

    def connection_made(self, line: asyncio.BaseTransport) -> None:
        self._line = cast(asyncio.Transport, line)  # uvloop's is none by its class
        self._write()

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._received_size += len(data)
        if self._received_size >= RECEIVED_MAX and self._line is not None:
            self._line.pause_reading()
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Reads what has come in time slices: each frame costs as much, however small it is."""
        slice_ = Slice()
        while self._received:
            data = self._received.popleft()
            self._received_size -= len(data)
            for start in range(0, len(data), PIECE):
                if slice_.is_over:
                    await slice_.give_way()
                self._push(data[start : start + PIECE])
        self._reading = None
        if self._line is not None and not self._line.is_closing():
            self._line.resume_reading()

    def _push(self, data: bytes) -> None:
        try:
            while data:
                capacity = self._engine.capacity()
                if capacity <= 0:
                    break
                self._engine.push(data[:capacity])
                data = data[capacity:]
                self._handle_events()
        except proton.ProtonException as error:
            self._fail(f"what the broker sends cannot be read: {error}")
        self._write()

    def connection_lost(self, error: Exception | None) -> None:
        if self._reading is not None:  # it may have said why it ends the connection
            self._reading.add_done_callback(lambda _: self._end_of_line(error))
        else:
            self._end_of_line(error)

    def _end_of_line(self, error: Exception | None) -> None:
        with contextlib.suppress(proton.ProtonException):
            self._engine.close_tail()  # it may know why the broker ends it
        self._handle_events()
        self._fail(f"the connection has ended: {error}" if error else "the broker has ended the connection")

    def pause_writing(self) -> None:
        """The line is full; ``send`` looks for itself."""

    def resume_writing(self) -> None:
        self._news.set()

    def _write(self) -> None:
        """Writes what the engine has for the line."""
        if self._line is None or self._line.is_closing():
            return
        with contextlib.suppress(proton.ProtonException):
            while (pending := self._engine.pending()) > 0:
                self._line.write(self._engine.peek(pending) or b"")
                self._engine.pop(pending)
            if pending < 0:
                self._line.close()

    def _handle_events(self) -> None:
        while (event := self._collector.peek()) is not None:
            self._handle(event)
            self._collector.pop()
        self._news.set()

    def _handle(self, event: Any) -> None:
        if event.type == Event.DELIVERY:
            self._take_delivery(event.delivery)
        elif event.type in (Event.CONNECTION_REMOTE_CLOSE, Event.SESSION_REMOTE_CLOSE, Event.LINK_REMOTE_CLOSE):
            context = event.context
            condition = getattr(context, "remote_condition", None)
            if event.type == Event.LINK_REMOTE_CLOSE:
                end = context.source if context.is_receiver else context.target
                self._fail(f"the broker ends the link to {end.address!r}: {condition or 'no reason given'}")
            else:
                self._fail(f"the broker ends the connection: {condition or 'no reason given'}")
        elif event.type == Event.TRANSPORT_ERROR:
            self._fail(str(self._engine.condition or "the connection has failed"))

    def _take_delivery(self, delivery: Any) -> None:
        link = delivery.link
        if link.is_receiver:
            self._take_received(delivery)
        elif delivery.updated and (delivery.remote_state in OUTCOMES or delivery.settled):
            sent = self._pending.pop(delivery.tag, None)
            state = delivery.remote_state
            delivery.settle()
            if sent is not None:
                verdict = OUTCOMES.get(state, Verdict.LATER)
                sent.answered(Answer(verdict, "" if verdict is Verdict.TAKEN else f"the broker answers {state}"))

    def _take_received(self, delivery: Any) -> None:
        """Takes a message when it is whole. One that is too large stays with the broker, without an outcome."""
        link = delivery.link
        if link.credit < 0:
            self._fail("the broker sends more messages than it may")
        elif link.name in self._skipped or delivery.pending > MESSAGE_MAX:
            self.problem = f"a message at {link.source.address!r} has more than {MESSAGE_MAX} bytes, and stays there"
            link.recv(delivery.pending)
            if delivery.partial:
                self._skipped.add(link.name)
            else:
                self._skipped.discard(link.name)
                link.advance()
        elif delivery.readable and not delivery.partial:
            self._receiving[link.name](delivery)

    async def send(self, parcel: Parcel, answered: Answered) -> None:
        headers = dict(parcel.headers)
        message = Message(
            body=parcel.payload,
            subject=parcel.name,
            id=parcel.identity or None,
            content_type=headers.pop(CONTENT_TYPE, None),
            properties=headers,
            durable=True,
            inferred=True,  # the payload is data, not a value
        )
        encoded = message.encode()
        if 0 < self._sender.remote_max_message_size < len(encoded):
            most = self._sender.remote_max_message_size
            raise CannotCarry(f"it has {len(encoded)} bytes, and the broker takes {most} at most")
        await self._wait_for_credit()
        self._count += 1
        tag = str(self._count)
        self._pending[tag] = _Sent(answered, time.monotonic())
        self._sender.delivery(tag)
        self._sender.send(encoded)
        self._sender.advance()
        if self._engine.pending() > WRITE_BUFFER // 16:
            self._write()

    async def _wait_for_credit(self) -> None:
        while True:
            if self.ended.done():
                raise TransportDown(self.ended.result())
            is_full = self._line is None or self._line.get_write_buffer_size() > WRITE_BUFFER
            if self._sender.credit > 0 and not is_full:
                return
            self._write()
            self._news.clear()
            await self._news.wait()

    async def flush(self) -> None:
        self._write()

    async def receive(self, importer: Importer) -> None:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(self._config.incoming):
                link = self._session.receiver(f"{self._name}-in-{number}")
                link.source.address = one.address
                link.source.durability = proton.Terminus.DELIVERIES
                granting = asyncio.Event()
                granting.set()
                self._receiving[link.name] = partial(self._take, importer, granting, one.address)
                link.open()
                group.create_task(self._grant(link, granting, importer))

    async def _grant(self, link: Any, granting: asyncio.Event, importer: Importer) -> None:
        """Lets more messages come as there is room, for ever."""
        while True:
            await granting.wait()
            granting.clear()
            await importer.wait_for_room()
            if (more := CREDIT - link.credit) > CREDIT // 4:
                link.flow(more)
                self._write()

    def _take(self, importer: Importer, granting: asyncio.Event, address: str, delivery: Any) -> None:
        """Takes a message that came whole."""
        link = delivery.link
        data = link.recv(delivery.pending)
        link.advance()
        granting.set()
        place = f"{address}, at {time.time_ns()}"  # the broker's tags are no text, and the same over each connection
        importer.take([_arrival(data, place, partial(self._acknowledge, delivery))])

    def _acknowledge(self, delivery: Any) -> None:
        if not self.ended.done():
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
            asyncio.get_running_loop().call_soon(self._write)

    async def _tick(self) -> None:
        """Keeps the connection alive, and ends it when the broker leaves a message without an outcome for too long."""
        while True:
            await asyncio.sleep(TICK_S)
            self._engine.tick(time.monotonic())
            self._handle_events()
            self._write()
            oldest = next(iter(self._pending.values()), None)
            if oldest is not None and time.monotonic() - oldest.sent_s > self._config.retry_interval_s:
                self._fail(f"the broker has not acknowledged a message for {self._config.retry_interval_s} s")

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._line is not None and not self.ended.done():
            self._connection.close()
            self._write()
        self._fail("the route ends")
        if self._line is not None:
            self._line.close()

    def _fail(self, why: str) -> None:
        """The connection ends, or could not be made."""
        self._fault = self._fault or why
        self._news.set()
        if self._has_begun and not self.ended.done():
            self.ended.set_result(self._fault)


def _arrival(data: bytes, place: str, acknowledge: Callable[[], None]) -> Arrival:
    """Returns a message from its encoding, or what is wrong with it."""
    message = Message()
    try:
        message.decode(data)
    except (proton.ProtonException, ValueError) as error:
        return Arrival(Parcel("", {}, data), place, acknowledge, f"it cannot be read: {error}")
    brought: dict[Any, Any] = message.properties or {}
    headers = {str(name): str(value) for name, value in brought.items()}
    if message.content_type:
        headers[CONTENT_TYPE] = str(message.content_type)
    identity = read_identity(message.id) if isinstance(message.id, str) else ""
    body, fault = message.body, ""
    if isinstance(body, str):
        payload = body.encode()
    elif isinstance(body, bytes | bytearray | memoryview):
        payload = bytes(body)
    else:
        payload, fault = data, "" if body is None else "its body is neither bytes nor text"
        payload = b"" if body is None else data
    if not message.subject:
        fault = "it has no subject, which would be its topic name"
    return Arrival(Parcel(str(message.subject or ""), headers, payload, identity), place, acknowledge, fault)
