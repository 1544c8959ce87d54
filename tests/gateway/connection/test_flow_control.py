"""Clients whose own acknowledgements make room for what they publish: a full gateway reads on and goes on."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from gateway.config.schema import LimitsConfig, QueueConfig, StoreConfig
from tests.gateway.support import Client, connected, running, subscribed, tcp_port, until
from tools.lab.testing.client import UnexpectedEvent
from wire.codec.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.errors import Closed, WireError

INFLIGHT = LimitsConfig().inflight
FULL = QueueConfig(max_messages=INFLIGHT, when_full="flow_control")


class Loop:
    """A client that makes its own queue full, publishes the rest without a look at what comes back, and resumes its
    session until all of it is acknowledged and delivered.

    ``delivered`` are the numbers that came; ``connections`` how many it took.
    """

    def __init__(
        self, broker: Broker, count: int, level: int, qos: int, first: int = INFLIGHT, padding: int = 0
    ) -> None:
        self._port = tcp_port(broker)
        self._level, self._qos, self._first = level, qos, first
        self._all = set(range(1, count + 1))
        self._unanswered = {number: b"%d" % number + b" " * padding for number in self._all}
        self._released: dict[int, None] = {}
        self.delivered: Counter[int] = Counter()
        self.connections = 0

    async def run(self) -> None:
        while not self._is_done:
            client = Client("loop", protocol_level=self._level, clean_start=False)
            with suppress(OSError, UnexpectedEvent, WireError):
                await client.connect(self._port)
                self.connections += 1
                await self._serve(client)
            client.cut()

    @property
    def _is_done(self) -> bool:
        return not self._unanswered and not self._released and self.delivered.keys() == self._all

    async def _serve(self, client: Client) -> None:
        is_resumed = client.connack.session_present
        deliveries = [] if is_resumed else await self._fill(client)
        for identifier in self._released:
            client.protocol.pubrel(identifier)
        self._publish(client, list(self._unanswered)[: client.protocol.send_quota], dup=is_resumed)
        for delivery in deliveries:
            client.acknowledge(delivery)
        while not self._is_done:
            packet = await client.event()
            if packet is None or isinstance(packet, Closed):
                return
            if isinstance(packet, Publish):
                client.acknowledge(packet)
            self._note(client, packet)

    async def _fill(self, client: Client) -> list[Publish]:
        """Makes the queue full, and returns the deliveries.

        A limit counts committed messages, and not a burst; at QoS 2 it does not count those in flight.
        """
        await client.subscribe("a", options=self._qos)
        left = len(self._unanswered) - self._first
        self._publish(client, list(self._unanswered)[: self._first], dup=False)
        deliveries: list[Publish] = []
        while len(deliveries) < min(self._first, INFLIGHT) or len(self._unanswered) > left:
            packet = await client.event()
            self._note(client, packet)
            if isinstance(packet, Publish):
                deliveries.append(packet)
        return deliveries

    def _publish(self, client: Client, identifiers: list[int], *, dup: bool) -> None:
        for identifier in identifiers:
            payload = self._unanswered[identifier]
            client.protocol.publish("a", payload, qos=self._qos, dup=dup, packet_identifier=identifier)
        client.flush()

    def _note(self, client: Client, packet: Any) -> None:
        match packet:
            case Puback(packet_identifier=identifier):
                self._unanswered.pop(identifier, None)
            case Pubrec(packet_identifier=identifier):
                self._released[identifier] = None
                self._unanswered.pop(identifier, None)
                client.protocol.pubrel(identifier)
            case Pubcomp(packet_identifier=identifier):
                self._released.pop(identifier, None)
            case Publish(payload=payload):
                self.delivered[int(payload)] += 1
            case Pubrel(packet_identifier=identifier):
                client.protocol.pubcomp(identifier)


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_client_that_publishes_more_than_waits_to_its_own_subscription_gets_all_of_it(
    tmp_path: Path, qos: int
) -> None:
    async with running(tmp_path, queue=FULL) as broker:
        loop = Loop(broker, 6000, 4, qos, first=qos * INFLIGHT)
        await asyncio.wait_for(loop.run(), 50)
        assert set(loop.delivered) == set(range(1, 6001))
        assert loop.connections > 1, "it was told to send again what was forgotten"


async def test_an_mqtt_5_client_that_uses_the_receive_maximum_gets_all_of_it_over_one_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, queue=FULL) as broker:
        loop = Loop(broker, 2000, 5, 1)
        await asyncio.wait_for(loop.run(), 50)
        assert (set(loop.delivered), loop.connections) == (set(range(1, 2001)), 1)


async def test_large_messages_to_an_own_subscription_all_come(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=10, when_full="flow_control")) as broker:
        loop = Loop(broker, 300, 5, 1, first=10, padding=20_000)
        await asyncio.wait_for(loop.run(), 50)
        assert set(loop.delivered) == set(range(1, 301))


async def test_a_full_store_is_relieved_by_its_own_publisher(tmp_path: Path) -> None:
    store = StoreConfig(str(tmp_path), max_messages=50, when_full="flow_control")
    async with running(tmp_path, store=store) as broker:
        loop = Loop(broker, 5000, 4, 1, first=50)
        await asyncio.wait_for(loop.run(), 50)
        assert set(loop.delivered) == set(range(1, 5001))


async def test_two_clients_that_publish_to_each_other_relieve_each_other(tmp_path: Path) -> None:
    """Neither gets room before the other one's acknowledgements are read."""

    async def run(client: Client, topic: str) -> None:
        for number in range(2000):
            client.send(topic, b"%d" % number, dup=False)
        acknowledged, delivered = 0, set[bytes]()
        while acknowledged < 2000 or len(delivered) < 2000:
            packet: Any = await client.event()
            if isinstance(packet, Publish):
                delivered.add(packet.payload)
                client.acknowledge(packet)
            else:
                assert isinstance(packet, Puback), packet
                acknowledged += 1

    async with running(tmp_path, queue=FULL) as broker:
        first, second = await subscribed(broker, "first", "b"), await subscribed(broker, "second", "a")
        await asyncio.wait_for(asyncio.gather(run(first, "a"), run(second, "b")), 50)


@pytest.mark.parametrize("level", [4, 5])
async def test_pings_and_a_disconnect_are_read_while_a_client_with_deliveries_waits(tmp_path: Path, level: int) -> None:
    """The session of a client that leaves for good makes room for the other publishers."""
    async with running(tmp_path, queue=QueueConfig(max_messages=1, when_full="flow_control")) as broker:
        client = await subscribed(broker, "client", "a", protocol_level=level, clean_start=True, session_expiry_s=0)
        client.send("a")
        assert {type(await client.event()), type(await client.event())} == {Puback, Publish}
        for _ in range(2000 if level == 5 else 5000):
            client.send("a")
        await client.ping()
        other = await connected(broker, "other")
        held = other.send("a")
        client.protocol.disconnect()
        client.flush()
        assert (await other.expect(Puback)).packet_identifier == held


async def test_a_publisher_without_deliveries_is_not_read_beyond_the_bound_and_keeps_its_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=1, when_full="flow_control")) as broker:
        reader = await subscribed(broker, "reader", "a")
        publisher = await connected(broker, "publisher", protocol_level=4)
        sent = [publisher.send("a", b"%d" % number) for number in range(5000)]
        await until(lambda: broker.counters.messages_received[1] > 2000, "many wait")
        got = []
        for _ in sent:
            packet = await reader.expect(Publish)
            got.append(int(packet.payload))
            reader.acknowledge(packet)
            reader.flush()
        assert got == list(range(5000))
        assert [(await publisher.expect(Puback)).packet_identifier for _ in sent] == sent
