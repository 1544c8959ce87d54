"""The attacks of ``lab torture attacks``: ``python -m tools.lab.torture.attacks.kinds PORT NAME SECONDS OTHER``.

An attack uses only what a client with an account can do: it makes any number of connections with any client
identifiers, reads all packets and keeps to the protocol.
"""

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import uvloop

from tools.lab.torture.attacks.crowds import CROWDS
from tools.lab.torture.attacks.line import DAY_S, Line, connected, filled
from tools.lab.torture.attacks.peers import PEERS
from wire.codec import frame
from wire.codec.packets import MQTT_5, RETAIN_NEVER, Pingreq, Publish, Unsubscribe, Will, encode
from wire.codec.requests import FILTERS_MAX
from wire.packet_types import PUBLISH, SUBSCRIBE, UNSUBSCRIBE
from wire.primitives import encode_string, encode_varint
from wire.properties import USER_PROPERTY, WILL_DELAY_INTERVAL

LARGE = 1_000_000  # bytes of a large packet: the gateway accepts packets of 1 MiB
LEVELS = 12  # of topic filters that differ at each level
PROPERTY_SIZE = 60_000  # bytes of one user property's value


def _subscribes(filters: list[tuple[str, int]]) -> bytes:
    """Returns SUBSCRIBEs of these filters, each as large as the gateway accepts."""
    packets, some, size = list[bytes](), list[bytes](), 0
    for topic_filter, options in filters:
        some.append(encode_string(topic_filter) + bytes((options,)))
        size += len(some[-1])
        if size > LARGE - 70_000 or len(some) == FILTERS_MAX:
            packets.append(_request(SUBSCRIBE, some))
            some, size = [], 0
    return b"".join(packets) + (_request(SUBSCRIBE, some) if some else b"")


def _request(packet_type: int, filters: list[bytes]) -> bytes:
    """Returns a SUBSCRIBE or UNSUBSCRIBE; the wire's encoder takes a second for a hundred thousand filters."""
    return frame(packet_type << 4 | 2, bytes((0, 1, 0)) + b"".join(filters))


def _forks(levels: int, count: int) -> list[str]:
    return ["/".join(one) + "/#" for one in itertools.islice(itertools.product("a+", repeat=levels), count)]


def _identifiers() -> Iterator[int]:
    return itertools.cycle(range(1, 65_536))


async def _again_and_again(port: int, name: str, packet: bytes) -> None:
    async with connected(port, name) as line:
        while True:
            await line.write(filled(packet))


async def pings(port: int) -> None:
    """PINGREQs, as fast as the line takes them."""
    await _again_and_again(port, "pings", encode(Pingreq(), MQTT_5))


async def pings_of_many(port: int) -> None:
    """The same over 300 connections."""
    async with asyncio.TaskGroup() as group:
        for number in range(300):
            group.create_task(_again_and_again(port, f"pings-{number}", encode(Pingreq(), MQTT_5)))


async def empty(port: int) -> None:
    """Empty PUBLISHes of QoS 0."""
    await _again_and_again(port, "empty", encode(Publish("a", b"", 0), MQTT_5))


async def user_properties(port: int) -> None:
    """PUBLISHes with as many user properties as fit, which the gateway refuses."""
    some = bytes((USER_PROPERTY, 0, 0, 0, 0)) * (LARGE // 5)
    body = encode_string("a") + bytes((0, 1)) + encode_varint(len(some)) + some
    await _again_and_again(port, "properties", frame(PUBLISH << 4 | 2, body))


async def unsubscribes(port: int) -> None:
    """UNSUBSCRIBEs of a filter that the session does not have."""
    await _again_and_again(port, "unsubscribes", encode(Unsubscribe(1, ["a"]), MQTT_5))


async def one_identifier(port: int) -> None:
    """PUBLISHes of QoS 2 that all have the same packet identifier."""
    await _again_and_again(port, "one identifier", encode(Publish("a", b"", 2, packet_identifier=1), MQTT_5))


async def overlapping(port: int) -> None:
    """Filters of a hundred sessions that differ at each level, and messages that match all of them."""
    filters = [(topic_filter, RETAIN_NEVER) for topic_filter in _forks(LEVELS, 2**LEVELS)]
    numbers, identifiers = itertools.count(), _identifiers()
    async with contextlib.AsyncExitStack() as sessions:
        for number in range(100):
            session = await sessions.enter_async_context(connected(port, f"wants-{number}"))
            some = filters[number * 40 :] + filters[: number * 40]
            await session.write(_subscribes(some))
            await session.answered(len(some))
        talks = await sessions.enter_async_context(connected(port, "talks"))
        while True:
            messages = [
                encode(Publish(topic, b"", qos, packet_identifier=next(identifiers) if qos else None), MQTT_5)
                for topic in (f"{'a/' * LEVELS}{next(numbers)}" for _ in range(1_000))
                for qos in (0, 1)
            ]
            await talks.write(b"".join(messages))
            await talks.answered(1_000 * 4)


async def changing(port: int) -> None:
    """Filters that differ at each level come and go while messages that match them arrive."""
    filters = [(topic_filter, RETAIN_NEVER) for topic_filter in _forks(LEVELS, 2_000)]
    names = [encode_string(topic_filter) for topic_filter, _ in filters]
    identifiers = _identifiers()  # 4,000 bytes are fewer PUBACKs where no filter matched: the rest may be on its way
    topics = [f"{'a/' * LEVELS}{number}" for number in range(1_000)]

    async def change(line: Line) -> None:
        while True:
            await line.write(_subscribes(filters) + _request(UNSUBSCRIBE, names))

    async with connected(port, "changes") as line, connected(port, "talks") as talks, asyncio.TaskGroup() as group:
        group.create_task(change(line))
        while True:
            messages = [encode(Publish(topic, b"", 1, packet_identifier=next(identifiers)), MQTT_5) for topic in topics]
            await talks.write(b"".join(messages))
            await talks.answered(1_000 * 4)


async def sys_topics(port: int) -> None:
    """SUBSCRIBEs full of filters below $SYS."""
    filters = [("$SYS/#", 0)] * 100_000 + [(f"$SYS/{'+/' * number}#", 0) for number in range(90)]
    packets = _subscribes(filters)
    async with connected(port, "sys") as line:
        while True:
            await line.write(packets)


async def many_filters(port: int) -> None:
    """SUBSCRIBEs and UNSUBSCRIBEs of a hundred thousand short filters."""
    names = [f"{number:x}" for number in range(100_000)]
    some = [list(map(encode_string, names[start : start + FILTERS_MAX])) for start in range(0, len(names), FILTERS_MAX)]
    packets = _subscribes([(name, 0) for name in names]) + b"".join(_request(UNSUBSCRIBE, one) for one in some)
    async with connected(port, "many") as line:
        while True:
            await line.write(packets)


async def retained(port: int) -> None:
    """Filters that all match thousands of retained messages."""
    async with connected(port, "keeps") as line:
        topics = ["/".join("a" * 10) + f"/{number}" for number in range(5_000)]
        for start in range(0, len(topics), 100):
            some = enumerate(topics[start : start + 100], 1)
            packets = (encode(Publish(topic, b"x", 1, True, packet_identifier=n), MQTT_5) for n, topic in some)
            await line.write(b"".join(packets))
            await line.answered(400)
    filters = [(topic_filter, 1) for topic_filter in _forks(10, 1_000)]
    for number in itertools.count():
        async with connected(port, f"asks-{number % 10}", stays=True) as line:
            await line.write(_subscribes(filters))
            await line.answered(1_000)


async def long_names(port: int) -> None:
    """Retained messages with topic names of 60 KB, and filters that the gateway must compare with each."""
    name = "a/" * 30_000
    async with connected(port, "keeps") as line:
        for number in range(3_000):
            await line.write(encode(Publish(f"{name}{number}", b"x", 0, True), MQTT_5))
        filters = [(f"a/{'+/' * number}x", 0) for number in range(90)]
        while True:
            await line.write(_subscribes(filters))
            await line.answered(len(filters))


async def deep_filters(port: int) -> None:
    """Sessions with as many deep filters as each may have."""
    for number in itertools.count():
        filters = [
            ("/".join(f"{number:x}-{one:x}-{level}" for level in range(10)), RETAIN_NEVER) for one in range(10_000)
        ]
        async with connected(port, f"deep-{number}", stays=True) as line:
            await line.write(_subscribes(filters))
            await line.answered(9_900)


async def shared(port: int) -> None:
    """A session with thousands of shared subscriptions that connects again and again."""
    filters = [(f"$share/g/{number}", 1) for number in range(10_000)]
    async with connected(port, "shared", stays=True) as line:
        await line.write(_subscribes(filters))
        await line.answered(10_000)
    while True:
        async with connected(port, "shared", stays=True) as line:
            await line.write(encode(Pingreq(), MQTT_5))
            await line.answered(2)


async def ending(port: int) -> None:
    """Sessions with thousands of subscriptions that end again and again."""
    packets = _subscribes([(f"a/{number}", RETAIN_NEVER) for number in range(10_000)])
    while True:
        async with connected(port, "ending") as line:
            await line.write(packets)
            await line.answered(10_000)


async def wills(port: int) -> None:
    """CONNECTs with wills of a megabyte that wait for a day, each from another client."""
    filling = {USER_PROPERTY: [("", "x" * PROPERTY_SIZE)] * (LARGE // PROPERTY_SIZE), WILL_DELAY_INTERVAL: DAY_S}
    for number in itertools.count():
        with contextlib.suppress(OSError):
            async with connected(port, f"will-{number}", stays=True, will=Will("w", b"x", 1, True, filling)):
                pass


async def retained_copies(port: int) -> None:
    """Retained messages of a megabyte, of QoS 0 and of QoS 1, in many names."""
    payload, numbers = bytes(LARGE), itertools.count()
    while True:
        async with connected(port, f"retains-{next(numbers)}") as line:
            for number in itertools.islice(numbers, 10):
                await line.write(encode(Publish(f"r/{number}", payload, 0, True), MQTT_5))
                await line.write(encode(Publish(f"q/{number}", payload, 1, True, packet_identifier=1), MQTT_5))
                await line.answered(4)


ATTACKS: dict[str, Callable[[int], Awaitable[None]]] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (
        overlapping,
        changing,
        wills,
        retained_copies,
        pings,
        pings_of_many,
        empty,
        unsubscribes,
        user_properties,
        one_identifier,
        retained,
        sys_topics,
        many_filters,
        deep_filters,
        long_names,
        shared,
        ending,
    )
} | CROWDS


async def _attack(port: int, name: str, seconds: float, other: int) -> None:
    """Attacks for so long; if the gateway ends a connection, the attack goes on over a new one.

    ``other`` is a free port, for attacks that need it.
    """
    until = time.monotonic() + seconds
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while time.monotonic() < until:
                with contextlib.suppress(OSError):
                    await (PEERS[name].attack(port, other) if name in PEERS else ATTACKS[name](port))
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    uvloop.run(_attack(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
