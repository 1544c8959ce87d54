"""Chains of three: gateways A, M and B, and NATS servers, with clients that look the same at both."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from tools.lab.bench.broker.processes import GENERATOR_CORE, BenchUnavailable, Broker, gateway, nats
from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.nats import Message, NatsClient
from tools.lab.testing.ports import free_port
from wire.codec.packets import Packet, Publish, Suback
from wire.properties import RESPONSE_TOPIC

RULES = "".join(f"allow * {rule}\n" for rule in ("connect *", "identify *", "neighbour *", "publish,subscribe #"))
LINK = """\
[[route]]
name = "to-{name}"
broker = "mqtt://127.0.0.1:{port}"
backoff_shortest_ms = 20
backoff_longest_ms = 200
{more}[route.neighbour]
name = "{name}"
"""
PROBES_S, PROBE_EVERY_S = 60.0, 0.01
Kind = TypeVar("Kind", bound=Packet)


class Chain(NamedTuple):
    """Three in a row: the first and the last one are neighbours of the middle one."""

    first: Broker
    middle: Broker
    last: Broker


class Party(Protocol):
    """A client of either kind of server."""

    async def subscribe(self, *topics: str) -> None:
        """Returns when the server has acknowledged them."""

    def unsubscribe(self, topic: str) -> None: ...

    def publish(self, topic: str, payload: bytes = b"", reply: str = "") -> None: ...

    async def receive(self) -> Message: ...

    async def close(self) -> None: ...


Connect = Callable[[Broker, str], Awaitable[Party]]
"""Connects a client with this name to a server."""


def made(folder: Path) -> Path:
    """Makes a folder and returns it."""
    folder.mkdir(parents=True)
    return folder


def link(name: str, port: int, more: str = "") -> str:
    """Returns the table of a route to the neighbour of this name, with more keys of it."""
    return LINK.format(name=name, port=port, more=more)


def node(
    folder: Path, name: str, *links: str, core: int = 0, port: int = 0
) -> contextlib.AbstractContextManager[Broker]:
    """Runs a gateway of a network, with the tables of its links; ``port`` is where it listens, 0: at any free port."""
    return gateway(made(folder / name), more="".join(links), name=name, rules=RULES, core=core, port=port)


def start_together(stack: ExitStack, *nodes: contextlib.AbstractContextManager[Broker]) -> list[Broker]:
    """Starts gateways at the same time, as a start takes longer than most measurements of a short run.

    The threads end with the stack, since the kernel ends a program together with the thread that has started it.
    """
    pool = stack.enter_context(ThreadPoolExecutor(len(nodes)))
    return list(pool.map(stack.enter_context, nodes))


@contextlib.contextmanager
def gateways(folder: Path, first_dials: bool) -> Iterator[Chain]:
    """Runs gateways A, M and B. B dials M; between A and M either A dials, or M."""
    first, middle = free_port(), free_port()
    from_first = [link("M", middle)] if first_dials else []
    from_middle = [] if first_dials else [link("A", first)]
    with ExitStack() as stack:
        chain = start_together(
            stack,
            node(folder, "A", *from_first, port=first),
            node(folder, "M", *from_middle, port=middle, core=GENERATOR_CORE),
            node(folder, "B", link("M", middle)),
        )
        yield Chain(*chain)


@contextlib.contextmanager
def leaves(folder: Path) -> Iterator[Chain]:
    """Runs three NATS servers: the outer ones are leaf nodes of the middle one. Raises BenchUnavailable."""
    hub = free_port()
    with (
        nats(made(folder / "M"), hub, core=GENERATOR_CORE) as middle,
        nats(made(folder / "A"), free_port(), hub) as first,
        nats(made(folder / "B"), free_port(), hub) as last,
    ):
        yield Chain(first, middle, last)


class MqttParty:
    """A client of a gateway, over MQTT 5. What it subscribes to and publishes has one QoS, 0 or 1."""

    def __init__(self, name: str, qos: int) -> None:
        self._client = Client(name, clean_start=True, session_expiry_s=0, keep_alive_s=0)
        self._qos = qos
        self._came: deque[Publish] = deque()

    async def connect(self, port: int) -> "MqttParty":
        """Connects to a gateway."""
        await self._client.connect(port)
        return self

    async def subscribe(self, *topics: str) -> None:
        """Returns with the SUBACK. Raises BenchUnavailable if that refuses one."""
        self._client.protocol.subscribe([(topic, self._qos) for topic in topics])
        self._client.flush()
        suback = await self._until(Suback)
        if refused := [code for code in suback.reason_codes if code > 2]:
            raise BenchUnavailable(f"the gateway refuses {len(refused)} of {len(topics)} filters, with {refused[0]:#x}")

    def unsubscribe(self, topic: str) -> None:
        """Sends an UNSUBSCRIBE; its UNSUBACK is read with what comes later."""
        self._client.protocol.unsubscribe([topic])
        self._client.flush()

    def publish(self, topic: str, payload: bytes = b"", reply: str = "") -> None:
        """Publishes; `reply` is the Response Topic."""
        properties = {RESPONSE_TOPIC: reply} if reply else None
        if self._qos and not self._client.protocol.send_quota:
            return  # what is published again and again may be left out
        self._client.send(topic, payload, qos=self._qos, properties=properties)

    async def receive(self) -> Message:
        """Returns the next message, acknowledged."""
        packet = self._came.popleft() if self._came else await self._until(Publish)
        return Message(packet.topic, (packet.properties or {}).get(RESPONSE_TOPIC, ""), bytes(packet.payload))

    async def close(self) -> None:
        """Ends the connection."""
        self._client.cut()

    async def _until(self, kind: type[Kind]) -> Kind:
        while True:
            event = await self._client.event()
            if isinstance(event, Publish) and event.qos:
                self._client.acknowledge(event)
            if isinstance(event, kind):
                return event
            if isinstance(event, Publish):
                self._came.append(event)
            elif event is None:
                raise UnexpectedEvent("the gateway has ended the connection")


class NatsParty:
    """A client of a NATS server. Topic names and filters are written as in MQTT here too."""

    def __init__(self) -> None:
        self._client = NatsClient()
        self._numbers: dict[str, int] = {}

    async def connect(self, port: int) -> "NatsParty":
        """Connects to a server."""
        await self._client.connect(port)
        return self

    async def subscribe(self, *topics: str) -> None:
        """Returns when the server has the subscriptions."""
        for topic in topics:
            self._numbers[topic] = self._client.subscribe(topic.replace("/", ".").replace("#", ">"))
        await self._client.sync()

    def unsubscribe(self, topic: str) -> None:
        """Ends a subscription."""
        self._client.unsubscribe(self._numbers.pop(topic))

    def publish(self, topic: str, payload: bytes = b"", reply: str = "") -> None:
        """Publishes; `reply` is the reply subject."""
        self._client.publish(topic.replace("/", "."), payload, reply.replace("/", "."))

    async def receive(self) -> Message:
        """Returns the next message."""
        subject, reply, payload = await self._client.receive()
        return Message(subject.replace(".", "/"), reply.replace(".", "/"), payload)

    async def close(self) -> None:
        """Ends the connection."""
        await self._client.close()


def over_mqtt(qos: int) -> Connect:
    """Returns what connects clients to gateways."""

    async def connect(broker: Broker, name: str) -> Party:
        return await MqttParty(name, qos).connect(broker.port)

    return connect


async def over_nats(broker: Broker, name: str) -> Party:
    """Connects a client to a NATS server, where clients need no names."""
    return await NatsParty().connect(broker.port)


async def until_it_comes(party: Party, publish: Callable[[], None]) -> Message:
    """Publishes again and again until a message comes to a party, and returns that. Raises BenchUnavailable."""

    async def again() -> None:
        while True:
            publish()
            await asyncio.sleep(PROBE_EVERY_S)

    publishing = asyncio.create_task(again())
    try:
        async with asyncio.timeout(PROBES_S):
            return await party.receive()
    except TimeoutError:
        raise BenchUnavailable(f"no message came through in {PROBES_S:g} s") from None
    finally:
        publishing.cancel()
