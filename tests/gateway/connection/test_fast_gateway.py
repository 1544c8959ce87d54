"""A gateway with many messages at once: what goes the hot path is stored, delivered and refused as everything is."""

from pathlib import Path
from typing import Any

import pytest

from gateway.store import PublishBatch
from tests.gateway.steps import session_of, started
from tests.gateway.store.support import epoch_of, messages_in, stored
from tests.gateway.support import Client, connected, joined, running, subscribed, until, user_property
from wire.bulk import publishes, reader
from wire.codec.packets import MQTT_3_1_1, MQTT_5, NO_LOCAL, Puback, Pubcomp, Publish, Pubrec
from wire.hops import HOPS_PROPERTY, encode_hop
from wire.identity import IDENTITY_PROPERTY, RECEIVE, RECEIVED_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY

MANY = 300


def publish_many(client: Client, topic: str, qos: int = 1, count: int = MANY) -> list[int]:
    """Sends them in one write."""
    identifiers = [client.protocol.publish(topic, b"%d" % number, qos=qos) for number in range(count)]
    client.flush()
    return [identifier for identifier in identifiers if identifier is not None]


async def answers(client: Client, kind: type[Puback | Pubrec | Pubcomp], count: int = MANY) -> list[int]:
    return [(await client.expect(kind)).packet_identifier for _ in range(count)]


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages went each step of the hot path, as it goes."""
    taken: list[int] = []
    cut = publishes.cut_publishes

    def noting_cut(*arguments: object) -> object:
        found = cut(*arguments)  # type: ignore[arg-type]
        taken.append(len(found.identifiers))
        return found

    monkeypatch.setattr(reader, "cut_publishes", noting_cut)
    return taken


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
async def test_messages_reach_a_subscriber_in_order_with_identity_and_provenance(
    tmp_path: Path, level: int, hot: list[int]
) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        subscriber = await subscribed(broker, "subscriber", "a/#", wishes=(RECEIVE,), protocol_level=level)
        await publisher.publish("a/b", b"first")
        assert (await subscriber.receive()).payload == b"first"
        sent = publish_many(publisher, "a/b")
        received = [await subscriber.receive() for _ in range(MANY)]
        assert [packet.payload for packet in received] == [b"%d" % number for number in range(MANY)]
        assert {(packet.topic, packet.qos, packet.retain, packet.dup) for packet in received} == {
            ("a/b", 1, False, False)
        }
        assert await answers(publisher, Puback) == sent
        if level == MQTT_5:
            identities = [str(user_property(packet, IDENTITY_PROPERTY)) for packet in received]
            epoch = epoch_of(tmp_path)
            assert identities == [f"{epoch:08x}/{seq}/test-gateway" for seq in range(2, MANY + 2)]
            assert str(user_property(received[0], RECEIVED_PROPERTY)).endswith("/test-gateway")
    assert sum(hot) == MANY


async def test_many_subscribers_get_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        subscribers = [await connected(broker, f"subscriber-{i}") for i in range(20)]
        for subscriber in subscribers:
            await subscriber.subscribe("a/+")
        publish_many(publisher, "a/b", count=50)
        for subscriber in subscribers:
            assert [(await subscriber.receive()).payload for _ in range(50)] == [b"%d" % i for i in range(50)]


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
async def test_no_message_becomes_an_object_for_subscribers_that_take_all_alike(
    tmp_path: Path, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        subscribers = [await connected(broker, f"subscriber-{i}", protocol_level=level) for i in range(2)]
        for subscriber in subscribers:
            await subscriber.subscribe("a/+")
        await publisher.publish("a/b", b"first")
        monkeypatch.setattr(PublishBatch, "messages", None)
        publish_many(publisher, "a/b")
        for subscriber in subscribers:
            received = [(await subscriber.receive()).payload for _ in range(1 + MANY)]
            assert received == [b"first", *(b"%d" % number for number in range(MANY))]
        await until(lambda: not session_of(broker, "subscriber-1").cursor.flight.positions(), "all is acknowledged")


async def test_what_a_subscriber_has_not_acknowledged_of_many_comes_again_and_nothing_else(tmp_path: Path) -> None:
    options: dict[str, Any] = {"session_expiry_s": 100, "clean_start": False}
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        subscriber = await subscribed(broker, "subscriber", "a/+", **options)
        await publisher.publish("a/b", b"first")
        await subscriber.receive()
        publish_many(publisher, "a/b", count=100)
        received = [await subscriber.expect(Publish) for _ in range(100)]
        for packet in [*received[:30], *received[40:50]]:
            subscriber.acknowledge(packet)
        await subscriber.ping()
        subscriber.cut()
        again = await connected(broker, "subscriber", **options)
        numbers = [*range(30, 40), *range(50, 100)]
        packets = [await again.receive() for _ in numbers]
        assert [(packet.payload, packet.dup) for packet in packets] == [(b"%d" % number, True) for number in numbers]
        await again.expect_no_message()


async def test_retained_messages_come_before_many_live_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        for number in range(3):
            await publisher.publish(f"a/{number}", b"1", retain=True)
        await publisher.publish("a/live", b"first")
        subscriber = await subscribed(broker, "subscriber", "a/#", receive_maximum=1)
        first = await subscriber.expect(Publish)  # the others wait for its acknowledgement
        publish_many(publisher, "a/live", count=20)
        await publisher.ping()
        subscriber.acknowledge(first)
        topics = [first.topic, *[(await subscriber.receive()).topic for _ in range(22)]]
        assert (sorted(topics[:3]), set(topics[3:])) == (["a/0", "a/1", "a/2"], {"a/live"})


async def test_exactly_once_is_released_many_at_once(tmp_path: Path, hot: list[int]) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        await publisher.publish_once("a", b"first")
        sent = publish_many(publisher, "a", qos=2)
        assert await answers(publisher, Pubrec) == sent
        assert len(stored(tmp_path, "SELECT * FROM incoming")) == MANY
        for packet_identifier in sent:
            publisher.protocol.pubrel(packet_identifier)
        publisher.flush()
        assert await answers(publisher, Pubcomp) == sent
        assert stored(tmp_path, "SELECT * FROM incoming") == []
    assert sum(hot) == MANY
    assert len(messages_in(tmp_path)) == MANY


async def test_after_a_kill_nothing_acknowledged_is_missing_and_qos_2_comes_once(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    subscriber = await joined(gateway.port, "subscriber", "a", options=1)
    subscriber.cut()
    publisher = await Client("publisher", protocol_level=MQTT_3_1_1).connect(gateway.port)
    await publisher.publish_once("a", b"first")
    sent = publish_many(publisher, "a", qos=2)
    assert await answers(publisher, Pubrec) == sent
    await gateway.restart()
    publisher = await Client("publisher", protocol_level=MQTT_3_1_1).connect(gateway.port)
    for number, packet_identifier in enumerate(sent):
        publisher.write(Publish("a", b"%d" % number, 2, False, True, packet_identifier).encode(MQTT_3_1_1))
    subscriber = await Client("subscriber").connect(gateway.port)
    received = [(await subscriber.receive()).payload for _ in range(MANY + 1)]
    assert received == [b"first", *(b"%d" % number for number in range(MANY))]
    await subscriber.expect_no_message()


async def test_new_access_rules_count_for_the_next_message(tmp_path: Path, hot: list[int]) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        await publisher.publish("a", b"first")
        publish_many(publisher, "a", count=10)
        await answers(publisher, Puback, 10)
        assert sum(hot) == 10
        rules.write_text("deny * publish a\nallow * publish,subscribe #\n")
        broker.reload()
        publish_many(publisher, "a", count=10)
        await answers(publisher, Puback, 10)  # MQTT 3.1.1 cannot say no
    assert sum(hot) == 10
    assert len(messages_in(tmp_path / "store")) <= 11


async def test_no_local_holds_for_many_messages_too(tmp_path: Path, hot: list[int]) -> None:
    async with running(tmp_path) as broker:
        both = await subscribed(broker, "both", "a", options=1 | NO_LOCAL)
        other = await connected(broker, "other", protocol_level=MQTT_3_1_1)
        both.write(b"".join(Publish("a", b"own", 1, packet_identifier=i).encode(MQTT_5) for i in range(1, 20)))
        await other.publish("a", b"first")
        publish_many(other, "a", count=10)
        received = [(await both.receive()).payload for _ in range(11)]
        assert received == [b"first", *(b"%d" % number for number in range(10))]
    assert sum(hot) > 20


async def test_a_client_that_did_not_acknowledge_gets_the_same_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        subscriber = await subscribed(broker, "subscriber", "a")
        publish_many(publisher, "a", count=100)
        first = [await subscriber.expect(Publish) for _ in range(100)]
        for packet in (*first[:30], first[50]):
            subscriber.acknowledge(packet)
        await subscriber.publish("other", b"")  # so the gateway has read these
        subscriber.cut()
        subscriber = await connected(broker, "subscriber")
        again = [await subscriber.receive() for _ in range(69)]
        assert [(packet.payload, packet.packet_identifier, packet.dup) for packet in again] == [
            (packet.payload, packet.packet_identifier, True) for packet in (*first[30:50], *first[51:])
        ]


async def test_what_this_gateway_has_handed_on_is_not_stored_among_many_either(tmp_path: Path, hot: list[int]) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow * identify north\n")
    async with running(tmp_path, acl=str(rules)) as broker:
        publisher = await connected(broker, "device")
        subscriber = await subscribed(broker, "subscriber", "a", wishes=(RECEIVE,))
        own = epoch_of(tmp_path)

        def handed_on(number: int) -> bytes:
            hop = encode_hop(own if number % 3 == 0 else 1)
            identity = (IDENTITY_PROPERTY, encode_identity("device", 7, number))
            pairs = [(HOPS_PROPERTY, hop), identity, (RECEIVED_PROPERTY, f"{number}/north")]
            packet = Publish("a", b"%d" % number, 1, packet_identifier=number, properties={USER_PROPERTY: pairs})
            return packet.encode(MQTT_5)

        publisher.write(handed_on(1))
        assert (await subscriber.receive()).payload == b"1"
        publisher.write(b"".join(map(handed_on, range(2, MANY + 1))))
        numbers = [number for number in range(2, MANY + 1) if number % 3]
        received = [await subscriber.receive() for _ in numbers]
        assert [int(packet.payload) for packet in received] == numbers
        assert [user_property(one, RECEIVED_PROPERTY) for one in received] == [f"{number}/north" for number in numbers]
        assert broker.counters.messages_returned == MANY // 3
    assert sum(hot) == MANY - 1
