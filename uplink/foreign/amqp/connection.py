"""AMQP 1.0 as a transport, by Apache Qpid Proton: its engine reads and writes no socket, so it runs in this event loop.

A message is sent unsettled, and the broker's outcome says what has become of it [OASIS AMQP 1.0, part 3, section 3.4]:
accepted is custody; released and modified are "later"; rejected is "never".
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import proton
from proton import SASL, Delivery, Event, Message

from uplink.foreign.amqp.line import Line
from uplink.foreign.config import AMQP_PORTS, Address, AmqpConfig, parse_address
from uplink.foreign.headers import CONTENT_TYPE, read_identity
from uplink.foreign.transport import (
    UNREADABLE,
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
TICK_S = 1.0
CREDIT = 256  # messages that a source may have on their way to here
NO_SYMBOL = str(proton.symbol(None))  # the library's symbol for none at all
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


class Amqp:
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
        self._begin_line("")

    def _begin_line(self, host: str) -> None:
        self._connection = proton.Connection()
        self._connection.container = self._name
        virtual_host = self._config.virtual_host
        self._connection.hostname = host if virtual_host is None else f"vhost:{virtual_host}"
        self._line = Line(self._connection, self._handle, self._fail)
        self._session: Any = None
        self._sender: Any = None
        self._count = 0
        self._pending: dict[str, _Sent] = {}  # without an outcome, by delivery tag, the oldest first
        self._receiving: dict[str, Callable[[Any], None]] = {}  # what takes the deliveries of a link, by its name
        self._ticking: asyncio.Task[None] | None = None
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
        return is_denied or self._line.engine.sasl().outcome in (SASL.AUTH, SASL.PERM)

    async def _connect_to(self, address: Address) -> None:
        self._begin_line(address.host)
        sasl = self._line.engine.sasl()
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
        self._line.engine.bind(self._connection)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await self._line.open(address.host, address.port, self._tls)
                while not self._is_open:
                    await self._line.next_news()
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
            self._fail(str(self._line.engine.condition or "the connection has failed"))

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
        self._line.write_much()

    async def _wait_for_credit(self) -> None:
        while True:
            if self.ended.done():
                raise TransportDown(self.ended.result())
            if self._sender.credit > 0 and not self._line.is_full:
                return
            self._line.write()
            await self._line.next_news()

    async def flush(self) -> None:
        self._line.write()

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
                self._line.write()

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
            asyncio.get_running_loop().call_soon(self._line.write)

    async def _tick(self) -> None:
        """Keeps the connection alive, and ends it when the broker leaves a message without an outcome for too long."""
        while True:
            await asyncio.sleep(TICK_S)
            self._line.tick()
            oldest = next(iter(self._pending.values()), None)
            if oldest is not None and time.monotonic() - oldest.sent_s > self._config.retry_interval_s:
                self._fail(f"the broker has not acknowledged a message for {self._config.retry_interval_s} s")

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if not self.ended.done():
            self._connection.close()
            self._line.write()
        self._fail("the route ends")
        self._line.close()

    def _fail(self, why: str) -> None:
        """The connection ends, or could not be made."""
        self._fault = self._fault or why
        self._line.tell()
        if self._has_begun and not self.ended.done():
            self.ended.set_result(self._fault)


def _arrival(data: bytes, place: str, acknowledge: Callable[[], None]) -> Arrival:
    """Returns a message from its encoding, or what is wrong with it."""
    try:
        parcel, fault = _parcel_of(data)
    except (proton.ProtonException, *UNREADABLE) as error:
        parcel, fault = Parcel("", {}, data), f"it cannot be read: {error}"
    return Arrival(parcel, place, acknowledge, fault)


def _parcel_of(data: bytes) -> tuple[Parcel, str]:
    """Returns a message from its encoding, and why it can be no message here, "" if it may be one.

    Raises ProtonException, or one of ``UNREADABLE``.
    """
    message = Message()
    message.decode(data)
    brought: dict[Any, Any] = message.properties or {}
    headers = {str(name): str(value) for name, value in brought.items()}
    if (content_type := str(message.content_type)) not in ("", NO_SYMBOL):
        headers[CONTENT_TYPE] = content_type
    identity = read_identity(message.id) if isinstance(message.id, str) else ""
    body, fault = message.body, ""
    if isinstance(body, str):
        payload = body.encode()
    elif isinstance(body, bytes | bytearray | memoryview):
        payload = bytes(body)
    else:
        payload, fault = (b"", "") if body is None else (data, "its body is neither bytes nor text")
    if not message.subject:
        fault = "it has no subject, which would be its topic name"
    return Parcel(str(message.subject or ""), headers, payload, identity), fault
