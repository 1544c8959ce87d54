"""Sparkplug B as a transport: an edge node's connection to the MQTT broker of the hosts.

What an edge node publishes has QoS 0 [Sparkplug 3.0, section 6.4], so no acknowledgement comes. The route takes the
answer to a SUBSCRIBE that comes behind messages for theirs: the broker has had them, and keeps nothing. A message that
was on the line when it broke goes again, so a host may see a value twice, and never none because of the line.
"""

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gateway.routes import Slice
from host.server import Server, parse_server
from uplink.connect.reading import Step
from uplink.connect.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.foreign.config import SparkplugConfig
from uplink.foreign.sparkplug.edge_node import EdgeNode, Publish
from uplink.foreign.sparkplug.payload import asks_for_births
from uplink.foreign.transport import (
    Answer,
    Answered,
    CannotCarry,
    Importer,
    Login,
    NotLetIn,
    Parcel,
    TransportDown,
    Verdict,
)
from wire.bulk.connection import BulkClientConnection
from wire.codec import packets
from wire.codec.connect import Connect, Will
from wire.errors import LocalProtocolError
from wire.properties import MAXIMUM_PACKET_SIZE as MAXIMUM_PACKET_SIZE_PROPERTY
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED, UNSPECIFIED_ERROR, describe

CONNECT_DEADLINE_S = 10.0
KEEP_ALIVE_S = 30
TICK_S = 1.0
REBIRTH_S = 5.0
"""Births go no more often than this, however often hosts ask: each is as large as all devices' newest values."""
REFUSALS = (BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED)


class _Asked(NamedTuple):
    """A SUBSCRIBE behind messages: how many of these its answer is for, and when it went."""

    messages: int
    at_s: float


class Sparkplug:
    """One connection of an edge node.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        login: the password and the TLS context.
        node: what is published.
    """

    problem = ""

    def __init__(self, config: SparkplugConfig, gateway_name: str, login: Login, node: EdgeNode) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.server = ""
        self._config = config
        self._client_id = f"{gateway_name}-{config.name}"
        self._password, self._tls = login
        self._node = node
        self._sent: deque[Answered] = deque()  # the oldest first
        self._asked: deque[_Asked] = deque()
        self._wants_births = asyncio.Event()
        self._order = asyncio.Lock()  # between births and data
        self._connack: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._works: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Connects, to the first server that takes it, and publishes the node's birth. Raises TransportDown."""
        faults, refused = [], 0
        for url in self._config.servers:
            try:
                await self._open(parse_server(url))
            except TransportDown as error:
                faults.append(f"{url}: {error}")
                refused += isinstance(error, NotLetIn)
            else:
                break
        else:
            raise (NotLetIn if refused == len(faults) else TransportDown)("; ".join(faults))
        self._remote.ended.add_done_callback(self._note_end)
        self._ask()
        try:
            await self._send_births()
        except (OSError, LocalProtocolError) as error:
            raise TransportDown(str(error)) from None
        self._works = [asyncio.ensure_future(work) for work in (self._tick(), self._bear())]

    async def _open(self, server: Server) -> None:
        death = self._node.next_death(_now_ms())
        connect = Connect(
            self._client_id,
            clean_start=True,
            keep_alive_s=KEEP_ALIVE_S,
            username=self._config.user,
            password=self._password,
            will=Will(death.topic, death.payload, qos=1),
            properties={MAXIMUM_PACKET_SIZE_PROPERTY: MAXIMUM_PACKET_SIZE},
            protocol_level=packets.MQTT_3_1_1,  # each broker of Sparkplug has it, and not each has MQTT 5
        )
        self._client = BulkClientConnection(connect)
        self._remote = remote = Remote(self._client, self._handle, ())
        self._connack = asyncio.get_running_loop().create_future()
        tls = self._tls if server.is_encrypted else None
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await asyncio.get_running_loop().create_connection(lambda: remote, server.host, server.port, ssl=tls)
                await asyncio.wait((self._connack, remote.ended), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            remote.close("no answer")
            raise TransportDown(f"no answer in {CONNECT_DEADLINE_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise NotLetIn(f"its certificate is refused: {error.verify_message}") from None
        except OSError as error:
            raise TransportDown(f"cannot connect: {error.strerror or error}") from None
        except asyncio.CancelledError:
            remote.close("the route ends")
            raise
        if remote.ended.done():
            closed = remote.closed
            is_refused = closed is not None and closed.reason_code in REFUSALS
            raise (NotLetIn if is_refused else TransportDown)(remote.ended.result())
        self.server = str(server)

    async def send(self, parcel: Parcel, answered: Answered) -> None:
        """Publishes what a message becomes. Raises CannotCarry, TransportDown."""
        try:
            async with self._order:
                self._publish_all(self._node.data(parcel, _now_ms(), _steady_ms()))
        except LocalProtocolError as error:
            if self._remote.ended.done():
                raise TransportDown(self._remote.ended.result()) from None
            raise CannotCarry(str(error)) from None
        self._sent.append(answered)
        self._remote.flush()
        try:
            await self._remote.drain()
        except OSError as error:
            raise TransportDown(str(error)) from None

    async def flush(self) -> None:
        """Asks the broker for an answer behind all that was sent."""
        if self._unasked and not self._remote.ended.done():
            self._ask()
            self._remote.flush()

    async def receive(self, importer: Importer) -> None:
        """Nothing comes in but commands to the node."""

    async def close(self) -> None:
        """Publishes the node's death, and ends the connection."""
        for work in self._works:
            work.cancel()
        if not self.server:
            return
        if not self._remote.ended.done():
            with contextlib.suppress(LocalProtocolError):
                self._publish(self._node.death(_now_ms()))
        self._remote.close("the route ends")

    @property
    def _unasked(self) -> int:
        """How many messages no SUBSCRIBE is behind yet."""
        return len(self._sent) - sum(one.messages for one in self._asked)

    def _ask(self) -> None:
        self._client.subscribe([(self._node.commands, 1)])
        self._asked.append(_Asked(self._unasked, time.monotonic()))

    def _publish(self, one: Publish) -> None:
        self._client.publish(one.topic, one.payload, qos=0)

    def _publish_all(self, some: Iterable[Publish]) -> None:
        for one in some:
            self._publish(one)

    def _handle(self, step: Step) -> None:
        if isinstance(step, packets.Connack):
            if not self._connack.done():
                self._connack.set_result(None)
        elif isinstance(step, packets.Suback):
            self._note_answer(step)
        elif isinstance(step, packets.Publish):
            self._take_command(step)

    def _note_answer(self, suback: packets.Suback) -> None:
        asked = self._asked.popleft()  # a broker answers in order [MQTT-4.6.0-1]
        if suback.reason_codes[0] >= UNSPECIFIED_ERROR:
            self._remote.close(f"the broker refuses {self._node.commands}: {describe(suback.reason_codes[0])}")
            return
        for _ in range(asked.messages):
            self._sent.popleft()(Answer(Verdict.TAKEN))

    def _take_command(self, publish: packets.Publish) -> None:
        if publish.packet_identifier is not None:
            self._client.puback(publish.packet_identifier)
        with contextlib.suppress(ValueError):  # a host that writes no payload wants nothing that is known here
            # Each SUBSCRIBE brings a retained one again, which is no command of now.
            if publish.topic == self._node.commands and not publish.retain and asks_for_births(publish.payload):
                self._wants_births.set()

    async def _bear(self) -> None:
        """Publishes all births whenever a host asks for them, for ever."""
        with contextlib.suppress(OSError, LocalProtocolError):  # the connection has ended, and tells why itself
            while True:
                await self._wants_births.wait()
                self._wants_births.clear()  # a host that asks from now on may have missed one of them
                await self._send_births()
                await asyncio.sleep(REBIRTH_S)

    async def _send_births(self) -> None:
        """Publishes the births of the node and of all devices, and no data meanwhile [payloads-ddata-order].

        Raises OSError, LocalProtocolError.
        """
        slice_ = Slice()
        async with self._order:
            self._publish(self._node.birth(_now_ms()))
            self._remote.flush()
            for one in self._node.births(_now_ms()):
                self._publish(one)
                self._remote.flush()
                if slice_.is_over:
                    await slice_.give_way()
                await self._remote.drain()

    async def _tick(self) -> None:
        """Tells which devices are silent, and ends a connection whose broker does not answer, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            if self._remote.ended.done():
                return
            if not self._order.locked():
                self._publish_all(self._node.deaths(_now_ms(), _steady_ms()))
                self._remote.flush()
            if self._asked and time.monotonic() - self._asked[0].at_s > self._config.retry_interval_s:
                self._remote.close(f"no answer in {self._config.retry_interval_s} s")

    def _note_end(self, ended: asyncio.Future[str]) -> None:
        if not self.ended.done():
            self.ended.set_result(ended.result())


def _now_ms() -> int:
    return int(time.time() * 1000)


def _steady_ms() -> int:
    return int(time.monotonic() * 1000)
