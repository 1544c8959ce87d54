"""Gateways in the test's own event loop that are neighbours of each other."""

import asyncio
import os
import time
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from gateway.broker import Broker, stream_logs
from gateway.config.network import NeighbourConfig
from gateway.config.schema import GatewayConfig, ListenerConfig, StoreConfig, TcpConfig, with_taken_streams
from gateway.store import MessageLog, retained
from tests.gateway.support import LONG_S, tcp_port, until
from tools.lab.testing.client import Client
from tools.lab.testing.ports import free_port
from uplink.config.route import RouteConfig, RouteNeighbourConfig
from uplink.routes import Routes
from wire.codec.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Unsuback

Kind = TypeVar("Kind")
RULES = "allow * publish,subscribe #\nallow - identify *\nallow - neighbour *\n"


class Site:
    """A gateway with its routes. It may be stopped and started again, on the same port and the same store.

    Args:
        folder: its folder.
        name: its name.
        keys: more of its configuration, and ``sockets``: more listeners. With ``realtime=True`` it has a real-time
            listener as well.
    """

    def __init__(self, folder: Path, name: str, **keys: Any) -> None:
        self.name = name
        self.port = free_port()
        self.realtime_port = free_port() if keys.pop("realtime", False) else 0
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rules = self._folder / "rules"
        self._rules.write_text(keys.pop("rules", RULES))
        self._sockets: list[ListenerConfig] = keys.pop("sockets", [])
        self._keys = {"acl": str(self._rules), **keys}
        self._routes: list[RouteConfig] = []
        self._open = AsyncExitStack()
        self.broker: Broker
        self.routes: Routes

    def dial(self, port: int, neighbour: str | None, route: str = "", *, is_link: bool = True, **keys: Any) -> None:
        """Has a route to a neighbour; None: an ordinary broker. One that is no link follows no interest."""
        about = {key: keys.pop(key) for key in ("zone", "hops", "mode", "fallback_names", "streams") if key in keys}
        config = {
            "name": route or f"to-{neighbour or 'broker'}",
            "broker": f"mqtt://127.0.0.1:{port}",
            "backoff_shortest_ms": 10,
            "backoff_longest_ms": 100,
            "statement_interval_s": 0,
            "neighbour": RouteNeighbourConfig(neighbour, **about) if is_link else None,
            **keys,
        }
        self._routes.append(RouteConfig(**config))

    def dial_none(self) -> None:
        """Has no route from now on."""
        self._routes = []

    def reload(self) -> None:
        """Uses the routes that it has now, as after a SIGHUP."""
        self.routes.reload(self._routes)

    def expect_none(self) -> None:
        """Has no settings of neighbours that dial it."""
        del self._keys["neighbour"]

    def expect(self, **about: Any) -> None:
        """Has settings of a neighbour that dials it."""
        self._keys["neighbour"] = [*self._keys.get("neighbour", []), NeighbourConfig(**about)]

    def give_rules(self, rules: str) -> None:
        """Has other access rules from now on, as after a SIGHUP."""
        self._rules.write_text(rules)
        self.broker.reload()

    async def start(self) -> Self:
        async with AsyncExitStack() as stack:
            store = StoreConfig(str(self._folder / "store"))
            listeners: list[ListenerConfig] = [TcpConfig(port=self.port), *self._sockets]
            if self.realtime_port:
                listeners.append(TcpConfig(port=self.realtime_port, realtime=True))
            config = with_taken_streams(GatewayConfig(self.name, store, listener=listeners, **self._keys))
            log = await MessageLog.open(self._folder / "store", origin=self.name)
            stack.push_async_callback(log.close)
            logs = await stack.enter_async_context(stream_logs(config))
            self.broker = Broker(config, log, logs)
            self.routes = Routes(self._routes, self.name, log, self.broker.services.endings, self.broker.services)
            self.broker.overview.routes = self.routes.states
            self.broker.carry_streams(self.routes.links, self.routes.take_stream)
            await self.broker.start()
            stack.push_async_callback(self.broker.close)
            running = asyncio.create_task(self.routes.run())
            stack.push_async_callback(_end, running)
            self._open = stack.pop_all()
        assert tcp_port(self.broker) == self.port
        return self

    async def stop(self) -> None:
        await self._open.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def problem(self) -> str:
        """What its first route says that is wrong."""
        return self.routes.status()[0].problem

    async def client(self, name: str, *filters: str, options: int = 2, **keys: Any) -> Client:
        """A client that is connected, and has subscribed to these filters."""
        client = await Client(name, **keys).connect(self.port)
        if filters:
            await client.subscribe(*filters, options=options)
        return client

    async def realtime_client(self, name: str, *filters: str, **keys: Any) -> Client:
        """A client of the real-time listener that has subscribed to these filters."""
        client = await Client(name, session_expiry_s=0, **keys).connect(self.realtime_port)
        if filters:
            await client.subscribe(*filters)
        return client

    async def linked(self, *others: "Site") -> None:
        """Returns when all routes of the site are connected, and these neighbours have dialled it."""
        await until(lambda: all(state.connected for state in self.routes.states), f"{self.name} is connected")
        names = {f"{other.name}-to-{self.name}" for other in others}
        await until(lambda: names <= self.broker.network.links.up.keys(), f"{names} have dialled {self.name}")

    async def wants(self, *topic_filters: str) -> None:
        """Returns when these filters, and no others, are wanted by neighbours of the site."""
        wanted = set(topic_filters)
        await until(lambda: self.wanted_by_neighbours() == wanted, f"{self.name}: {wanted} and nothing else is wanted")

    def received(self, *qos: int) -> int:
        """How many messages of these QoS levels, of all without any, the site has received."""
        counts = self.broker.counters.messages_received
        return sum(counts[level] for level in qos or (0, 1, 2))

    async def kept(self) -> dict[str, bytes]:
        """The payloads of its retained messages, by topic."""
        log = self.broker.log
        await log.submit([])
        [piece] = await log.reader.find_retained([retained.Search(retained.EVERY_TOPIC, log.head)], 0)
        found: dict[str, bytes] = {}
        while topics := [topic for topic, _ in piece.topics if topic not in found]:
            for topic, one in (await log.reader.read_retained(topics)).items():
                found[topic] = one[1].payload if one else b""
        return {topic: payload for topic, payload in found.items() if payload}

    async def keeps(self, expected: dict[str, bytes]) -> None:
        """Returns when it has these retained messages, by topic, and no others."""
        deadline = time.monotonic() + LONG_S
        while (kept := await self.kept()) != expected:
            assert time.monotonic() < deadline, f"{self.name} keeps {kept}, expected {expected}"
            await asyncio.sleep(0.005)

    def wanted_by_neighbours(self) -> set[str]:
        """The filters that neighbours of the site want."""
        return {topic_filter for filters in self._wanted_by_each() for topic_filter in filters}

    def times_wanted(self, topic_filter: str) -> int:
        """How many neighbours of the site want a filter."""
        return sum(topic_filter in filters for filters in self._wanted_by_each())

    def _wanted_by_each(self) -> Iterator[Collection[str]]:
        for session in self.broker.sessions.all():
            if session.link is not None:
                yield session.cursor.filters
        for route in self.routes.queues():
            yield route.link.interest.subscriptions


async def next_of(client: Client, kind: type[Kind]) -> Kind:
    """Returns the next packet of a kind; acknowledges messages, and takes answers to what the client has sent."""
    while True:
        event = await client.event()
        if isinstance(event, Publish) and event.packet_identifier is not None:
            client.acknowledge(event)
        if isinstance(event, Pubrec):
            client.release(event.packet_identifier)
        if isinstance(event, Pubrel):
            client.protocol.pubcomp(event.packet_identifier)
            client.flush()
        if isinstance(event, kind):
            return event
        assert isinstance(event, Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback), (
            f"{kind} expected, got {event!r}"
        )


async def message_to(client: Client) -> Publish:
    """Returns the next message to a client."""
    return await next_of(client, Publish)


async def all_to(client: Client) -> list[Publish]:
    """Returns the messages that wait for a client: those before one that it sends to itself now."""
    marker = f"marker/{client.protocol.client_id}/{os.urandom(4).hex()}"
    found: list[Publish] = []
    client.protocol.subscribe([(marker, 1)])
    client.flush()
    while not isinstance(packet := await _next_message_or(client, Suback), Suback):
        found.append(packet)
    client.send(marker, qos=1)
    while (packet := await message_to(client)).topic != marker:
        found.append(packet)
    client.protocol.unsubscribe([marker])
    client.flush()
    await next_of(client, Unsuback)
    return found


async def _next_message_or(client: Client, kind: type[Kind]) -> Kind | Publish:
    packet: Kind | Publish = await next_of(client, cast("type[Kind | Publish]", kind | Publish))
    return packet


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
