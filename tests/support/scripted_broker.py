"""A broker that answers as the test wants: real sockets and the real protocol, and nothing behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from wire.connection import Closed
from wire.packets import Connect, Publish
from wire.properties import USER_PROPERTY
from wire.server import ServerConnection
from wire.time_offer import TIME_PROPERTY, encode_time


@dataclass
class ScriptedBroker:
    """Remembers what clients published.

    Attributes:
        session_present: what the next CONNACK says.
        receive_maximum: how many unacknowledged QoS 1 messages a client may have on the way.
        puback: the reason code for a PUBLISH, or None to stay silent.
        time_ms: the time (ms since 1970) that CONNACKs offer, or None.
        port: where it listens.
        connects: the CONNECT packets, in order.
        publishes: for each connection the PUBLISH packets, in order.
    """

    session_present: bool = False
    receive_maximum: int = 65535
    puback: Callable[[Publish], int | None] = lambda _publish: 0
    time_ms: int | None = None
    port: int = 0
    connects: list[Connect] = field(default_factory=list)
    publishes: list[list[Publish]] = field(default_factory=list)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def drop_clients(self) -> None:
        """Ends every connection without a word."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ServerConnection(receive_maximum=self.receive_maximum)
        self._writers.append(writer)
        try:
            while data := await reader.read(65536):
                connection.receive_data(data, 0)
                while (event := connection.next_event()) is not None:
                    if isinstance(event, Closed):
                        return
                    self._answer(connection, event)
                writer.write(connection.data_to_send())
        except OSError:
            pass
        finally:
            writer.close()

    def _answer(self, connection: ServerConnection, event: object) -> None:
        if isinstance(event, Connect):
            self.connects.append(event)
            self.publishes.append([])
            offer = None if self.time_ms is None else {USER_PROPERTY: [(TIME_PROPERTY, encode_time(self.time_ms))]}
            connection.accept(self.session_present, offer)
        elif isinstance(event, Publish):
            self.publishes[-1].append(event)
            reason_code = self.puback(event)
            if reason_code is not None and event.packet_identifier is not None:
                connection.puback(event.packet_identifier, reason_code)


@asynccontextmanager
async def scripted_broker(**script: object) -> AsyncIterator[ScriptedBroker]:
    """Runs one on a free loopback port."""
    broker = ScriptedBroker(**script)  # type: ignore[arg-type]
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        broker.drop_clients()
        server.close()
        await asyncio.sleep(0)
