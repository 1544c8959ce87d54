"""Attacks by selectors, by neighbours of a network and by slow clients of ``/healthz``.

They need a gateway that is configured for them: each has its tables of the configuration, and a port of its own.
"""

import asyncio
import contextlib
import itertools
import json
import zlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from tools.lab.torture.attacks import amqp, batches, foreign, serial, websockets
from tools.lab.torture.attacks.line import DAY_S, Line, connected
from tools.lab.torture.attacks.peer import EVERYTHING, Peer
from wire.codec.packets import MQTT_5, RETAIN_NEVER, Connack, Connect, Publish, Subscribe, encode
from wire.properties import SESSION_EXPIRY_INTERVAL, USER_PROPERTY

PATTERNS = 99  # topic filters that all match TOPIC; a session may have a hundred
TOPIC = "a/a/a/a/a/a/a"
SELECTOR_MAX, SELECTORS_MAX = 1_024, 10_240  # characters of one, and of all that look at one topic name
LINK_MAX = 16_384  # characters of `hf-link`
INTEREST_TOPIC, LINK = "$holdfast/interest", "hf-link"
SLOW_CLIENTS = 64
BYTE_PAUSE_S = 0.2


def _pack(size: int = 64_000) -> bytes:
    """Returns SenML with as many times as the gateway looks at."""
    records = (b'{"n":"a","v":1,"t":%d}' % number for number in itertools.count())
    return b"[" + b",".join(itertools.islice(records, size // 25)) + b"]"


def _patterns() -> list[str]:
    """Returns topic filters with different wildcards that all match TOPIC."""
    choices = itertools.product("a+", repeat=TOPIC.count("/") + 1)
    return ["/".join(one) + "/#" for one in itertools.islice(choices, 1, PATTERNS + 1)]


def _filled(term: str, most: int) -> str:
    """Returns as many terms, joined by OR, as a selector may have; each has its number in it."""
    terms = [term.format(number) for number in range(most // len(term.format(0)))]
    while len(" OR ".join(terms)) > most:
        terms.pop()
    return " OR ".join(terms)


@asynccontextmanager
async def _selecting(port: int, name: str, selectors: Iterable[str]) -> AsyncIterator[Line]:
    """Opens a session with a selector for each pattern, as far as the gateway takes them."""
    async with connected(port, name) as line:
        for pattern, selector in zip(_patterns(), selectors, strict=False):
            properties = {USER_PROPERTY: [("hf-select", selector)]}
            await line.write(encode(Subscribe(1, [(pattern, 1 | RETAIN_NEVER)], properties), MQTT_5))
            await line.answered(5)
        yield line


async def _publish(port: int, payload: bytes, properties: dict[int, object] | None = None) -> None:
    """Publishes a payload to TOPIC again and again, each when the one before is acknowledged."""
    async with connected(port, "talks") as talks:
        while True:
            packet = Publish(TOPIC, payload, 1, packet_identifier=1, properties=dict(properties or {}))
            await talks.write(encode(packet, MQTT_5))
            await talks.answered(4)


async def selectors(port: int, other: int) -> None:
    """Readings of thousands of times, and 99 subscriptions with selectors that look at them."""
    length = SELECTORS_MAX // PATTERNS
    async with _selecting(port, "selects", (_filled("reading.a > 1{}0", length) for _ in itertools.count())):
        await _publish(port, _pack())


async def long_selectors(port: int, other: int) -> None:
    """Selectors of a thousand characters that calculate with user properties, or compare with patterns, for each of the
    times of a payload, and a thousand user properties.
    """
    sums = "+".join("a" * 505) + "=1 OR reading.a > 5"
    like = f"b LIKE '%{'_' * 200}{'a' * 700}{{}}' OR reading.a > 5"
    pairs = [("a", " 1.5" + " " * 90), ("b", "a" * 510), *([("c", "")] * 990)]
    texts = itertools.chain([sums[:SELECTOR_MAX]] * 5, (like.format(number) for number in itertools.count()))
    async with _selecting(port, "selects", texts):
        await asyncio.gather(
            _publish(port, b"[" + _pack()[1:1_000].rpartition(b",")[0] + b"]", {USER_PROPERTY: pairs}),
        )


def _link(texts: Iterable[str], **settings: object) -> str:
    """Returns settings of a link with as many conditions as fit."""
    incoming: list[dict[str, str]] = []
    for text in itertools.islice(texts, 100):
        more = [*incoming, {"topic": TOPIC, "select": text}]
        if len(json.dumps({"name": "evil", "incoming": more, **settings})) > LINK_MAX:
            break
        incoming = more
    return json.dumps({"name": "evil", "incoming": incoming, **settings})


def _introduces(client_id: str, link: str) -> bytes:
    properties = {SESSION_EXPIRY_INTERVAL: DAY_S, USER_PROPERTY: [(LINK, link)]}
    return encode(Connect(client_id, False, 0, None, None, None, properties))


async def link_conditions(port: int, other: int) -> None:
    """CONNECTs as a neighbour, which no rule allows, with as many selectors as fit."""
    text = _filled("a LIKE '%_a_{}'", SELECTOR_MAX)
    for number in itertools.count():
        packet = _introduces("stranger", _link(f"{text[:-2]}{number}{place}'" for place in range(100)))
        await _told(port, packet)


async def _told(port: int, packet: bytes) -> None:
    """Sends a CONNECT, and waits for the answer."""
    line = Line(*await asyncio.open_connection("127.0.0.1", port))
    try:
        await line.write(packet)
        await line.answered(4)
    finally:
        line.close()


async def neighbour_conditions(port: int, other: int) -> None:
    """A neighbour, which a rule allows, with as many conditions as fit, that connects again and again; and readings of
    thousands of times.
    """

    async def come() -> None:
        for number in itertools.count():
            texts = (f"{_filled('reading.a > 1{}0', 120)} OR a = {number * 100 + place}" for place in range(100))
            line = Line(*await asyncio.open_connection("127.0.0.1", port))
            try:
                await line.write(_introduces("evil", _link(texts)))
                await line.answered(4)
                await line.write(encode(Subscribe(1, [(TOPIC, 1)], {}), MQTT_5))
                await asyncio.sleep(0.5)
            finally:
                line.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(come())
        group.create_task(_publish(port, _pack()))


async def streams_of_a_neighbour(port: int, other: int) -> None:
    """A neighbour that has a thousand streams, others at each connection."""
    for number in itertools.count():
        streams = ["", *(f"s{number}-{place}" for place in range(1_000))]
        await _told(port, _introduces("evil", _link((), streams=streams)))


async def announcements(port: int, other: int) -> None:
    """A gateway that this one dials announces filters that are small only while they are compressed."""
    bomb = b"\x00" + bytes(16) + zlib.compress(bytes(64 * 1024 * 1024), 9)
    most = b"\x80" + bytes(16) + zlib.compress(b"\0".join(b"%x" % number for number in range(40_000)), 9)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.read(1 << 16)
            writer.write(encode(Connack(False, 0, {USER_PROPERTY: [(LINK, '{"name":"evil"}')]}), MQTT_5))
            for payload in (most, bomb):
                writer.write(encode(Publish(INTEREST_TOPIC, payload, 0), MQTT_5))
            await writer.drain()
            while await reader.read(1 << 16):
                pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", other)
    async with server:
        await server.serve_forever()


async def slow_health(port: int, other: int) -> None:
    """Clients of ``/healthz`` that send a byte at a time, and one that asks for ``/metrics`` without a pause."""

    async def creep() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", other)
                for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(BYTE_PAUSE_S)

    async def ask() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", other)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.read()
                writer.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        for _ in range(SLOW_CLIENTS):
            group.create_task(creep())


_DIALS = """
[[route]]
name = "dialled"
broker = "mqtt://127.0.0.1:{other}"
backoff_shortest_ms = 10
backoff_longest_ms = 100
[route.neighbour]
name = "evil"
"""
PEERS: dict[str, Peer] = {
    peer.attack.__name__.replace("_", "-"): peer
    for peer in (
        Peer(selectors),
        Peer(long_selectors),
        Peer(link_conditions),
        Peer(neighbour_conditions, rules=EVERYTHING),
        Peer(streams_of_a_neighbour, '[network]\nstreams = "any"\n', EVERYTHING),
        Peer(announcements, _DIALS),
        Peer(slow_health, "[metrics]\nport = {other}\n"),
        *batches.ATTACKS,
        *serial.ATTACKS,
        *websockets.ATTACKS,
        *foreign.ATTACKS,
        *amqp.ATTACKS,
    )
}
