"""The MQTT client of the commands: the wire's protocol core on a TCP connection, with TLS or without."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from host.credentials import Credentials
from host.server import Server
from wire.codec.packets import Connack, Connect, Packet, Puback
from wire.connection.client import ClientConnection
from wire.errors import Closed
from wire.reasons import UNSPECIFIED_ERROR, describe

KEEP_ALIVE_S = 60
READ_MOST = 65_536
LEAVE_S = 5.0


class Refused(Exception):
    """The server refuses the login or a message; the text says what and why."""


class Client:
    """A connection over MQTT 5 whose session ends with it. `connected` makes it.

    Attributes:
        protocol: the protocol core; `event` sends what it has to send.
        unacknowledged: the messages of `publish` that have had no PUBACK.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: ClientConnection) -> None:
        self._reader = reader
        self._writer = writer
        self.protocol = protocol
        self.unacknowledged = 0

    async def event(self) -> Packet:
        """Sends what is due and returns the next packet. Raises OSError when the connection ends."""
        while (event := self.protocol.next_event()) is None:
            self._writer.write(self.protocol.data_to_send())
            await self._writer.drain()
            due_ms = self.protocol.next_timer_ms()
            wait = asyncio.timeout(None if due_ms is None else max(0, due_ms - _now_ms()) / 1000)
            try:
                async with wait:  # in Python 3.11 wait_for may forget that the task is cancelled
                    data = await self._reader.read(READ_MOST)
                if not data:
                    raise ConnectionResetError("the server has closed the connection")
                self.protocol.receive_data(data, _now_ms())
            except TimeoutError:
                if not wait.expired():  # it is the system's, about the connection
                    raise
            self.protocol.handle_timer(_now_ms())
        if isinstance(event, Closed):
            raise ConnectionResetError(event.text)
        return event

    async def publish(
        self, topic: str, payload: bytes, properties: dict[int, object] | None = None, retain: bool = False
    ) -> None:
        """Sends a message at QoS 1, as soon as the server has room for it.

        Raises OSError when the connection ends, Refused as `take_puback`, and WireError for what MQTT or this server
        does not allow.
        """
        while self.protocol.connected and self.protocol.send_quota == 0:
            await self.take_puback()
        self.protocol.publish(topic, payload, retain=retain, properties=properties)
        self.unacknowledged += 1

    async def take_puback(self) -> None:
        """Waits for the next PUBACK. Raises OSError, and Refused if it says that a message is not taken."""
        event = await self.event()
        if isinstance(event, Puback):
            self.unacknowledged -= 1
            if event.reason_code >= UNSPECIFIED_ERROR:
                raise Refused(f"the server refuses a message: {describe(event.reason_code)}")


@asynccontextmanager
async def connected(
    server: Server,
    credentials: Credentials,
    name: str,
    properties: dict[int, object] | None = None,
    client_id: str | None = None,
) -> AsyncIterator[Client]:
    """Connects, and leaves with a DISCONNECT at the end of the block.

    Args:
        server: where to.
        credentials: the login, and by what the server is known.
        name: how the client identifier begins.
        properties: of the CONNECT.
        client_id: another whole client identifier than one by `name`; its session goes on.

    Raises:
        ConfigError: a file of the credentials cannot be used.
        OSError: the server cannot be reached.
        Refused: the server refuses the login.
    """
    password, context = credentials.password(), credentials.context(server)
    reader, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
    identifier, is_new = (f"{name}-{uuid.uuid4().hex[:16]}", True) if client_id is None else (client_id, False)
    packet = Connect(identifier, is_new, KEEP_ALIVE_S, credentials.user, password)
    protocol = ClientConnection(packet)
    client = Client(reader, writer, protocol)
    try:
        protocol.connect(_now_ms(), properties)
        event = await client.event()
        if isinstance(event, Connack) and event.reason_code:
            raise Refused(f"the server refuses the login: {describe(event.reason_code)}")
        yield client
        protocol.disconnect()
        writer.write(protocol.data_to_send())
        writer.close()
        with contextlib.suppress(OSError):  # whatever was to be kept has its answer
            async with asyncio.timeout(LEAVE_S):
                await writer.wait_closed()
    finally:
        writer.transport.abort()


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
