"""A route on a log, and what the next broker got of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Queue

from paho.mqtt.client import MQTTMessage

from gateway.message import Message
from gateway.store import MessageLog
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from uplink.config.route import RouteConfig
from uplink.connect.notes import RouteNotes
from uplink.foreign.route import ForeignRoute
from uplink.route import Route
from wire.codec.packets import MQTT_3_1_1, Connack
from wire.identity import IDENTITY_PROPERTY, decode_identity
from wire.reasons import UNSUPPORTED_PROTOCOL_VERSION

DEADLINE_S = 20.0


def route_config(port: int, **keys: object) -> RouteConfig:
    usual = {
        "name": "central",
        "broker": f"mqtt://127.0.0.1:{port}",
        "backoff_shortest_ms": 10,
        "backoff_longest_ms": 100,
        "statement_interval_s": 0,  # tests of statements ask for them: others count what is published
    }
    return RouteConfig(**{**usual, **keys})  # type: ignore[arg-type]


@asynccontextmanager
async def running(log: MessageLog, config: RouteConfig, *, gateway_name: str = "gateway-1") -> AsyncIterator[None]:
    async with serving(Route(config, gateway_name, log)):
        yield


@asynccontextmanager
async def serving(route: Route | ForeignRoute) -> AsyncIterator[None]:
    task = asyncio.create_task(route.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def note_session(log: MessageLog, route: Route, port: int) -> None:
    """Lets the store say that this server has the route's session, and was its last one."""
    await log.routes.begin_session(route.queue.consumer)
    notes = RouteNotes(log.folder, route.queue.name)
    notes.note.server = f"mqtt://127.0.0.1:{port}"
    await notes.save()


async def backlog_is(route: Route, messages: int) -> None:
    """Returns once ``messages`` messages wait for the route, as it has counted them."""
    async with asyncio.timeout(DEADLINE_S):
        await route.queue.watch.count()
        while route.queue.state.backlog_messages != messages:
            await asyncio.sleep(0.01)
            await route.queue.watch.count()


@asynccontextmanager
async def opened(folder: Path, commit_interval_ms: int = 0) -> AsyncIterator[MessageLog]:
    log = await MessageLog.open(folder / "store", origin="gateway-1", commit_interval_ms=commit_interval_ms)
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def routed(folder: Path, **script: object) -> AsyncIterator[tuple[ScriptedBroker, MessageLog]]:
    """A scripted broker, and a log with a route to it."""
    async with scripted_broker(**script) as broker, opened(folder) as log, running(log, route_config(broker.port)):
        yield broker, log


@asynccontextmanager
async def raw_broker(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], *, buffer_bytes: int = 0
) -> AsyncIterator[int]:
    """A server that talks with each client as the test says, from the client's first byte; yields its port.

    ``buffer_bytes``: the most bytes that wait in each of the server's sockets, roughly; 0: as usual.
    """
    ending = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
            await ending.wait()
        except ConnectionError:
            pass  # the route has ended the connection
        finally:
            writer.transport.abort()

    listening = socket.create_server(("127.0.0.1", 0))
    if buffer_bytes:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    server = await asyncio.start_server(serve, sock=listening)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        ending.set()
        server.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def of_3_1_1(port: int) -> AsyncIterator[int]:
    """A broker that speaks MQTT 3.1.1 only: a real one, behind a server that refuses MQTT 5. Yields its port."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connect = await reader.read(65_536)
        if connect[connect.index(b"MQTT") + 4] != MQTT_3_1_1:
            writer.write(Connack(False, UNSUPPORTED_PROTOCOL_VERSION).encode(MQTT_3_1_1))
            writer.close()
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        inner_writer.write(connect)
        await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer), return_exceptions=True)

    async with raw_broker(talk) as outer:
        yield outer


async def append(log: MessageLog, numbers: range, topic: str = "telemetry/a") -> None:
    await asyncio.gather(
        *(log.submit([Message(topic, b"%d" % number, origin="a", epoch=7, seq=number)]) for number in numbers)
    )


async def get(received: "Queue[MQTTMessage]") -> MQTTMessage:
    return await asyncio.to_thread(received.get, timeout=DEADLINE_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def identity_of(message: MQTTMessage) -> tuple[str, int, int]:
    values = dict(message.properties.UserProperty)  # type: ignore[union-attr]
    return decode_identity(values[IDENTITY_PROPERTY])
