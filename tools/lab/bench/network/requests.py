"""Requests with fresh response topics, and how soon the first message comes, over chains of three."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tools.lab.bench.broker.processes import BenchUnavailable, Broker
from tools.lab.bench.network.chain import (
    PROBES_S,
    Chain,
    Connect,
    Party,
    gateways,
    leaves,
    over_mqtt,
    over_nats,
    until_it_comes,
)
from tools.lab.figure import Figure

REQUESTERS = 10
ANSWER_S = 5.0  # a request that has no answer after so long has none
UNANSWERED_MAX = 100  # after this number of unanswered requests no more are sent
REQUEST = "requests/all"
PACE_S = 0.005  # so slow that a gateway is never behind
TIMES_NATS = 10
SHARE = 0.99
DIALS = {True: "A dials M", False: "M dials A"}


def requests(folder: Path, count: int) -> Iterator[Figure]:
    """Counts the requests that are answered; each one's response topic was subscribed to just before."""
    with leaves(folder / "leaves") as chain:
        by_nats, nats_s = asyncio.run(answered_over(chain, over_nats, count))
    for first_dials, dials in DIALS.items():
        with gateways(folder / dials, first_dials) as chain:
            for qos in (1, 0):
                answered, took_s = asyncio.run(answered_over(chain, over_mqtt(qos), count, f"answers/{qos}"))
                name = f"{count:,} requests over three hops at QoS {qos}, {dials}"
                yield Figure(f"{name}: answered, beside NATS leaves", "", answered, by_nats, count)
                yield Figure(f"{name}: rate, beside NATS leaves", "requests/s", answered / took_s, by_nats / nats_s)


def first_message(folder: Path, count: int) -> Iterator[Figure]:
    """Measures the time from a SUBACK to the first message, which is published three hops away all the time."""
    with leaves(folder / "leaves") as chain:
        theirs_ms = asyncio.run(first_ms_over(chain, over_nats, count))
    for first_dials, dials in DIALS.items():
        with gateways(folder / dials, first_dials) as chain:
            for qos in (0, 1):
                ours_ms = asyncio.run(first_ms_over(chain, over_mqtt(qos), count, f"first/{qos}"))
                name = f"SUBACK to first message over three hops at QoS {qos}, {dials}, p99, beside NATS leaves"
                yield Figure(name, "ms", ours_ms, theirs_ms, TIMES_NATS * theirs_ms, at_most=True)


async def answered_over(chain: Chain, connect: Connect, count: int, below: str = "answers") -> tuple[int, float]:
    """Returns how many requests from the last one of a chain to the first one are answered, and how long that took.

    The response topics are ``below`` a topic that nothing else has used in the chain.
    """
    async with AsyncExitStack() as stack:
        responder = await stack.enter_async_context(_connected(connect, chain.first, "responder"))
        await responder.subscribe(REQUEST)
        answering = asyncio.create_task(_answer(responder))
        stack.callback(answering.cancel)
        requesters = [
            await stack.enter_async_context(_connected(connect, chain.last, f"requester-{number}"))
            for number in range(REQUESTERS)
        ]
        ready = f"{below}/ready"
        await requesters[0].subscribe(ready)
        await until_it_comes(requesters[0], lambda: requesters[0].publish(REQUEST, reply=ready))
        numbers = iter(range(count))
        unanswered: list[str] = []
        started = time.perf_counter()
        found = await asyncio.gather(*(_request(requester, numbers, unanswered, below) for requester in requesters))
        return sum(found), time.perf_counter() - started


async def _answer(responder: Party) -> None:
    while True:
        request = await responder.receive()
        responder.publish(request.reply, request.payload)


async def _request(requester: Party, numbers: Iterator[int], unanswered: list[str], below: str) -> int:
    """Sends requests one by one, and notes those without an answer; returns how many have one."""
    answered = 0
    for number in numbers:
        topic = f"{below}/{number}"
        await requester.subscribe(topic)
        requester.publish(REQUEST, b"%d" % number, topic)
        try:
            async with asyncio.timeout(ANSWER_S):
                while (await requester.receive()).subject != topic:  # the answer to an earlier one, that was late
                    pass
            answered += 1
        except TimeoutError:
            unanswered.append(topic)
        requester.unsubscribe(topic)
        if len(unanswered) >= UNANSWERED_MAX:
            break
    return answered


async def first_ms_over(chain: Chain, connect: Connect, count: int, below: str = "first") -> float:
    """Returns the p99 of the times to the first message, over ``count`` subscriptions one after the other.

    Their topics are ``below`` one that nothing else has used in the chain.
    """
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(_connected(connect, chain.first, "publisher"))
        subscriber = await stack.enter_async_context(_connected(connect, chain.last, "subscriber"))
        reading = asyncio.create_task(_read(publisher))
        stack.callback(reading.cancel)
        topics = [f"{below}/{number}" for number in range(count + 1)]
        now = iter(topics)
        wanted = [next(now)]

        async def publish() -> None:
            while True:
                publisher.publish(wanted[0], b"first")
                await asyncio.sleep(PACE_S)

        publishing = asyncio.create_task(publish())
        stack.callback(publishing.cancel)
        times_ms = []
        for topic in topics:
            wanted[0] = topic
            await subscriber.subscribe(topic)
            since = time.perf_counter()
            await _first(subscriber, topic)
            times_ms.append(1000 * (time.perf_counter() - since))
            subscriber.unsubscribe(topic)
        return sorted(times_ms[1:])[int(SHARE * count)]  # before the first one the chain may not be complete


async def _first(subscriber: Party, topic: str) -> None:
    try:
        async with asyncio.timeout(PROBES_S):
            while (await subscriber.receive()).subject != topic:
                pass
    except TimeoutError:
        raise BenchUnavailable(f"no message of {topic} came in {PROBES_S:g} s") from None


async def _read(publisher: Party) -> None:
    """Reads the acknowledgements of what a party publishes."""
    await publisher.receive()


@asynccontextmanager
async def _connected(connect: Connect, broker: Broker, name: str) -> AsyncIterator[Party]:
    party = await connect(broker, name)
    try:
        yield party
    finally:
        await party.close()
