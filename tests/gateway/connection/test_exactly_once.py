"""QoS 2 in and out: each message once, whatever ends connections and the gateway's process."""

import asyncio
from pathlib import Path

import pytest

from tests.gateway.steps import started
from tests.gateway.store.support import stored
from tests.gateway.support import Client, connected, joined, running, subscribed
from wire.codec.packets import Pubcomp, Publish, Pubrec, Pubrel
from wire.errors import Closed

WINDOW = 50


class Publisher:
    """Publishes numbers at QoS 2, each until its PUBCOMP, as a device does: over every loss of the line."""

    def __init__(self, count: int) -> None:
        self.completed = 0
        self._numbers = iter(range(count))
        self._unreceived: dict[int, int] = {}  # packet identifier: number
        self._unreleased: list[int] = []
        self._client = Client("publisher")

    async def connect(self, port: int) -> None:
        self._client = await Client("publisher").connect(port)
        for packet_identifier in self._unreleased:
            self._client.release(packet_identifier)
        for packet_identifier, number in self._unreceived.items():
            self._send(number, packet_identifier=packet_identifier, dup=self._client.connack.session_present)

    async def run_until(self, completed: int) -> bool:
        """Returns False when the connection has ended before."""
        while self.completed < completed:
            while len(self._unreceived) + len(self._unreleased) < WINDOW:
                number = next(self._numbers, None)
                if number is None:
                    break
                self._unreceived[self._send(number)] = number
            if not await self._take():
                return False
        return True

    def _send(self, number: int, **options: object) -> int:
        packet_identifier = self._client.send(f"a/{number % 3}", b"%d" % number, qos=2, **options)
        assert packet_identifier is not None
        return packet_identifier

    async def _take(self) -> bool:
        try:
            event = await self._client.event()
        except OSError:
            return False
        if isinstance(event, Pubrec):
            if event.packet_identifier in self._unreceived:
                del self._unreceived[event.packet_identifier]
                self._unreleased.append(event.packet_identifier)
            self._client.release(event.packet_identifier)
        elif isinstance(event, Pubcomp):
            self._unreleased.remove(event.packet_identifier)
            self.completed += 1
        else:
            return False
        return True


class Subscriber:
    """Counts what it gets at QoS 2; its packet identifiers outlive its connections, as they have to."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._unreleased: set[int] = set()

    async def connect(self, port: int) -> Client:
        client = await Client("subscriber").connect(port)
        client.protocol.resume(list(self._unreleased))
        return client

    async def run(self, client: Client, count: int) -> None:
        """Receives until it has ``count`` messages, or the connection ends."""
        while len(self.received) < count or self._unreleased:
            try:
                event = await client.event()
            except OSError:
                return
            if isinstance(event, Publish):
                assert event.packet_identifier is not None
                if event.packet_identifier not in self._unreleased:
                    self._unreleased.add(event.packet_identifier)
                    self.received.append(int(event.payload))
                client.acknowledge(event)
            elif isinstance(event, Pubrel):
                self._unreleased.discard(event.packet_identifier)
                client.protocol.pubcomp(event.packet_identifier)
                client.flush()
            else:
                return


async def test_a_message_goes_through_at_qos_2(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        assert await subscriber.subscribe("a", options=2) == [2]
        publisher = await connected(broker, "publisher")
        await publisher.publish_once("a", b"once")
        packet = await subscriber.receive()
        assert (packet.payload, packet.qos, packet.dup) == (b"once", 2, False)
        await publisher.publish("b")
    assert stored(tmp_path, "SELECT * FROM incoming") == []


async def test_each_message_arrives_once_over_kills_of_the_gateway_and_cut_lines(tmp_path: Path) -> None:
    count, kills = 1500, 5
    gateway = await started(tmp_path)
    publisher, subscriber = Publisher(count), Subscriber()
    client = await subscriber.connect(gateway.port)
    await client.subscribe("a/#", options=2)
    for life in range(kills + 1):
        await publisher.connect(gateway.port)
        reading = asyncio.create_task(subscriber.run(client, count))
        assert await publisher.run_until(count * (life + 1) // (kills + 1))
        if life == kills:
            break
        if life % 2:
            client.cut()
            await reading
            client = await subscriber.connect(gateway.port)
            reading = asyncio.create_task(subscriber.run(client, count))
        await gateway.kill()
        await reading
        assert not await publisher.run_until(count)
        await gateway.start()
        client = await subscriber.connect(gateway.port)
        assert client.connack.session_present
    await reading
    assert sorted(subscriber.received) == list(range(count))
    assert await gateway.stop() == 0


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_what_was_published_after_a_client_left_comes_without_dup_after_a_restart(
    tmp_path: Path, is_killed: bool, qos: int
) -> None:
    """[MQTT-4.3.2-2, MQTT-4.3.3-2; 3.1.1 MQTT-4.3.2-1]"""
    gateway = await started(tmp_path)
    subscriber = await joined(gateway.port, "subscriber", "a", options=qos)
    publisher = await Client("publisher").connect(gateway.port)
    publish = publisher.publish if qos == 1 else publisher.publish_once
    await publish("a", b"1")
    await subscriber.expect(Publish)  # and does not acknowledge it
    await subscriber.disconnect()
    await publish("a", b"2")
    await publish("b", b"the session is saved")
    await (gateway.kill if is_killed else gateway.stop)()
    await gateway.start()
    subscriber = await Client("subscriber").connect(gateway.port)
    packets = [await subscriber.expect(Publish) for _ in range(2)]
    assert [(packet.payload, packet.dup) for packet in packets] == [(b"1", True), (b"2", False)]


async def test_a_session_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", options=2)
        client.send("a", b"1", qos=2)
        events = [await client.event() for _ in range(2)]
        assert {type(event) for event in events} == {Pubrec, Publish}
        again = await connected(broker, "client", clean_start=True)
        assert not again.connack.session_present
        while not isinstance(await client.event(), Closed):
            pass
    assert stored(tmp_path, "SELECT * FROM incoming") == []
    assert stored(tmp_path, "SELECT * FROM flow") == []


async def test_both_versions_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        clients = {}
        for level in (4, 5):
            session = {"session_expiry_s": 0} if level == 4 else {}
            clients[level] = await connected(broker, f"v{level}", protocol_level=level, **session)
            assert await clients[level].subscribe(f"to/{level}", options=2) == [2]
        for sender, receiver in ((4, 5), (5, 4)):
            topic = f"to/{receiver}"
            await clients[sender].publish_once(topic, b"2")
            packets = [await clients[receiver].receive()]
            await clients[sender].publish(topic, b"1")
            packets.append(await clients[receiver].receive())
            clients[sender].send(topic, b"0", qos=0)
            packets.append(await clients[receiver].receive())
            assert [(packet.qos, packet.payload) for packet in packets] == [(2, b"2"), (1, b"1"), (0, b"0")]
