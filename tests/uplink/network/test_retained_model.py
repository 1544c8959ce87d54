"""Random networks of gateways against a model: which retained messages each has, and which each subscriber gets."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.uplink.network.sites import Site
from tools.lab.testing.client import Client
from tools.lab.testing.network_link import NetworkLink
from wire.codec.packets import Publish, Pubrel, Suback, Unsuback
from wire.topics import matches

FILTERS = ("#", "+/1", "+/+", "a/#", "b/#", "c/+", "a/1", "a/2", "b/1", "b/2", "c/1")
ROUNDS, STEPS = 4, 8


@dataclass(eq=False)
class Reader:
    """A client with one subscription at one gateway, and the payloads that it has got of each topic."""

    site: str
    topic_filter: str
    client: Client
    got: dict[str, list[bytes]] = field(default_factory=dict)
    answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self.read())

    async def read(self) -> None:
        while (event := await self.client.event()) is not None:
            if isinstance(event, Publish):
                self.got.setdefault(event.topic, []).append(event.payload)
                if event.packet_identifier is not None:
                    self.client.acknowledge(event)
            elif isinstance(event, Pubrel):
                self.client.protocol.pubcomp(event.packet_identifier)
                self.client.flush()
            elif isinstance(event, Suback | Unsuback):
                self.answers.release()

    async def subscribe(self) -> None:
        self.client.protocol.subscribe([(self.topic_filter, 2)])
        self.client.flush()
        await self.answers.acquire()

    async def end(self) -> None:
        self.client.protocol.unsubscribe([self.topic_filter])
        self.client.flush()
        await self.answers.acquire()
        self.client.cut()
        await asyncio.wait({self.task})


class World:
    """A tree of gateways. Each topic has one gateway at which it is published: that with the name of its first level.

    ``newest`` is the newest retained message of each topic.
    """

    def __init__(self, folder: Path, chance: random.Random, mode: str) -> None:
        self._chance = chance
        self._mode = mode
        names = "abcd"[: chance.randint(2, 4)] if mode == "active-active" else "ab"  # see the known limits
        self.sites = {name: Site(folder, name) for name in names}
        self.uplinks = {name: names[chance.randrange(place)] for place, name in enumerate(names) if place}
        self.links: list[NetworkLink] = []
        self.down: set[NetworkLink] = set()
        self.readers: list[Reader] = []
        self.newest: dict[str, bytes] = {}
        self._published = 0
        self._made = 0

    async def start(self) -> None:
        for name, other in self.uplinks.items():
            dialler, dialled = self._chance.sample([self.sites[name], self.sites[other]], 2)
            link = NetworkLink("127.0.0.1", dialled.port)
            await link.open()
            self.links.append(link)
            dialler.dial(link.port, dialled.name, mode=self._mode)
            dialled.expect(name=dialler.name, mode=self._mode)
        for site in self.sites.values():
            await site.start()

    async def stop(self) -> None:
        for reader in self.readers:
            reader.client.cut()
            reader.task.cancel()
            await asyncio.wait({reader.task})
        for site in self.sites.values():
            await site.stop()
        for link in self.links:
            await link.cut()

    def way(self, name: str, other: str) -> list[str]:
        """The gateways from one to another one, both with them."""
        ups = {one: self._up(one) for one in (name, other)}
        meet = next(one for one in ups[name] if one in ups[other])
        return [*ups[name][: ups[name].index(meet)], *reversed(ups[other][: ups[other].index(meet) + 1])]

    def _up(self, name: str) -> list[str]:
        return [name, *(self._up(self.uplinks[name]) if name in self.uplinks else [])]

    def expected(self, name: str) -> dict[str, bytes]:
        """The retained messages of a gateway: its own, and the ones that a reader gets through it."""
        return {
            topic: payload
            for topic, payload in self.newest.items()
            if topic[0] == name or any(self._passes(reader, topic, name) for reader in self.readers)
        }

    def _passes(self, reader: Reader, topic: str, name: str) -> bool:
        return matches(reader.topic_filter, topic) and name in self.way(reader.site, topic[0])

    async def step(self) -> None:
        once = [self.clear, self.unsubscribe, self.subscribe_again, self.cut, self.restart]
        kinds: list[Callable[[], Awaitable[object]]] = [*3 * [self.publish], *2 * [self.subscribe], *once]
        await self._chance.choice(kinds)()

    async def publish(self) -> None:
        self._published += 1
        await self._publish(
            f"{self._chance.choice(list(self.sites))}/{self._chance.randint(1, 3)}", b"%d" % self._published
        )

    async def clear(self) -> None:
        if self.newest:
            await self._publish(self._chance.choice(list(self.newest)), b"")

    async def _publish(self, topic: str, payload: bytes) -> None:
        device = await self.sites[topic[0]].client("device", session_expiry_s=0)
        publish = self._chance.choice([device.publish, device.publish_once])
        await publish(topic, payload, retain=True)
        device.cut()
        if payload:
            self.newest[topic] = payload
        else:
            self.newest.pop(topic, None)

    async def subscribe(self, topic_filter: str = "") -> Reader:
        self._made += 1
        name = self._chance.choice(list(self.sites))
        client = await self.sites[name].client(f"reader-{self._made}", session_expiry_s=0)
        reader = Reader(name, topic_filter or self._chance.choice(FILTERS), client)
        await reader.subscribe()
        self.readers.append(reader)
        return reader

    async def unsubscribe(self) -> None:
        if self.readers:
            await self._end(self._chance.choice(self.readers))

    async def subscribe_again(self) -> None:
        """A filter goes and comes again at once."""
        if self.readers:
            reader = self._chance.choice(self.readers)
            await self._end(reader)
            await self.subscribe(reader.topic_filter)

    async def cut(self) -> None:
        link = self._chance.choice(self.links)
        await link.cut()
        if self._chance.random() < 0.5:
            await link.open()
            self.down.discard(link)
        else:
            self.down.add(link)

    async def restart(self) -> None:
        name = self._chance.choice(list(self.sites))
        for reader in [one for one in self.readers if one.site == name]:
            await self._end(reader)
        await self.sites[name].stop()
        await self.sites[name].start()

    async def _end(self, reader: Reader) -> None:
        await reader.end()
        self.readers.remove(reader)

    async def settle(self) -> None:
        """All links are up again; returns when each gateway has the retained messages that it is to have."""
        for link in self.down:
            await link.open()
        self.down.clear()
        for site in self.sites.values():
            await site.linked()
        for name, site in self.sites.items():
            await site.keeps(self.expected(name))

    async def check_readers(self) -> None:
        """Each reader has the newest message of each topic, and none twice."""
        for reader in self.readers:
            for topic, payload in self.newest.items():
                if matches(reader.topic_filter, topic):
                    await self._got(reader, topic, payload)
            twice = {topic: got for topic, got in reader.got.items() if _repeats(got)}
            assert not twice or self._mode == "active-passive", (reader.site, reader.topic_filter, twice)

    async def _got(self, reader: Reader, topic: str, payload: bytes) -> None:
        for _ in range(2000):
            if reader.got.get(topic, [b""])[-1] == payload:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(
            f"{reader.site} {reader.topic_filter}: {topic} is {payload!r}, got {reader.got.get(topic)}"
        )


def _repeats(got: list[bytes]) -> bool:
    payloads = [one for one in got if one]
    return len(payloads) != len(set(payloads))


@pytest.mark.parametrize("mode", ["active-active", "active-passive"])
@pytest.mark.parametrize("number", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2))])
async def test_each_gateway_has_the_copies_of_its_interest_and_each_subscriber_the_newest_message_once(
    tmp_path: Path, seed: int, number: int, mode: str
) -> None:
    world = World(tmp_path, random.Random(f"{seed} {number} {mode}"), mode)
    await world.start()
    try:
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                await world.step()
            await world.settle()
            await world.check_readers()
            reader = await world.subscribe()
            await world.settle()
            await world.check_readers()
            expected = {topic: [one] for topic, one in world.newest.items() if matches(reader.topic_filter, topic)}
            assert mode == "active-passive" or reader.got == expected, (reader.site, reader.topic_filter)
    finally:
        await world.stop()
