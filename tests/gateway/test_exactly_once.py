"""QoS 2 in and out: each message once, whatever ends connections and the gateway's process."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from tests.gateway.store.support import disk_full, messages_in, stored
from tests.gateway.support import Client, GatewayProcess, running, tcp_port, until
from tests.gateway.test_custody import commits_held_up
from wire.connection import Closed
from wire.packets import Connack, Disconnect, Pubcomp, Publish, Pubrec, Pubrel

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
        """Receives until it has so many messages, or the connection ends."""
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
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        assert await subscriber.subscribe("a", options=2) == [2]
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"once")
        packet = await subscriber.receive()
        assert (packet.payload, packet.qos, packet.dup) == (b"once", 2, False)
        await publisher.publish("b")
    assert stored(tmp_path, "SELECT * FROM incoming") == []


async def test_no_pubrec_leaves_before_message_and_identifier_are_durable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        with commits_held_up(tmp_path):
            client.send("a", b"1", qos=2)
            assert await client.silent()
            assert messages_in(tmp_path) == []
        pubrec = await client.expect(Pubrec)
        assert [message.payload for _, message in messages_in(tmp_path)] == [b"1"]
        assert stored(tmp_path, "SELECT * FROM incoming") == [("client", pubrec.packet_identifier)]
        with commits_held_up(tmp_path):
            client.release(pubrec.packet_identifier)
            assert await client.silent()
        await client.expect(Pubcomp)
        assert stored(tmp_path, "SELECT * FROM incoming") == []


async def test_no_publish_and_no_pubrel_leaves_before_its_state_is_durable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        packet = await subscriber.expect(Publish)
        assert stored(tmp_path, "SELECT session, packet_identifier, state FROM flow") == [
            ("subscriber", packet.packet_identifier, 0)
        ]
        with commits_held_up(tmp_path):
            subscriber.acknowledge(packet)
            assert await subscriber.silent()
        await subscriber.expect(Pubrel)
        assert stored(tmp_path, "SELECT state FROM flow") == [(1,)]


async def test_a_message_that_comes_again_after_a_crash_is_known(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    await gateway.start()
    client = await Client().connect(gateway.port)
    packet_identifier = client.send("a", b"1", qos=2)
    await client.expect(Pubrec)
    await gateway.kill()
    await gateway.start()
    client = await Client().connect(gateway.port)
    assert client.connack.session_present
    client.send("a", b"1", qos=2, dup=True, packet_identifier=packet_identifier)
    await client.expect(Pubrec)
    assert len(messages_in(tmp_path)) == 1


async def test_a_message_that_could_not_be_stored_is_stored_when_it_comes_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        client = await Client().connect(tcp_port(broker))
        with disk_full():
            client.send("a", b"once" + bytes(100_000), qos=2, packet_identifier=7)
            assert (await client.expect(Disconnect)).reason_code == 0x83
        client = await Client().connect(tcp_port(broker))
        client.send("a", b"once" + bytes(100_000), qos=2, packet_identifier=7, dup=True)
        await client.expect(Pubrec)
        assert (await subscriber.receive()).payload[:4] == b"once"


async def test_a_message_that_comes_again_after_a_take_over_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        first = await Client().connect(tcp_port(broker))
        await first.subscribe("b")
        with commits_held_up(tmp_path, "sessions.sqlite"):
            first.protocol.publish("a", b"once", qos=2, packet_identifier=7)
            first.protocol.unsubscribe(["b"])  # it waits, and with it the reading that brought the message
            first.flush()
            await until(lambda: not list(broker.subscribers.cursors_for("b")), "the UNSUBSCRIBE came")
            second = Client()
            await second.open(tcp_port(broker))
            await until(lambda: broker.counters.connections_opened == 3, "the second connection came")
        await second.expect(Connack)
        second.send("a", b"once", qos=2, packet_identifier=7, dup=True)
        await second.expect(Pubrec)
        assert (await subscriber.receive()).payload == b"once"
        assert await subscriber.silent()


async def test_what_was_released_before_a_crash_is_released_again_and_not_sent_again(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    await gateway.start()
    subscriber = await Client("subscriber").connect(gateway.port)
    await subscriber.subscribe("a", options=2)
    publisher = await Client("publisher").connect(gateway.port)
    for payload in (b"1", b"2", b"3"):
        await publisher.publish_once("a", payload)
    first, second, _ = [await subscriber.expect(Publish) for _ in range(3)]
    for packet in (first, second):
        subscriber.acknowledge(packet)
        await subscriber.expect(Pubrel)
    subscriber.complete(first)
    await gateway.kill()
    await gateway.start()
    subscriber = await Client("subscriber").connect(gateway.port)
    subscriber.protocol.resume([first.packet_identifier, second.packet_identifier])
    events = await rest_of(subscriber)
    released = {event.packet_identifier for event in events if isinstance(event, Pubrel)}
    assert second.packet_identifier in released
    (again,) = [event for event in events if isinstance(event, Publish)]
    assert (again.payload, again.dup) == (b"3", True)


async def rest_of(client: Client) -> list[object]:
    events: list[object] = []
    try:
        async with asyncio.timeout(0.3):
            while True:
                events.append(await client.event())
    except TimeoutError:
        return events


async def test_each_message_arrives_once_over_kills_of_the_gateway_and_cut_lines(tmp_path: Path) -> None:
    count, kills = 1500, 5
    gateway = GatewayProcess(tmp_path)
    await gateway.start()
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


async def test_a_message_begun_belongs_to_its_member_of_the_group(tmp_path: Path) -> None:
    """[MQTT-4.8.2-4, MQTT-4.8.2-5]"""
    async with running(tmp_path) as broker:
        first = await Client("first").connect(tcp_port(broker))
        await first.subscribe("$share/group/a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        packet = await first.expect(Publish)
        second = await Client("second").connect(tcp_port(broker))
        await second.subscribe("$share/group/a", options=2)
        first.cut()
        assert await second.silent()
    async with running(tmp_path) as broker:
        second = await Client("second").connect(tcp_port(broker))
        assert await second.silent()
        first = await Client("first").connect(tcp_port(broker))
        again = await first.receive()
        assert (again.payload, again.packet_identifier, again.dup) == (b"1", packet.packet_identifier, True)


async def test_what_was_begun_for_a_member_that_leaves_its_group_still_comes(tmp_path: Path) -> None:
    groups = ("$share/one/a", "$share/two/b")
    async with running(tmp_path) as broker:
        member = await Client("member").connect(tcp_port(broker))
        await member.subscribe(*groups, options=2)
        await member.disconnect()
        publisher = await Client("publisher").connect(tcp_port(broker))
        for topic in ("a", "a", "b", "b"):
            await publisher.publish_once(topic, topic.encode())
        member = await Client("member", receive_maximum=2).connect(tcp_port(broker))
        first = [await member.expect(Publish), await member.expect(Publish)]
        session = broker.sessions.get("member")
        assert session is not None
        await until(lambda: len(session.outgoing.flows) == 4, "all of them have begun")
        await member.unsubscribe(*groups)
        arrived = {packet.packet_identifier: packet for packet in first}
        for packet in first:
            member.acknowledge(packet)
        for _ in range(6):  # two PUBLISHes and four PUBRELs
            match await member.event():
                case Publish() as packet:
                    arrived[packet.packet_identifier] = packet
                    member.acknowledge(packet)
                case Pubrel() as pubrel:
                    member.complete(arrived[pubrel.packet_identifier])
        assert sorted(packet.payload for packet in arrived.values()) == [b"a", b"a", b"b", b"b"]
        await publisher.publish("c")
        await until(lambda: broker.log.needed_count == 0, "nobody needs them")


async def test_a_refused_message_does_not_come_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        packet = await subscriber.expect(Publish)
        assert packet.packet_identifier is not None
        subscriber.protocol.pubrec(packet.packet_identifier, 0x83)
        subscriber.flush()
        await publisher.publish_once("a", b"2")
        assert (await subscriber.receive()).payload == b"2"
        subscriber.cut()
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        assert await subscriber.silent()


async def test_the_log_keeps_what_a_client_has_not_received(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        await subscriber.expect(Publish)
        for _ in range(5):
            await publisher.publish_once("b", b"")
        subscriber.cut()
    assert messages_in(tmp_path)[0][0] == 1
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        assert (await subscriber.receive()).payload == b"1"
        await subscriber.publish("b")  # what it sent before is handled
    assert messages_in(tmp_path)[0][0] != 1


async def test_a_session_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client("client").connect(tcp_port(broker))
        await client.subscribe("a", options=2)
        client.send("a", b"1", qos=2)
        events = [await client.event() for _ in range(2)]
        assert {type(event) for event in events} == {Pubrec, Publish}
        again = await Client("client", clean_start=True).connect(tcp_port(broker))
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
            clients[level] = await Client(f"v{level}", protocol_level=level, **session).connect(tcp_port(broker))
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


async def test_what_cannot_be_noted_is_not_sent_and_comes_when_it_can(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            other.execute("CREATE TRIGGER broken BEFORE INSERT ON flow BEGIN SELECT RAISE(ABORT, 'broken'); END")
            other.commit()
            publisher = await Client("publisher").connect(tcp_port(broker))
            for payload in (b"1", b"2"):
                publisher.send("a", payload, qos=1)
                publisher.send("a", payload, qos=2)
            assert (await subscriber.expect(Disconnect)).reason_code == 0x83
            other.execute("DROP TRIGGER broken")
            other.commit()
        subscriber = await Client("subscriber", receive_maximum=1).connect(tcp_port(broker))
        received = set()
        publisher = await Client("publisher", session_expiry_s=0, clean_start=True).connect(tcp_port(broker))
        await publisher.publish_once("a", b"3")
        while b"3" not in received:
            received.add((await subscriber.receive()).payload)
    assert stored(tmp_path, "SELECT * FROM flow") == []


async def test_many_messages_are_noted_and_released_together_and_each_arrives_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        for number in range(100):
            publisher.protocol.publish("a", b"%d" % number, qos=2)
        publisher.flush()
        packets = [await subscriber.expect(Publish) for _ in range(100)]
        assert [packet.payload for packet in packets] == [b"%d" % number for number in range(100)]
        identifiers = [packet.packet_identifier for packet in packets]
        assert len(stored(tmp_path, "SELECT * FROM flow WHERE session = 'subscriber' AND state = 0")) == 100
        for identifier in identifiers:
            subscriber.protocol.pubrec(identifier or 0)
        subscriber.flush()
        assert [(await subscriber.expect(Pubrel)).packet_identifier for _ in identifiers] == identifiers
        assert len(stored(tmp_path, "SELECT * FROM flow WHERE session = 'subscriber' AND state = 1")) == 100
        for identifier in identifiers:
            subscriber.protocol.pubcomp(identifier or 0)
        subscriber.flush()
        await until(lambda: not stored(tmp_path, "SELECT * FROM flow WHERE state < 2"), "the flows end")


async def test_what_ends_with_the_connection_is_not_noted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber", session_expiry_s=0).connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        publisher.send("a", b"1", qos=2)
        packet = await subscriber.expect(Publish)
        with commits_held_up(tmp_path):  # nothing has to be written before it is released
            subscriber.acknowledge(packet)
            await subscriber.expect(Pubrel)
            subscriber.complete(packet)
        assert stored(tmp_path, "SELECT * FROM flow") == []
