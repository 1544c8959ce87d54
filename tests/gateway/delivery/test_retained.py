"""Retained messages: the last one of each topic, for each new subscription, over crashes."""

from pathlib import Path

import pytest

from gateway.delivery.retained_cursor import RetainedCursor
from gateway.message import Message
from gateway.store.tables.retained import Owed
from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.steps import session_of, started, with_publisher
from tests.gateway.store.support import disk_full, opened, stored
from tests.gateway.support import Client, connected, joined, running, subscribed, until
from wire.codec.packets import (
    RETAIN_AS_PUBLISHED,
    RETAIN_IF_NEW,
    RETAIN_NEVER,
    Connack,
    Disconnect,
    Publish,
    Pubrel,
    Suback,
)
from wire.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL, SUBSCRIPTION_IDENTIFIER
from wire.topics import matches


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_new_subscription_gets_the_last_message_of_each_topic(tmp_path: Path, qos: int) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        for topic in ("a/1", "a/2", "a/1", "b"):
            publisher.send(topic, topic.encode(), qos=0, retain=True)
        await publisher.publish("a/2", b"last", retain=True, properties={CONTENT_TYPE: "text/plain"})
        await publisher.publish_once("a/3", b"at 2", retain=True)
        subscriber = await subscribed(broker, "subscriber", "a/+", options=qos)
        packets = [await subscriber.receive() for _ in range(3)]
        found = {packet.topic: (packet.payload, packet.qos) for packet in packets}
        assert found == {"a/1": (b"a/1", 0), "a/2": (b"last", min(qos, 1)), "a/3": (b"at 2", qos)}
        assert all(packet.retain for packet in packets)
        (second,) = [packet for packet in packets if packet.topic == "a/2"]
        assert second.properties[CONTENT_TYPE] == "text/plain"
        assert broker.log.space.retained.topics == 4


async def test_an_empty_payload_takes_it_away(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("a", b"1", retain=True)
        await publisher.publish("a", b"", retain=True)
        subscriber = await subscribed(broker, "subscriber", "#")
        await subscriber.expect_no_message()
        assert broker.log.space.retained.topics == 0


async def test_subscribers_that_are_there_get_it_without_the_flag_unless_they_ask(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        plain, asking = await connected(broker, "plain"), await connected(broker, "asking")
        await plain.subscribe("a")
        await asking.subscribe("a", options=1 | RETAIN_AS_PUBLISHED)
        publisher = await connected(broker, "publisher")
        for qos in (0, 1):
            publisher.send("a", b"1", qos=qos, retain=True)
            assert not (await plain.receive()).retain
            assert (await asking.receive()).retain


@pytest.mark.parametrize(
    ("options", "first", "again"), [(1, True, True), (1 | RETAIN_IF_NEW, True, False), (1 | RETAIN_NEVER, False, False)]
)
async def test_retain_handling(tmp_path: Path, options: int, first: bool, again: bool) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("a", b"1", retain=True)
        subscriber = await connected(broker, "subscriber")
        for expected in (first, again):
            await subscriber.subscribe("a", options=options)
            if expected:
                assert (await subscriber.receive()).payload == b"1"
            else:
                await subscriber.expect_no_message()


async def test_a_shared_subscription_gets_none(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("a", b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", "$share/group/a")
        await subscriber.expect_no_message()


async def test_wildcards_do_not_reach_topics_that_begin_with_a_dollar_sign(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("$own/a", b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", "#", "+/a")
        await subscriber.expect_no_message()
        await subscriber.subscribe("$own/#")
        assert (await subscriber.receive()).payload == b"1"


async def test_it_outlives_a_kill(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    publisher = await Client("publisher").connect(gateway.port)
    for number in range(100):
        await publisher.publish(f"a/{number % 10}", b"%d" % number, retain=True)
    await gateway.restart()
    subscriber = await joined(gateway.port, "subscriber", "a/#")
    assert sorted([int((await subscriber.receive()).payload) for _ in range(10)]) == list(range(90, 100))


async def test_what_a_session_did_not_acknowledge_it_gets_when_it_is_back(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    publisher = await Client("publisher").connect(gateway.port)
    for number in range(6):
        await publisher.publish_once(f"a/{number}", b"%d" % number, retain=True)
    subscriber = await joined(gateway.port, "subscriber", "a/+", options=1, receive_maximum=1)
    got = [int((await subscriber.receive()).payload) for _ in range(2)]
    subscriber.cut()
    subscriber = await Client("subscriber", receive_maximum=1).connect(gateway.port)
    got += [int((await subscriber.receive()).payload) for _ in range(2)]
    await gateway.restart()
    subscriber = await Client("subscriber").connect(gateway.port)
    while set(got) != set(range(6)):
        got.append(int((await subscriber.receive()).payload))


async def test_at_qos_2_it_comes_once_over_a_kill(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    publisher = await Client("publisher").connect(gateway.port)
    for number in range(6):
        await publisher.publish_once(f"a/{number}", b"%d" % number, retain=True)
    subscriber = await joined(gateway.port, "subscriber", "a/+", options=2, receive_maximum=1)
    got = [await subscriber.receive() for _ in range(3)]
    begun = await subscriber.expect(Publish)
    await gateway.restart()
    subscriber = await Client("subscriber").connect(gateway.port)
    packets = [await subscriber.expect(Publish) for _ in range(3)]
    (again,) = [packet for packet in packets if packet.dup and packet.payload == begun.payload]
    assert again.packet_identifier == begun.packet_identifier
    assert len({packet.payload for packet in [*got, *packets]}) == 6
    await subscriber.expect_no_message()


async def test_an_older_message_never_comes_behind_a_newer_one(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(5):
            await publisher.publish(f"a/{number}", b"old", retain=True)
        subscriber = await subscribed(broker, "subscriber", "a/+", receive_maximum=1)
        first = await subscriber.expect(Publish)
        await publisher.publish("a/4", b"new", retain=True)
        subscriber.acknowledge(first)
        packets = [await subscriber.receive()]
        while packets[-1].payload != b"new":
            packets.append(await subscriber.receive())
        while len({packet.topic for packet in packets}) < 4:
            packets.append(await subscriber.receive())
        assert [packet.payload for packet in packets if packet.topic == "a/4"][-1] == b"new"
        await subscriber.expect_no_message()


async def test_it_expires(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("short", b"1", retain=True, properties={MESSAGE_EXPIRY_INTERVAL: 1})
        await publisher.publish("long", b"1", retain=True, properties={MESSAGE_EXPIRY_INTERVAL: 1000})
        await until(lambda: broker.log.space.retained.topics == 1, "it expired")
        subscriber = await subscribed(broker, "subscriber", "#")
        packet = await subscriber.receive()
        assert packet.topic == "long"
        await subscriber.expect_no_message()
        assert 990 < packet.properties[MESSAGE_EXPIRY_INTERVAL] <= 1000
    assert stored(tmp_path, "SELECT topic FROM retained") == [("long",)]


async def test_it_has_the_identifier_of_the_subscription(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("a", b"1", retain=True)
        subscriber = await connected(broker, "subscriber")
        subscriber.protocol.subscribe([("a", 1)], {SUBSCRIPTION_IDENTIFIER: [7]})
        subscriber.flush()
        await subscriber.event()
        assert (await subscriber.receive()).properties[SUBSCRIPTION_IDENTIFIER] == [7]


async def test_a_session_that_ends_is_owed_nothing(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(5):
            await publisher.publish(f"a/{number}", b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", "#", receive_maximum=1)
        await subscriber.expect(Publish)
        await connected(broker, "subscriber", clean_start=True)
    assert stored(tmp_path, "SELECT * FROM owed") == []


async def test_what_a_session_that_ended_meanwhile_was_owed_is_not_its_successor_s(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    publisher = await Client("publisher").connect(gateway.port)
    await publisher.publish("a", b"1", retain=True)
    first, second = await Client().connect(gateway.port), Client(clean_start=True)
    with commits_held_up(tmp_path):
        first.protocol.subscribe([("a", 1)])
        first.flush()
        await publisher.ping()
        await publisher.ping()  # the gateway read the SUBSCRIBE before it answered this
        await second.open(gateway.port)
        assert isinstance(await first.event(), Disconnect)
    await second.expect(Connack)
    await second.publish("b")
    await until(lambda: stored(tmp_path, "SELECT * FROM owed") == [], "nothing is owed")
    await gateway.restart()
    second = await Client().connect(gateway.port)
    assert second.connack.session_present
    await second.expect_no_message()


async def test_a_value_that_comes_while_a_subscription_is_made_is_the_last_one(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        publisher.send("a", b"old", qos=0, retain=True)
        await publisher.publish("b")  # with it, that is stored
        subscriber = await connected(broker, "subscriber")
        with commits_held_up(tmp_path):
            subscriber.protocol.subscribe([("a", 0)])
            subscriber.flush()
            await until(lambda: list(broker.services.subscribers.cursors_for("a")), "the SUBSCRIBE came")
            publisher.send("a", b"new", qos=0, retain=True)
            await publisher.ping()
        await subscriber.expect(Suback)
        assert (await subscriber.receive()).payload == b"new"
        await subscriber.expect_no_message()


async def test_a_message_that_is_stored_while_a_subscription_is_made_comes_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publisher, subscriber = await connected(broker, "publisher"), await connected(broker, "subscriber")
        with commits_held_up(tmp_path):
            publisher.send("a", b"1", retain=True)
            await publisher.ping()  # and no PUBACK before
            subscriber.protocol.subscribe([("a", 1)])
            subscriber.flush()
            await until(lambda: list(broker.services.subscribers.cursors_for("a")), "the SUBSCRIBE came")
        events = [await subscriber.event(), await subscriber.event()]
        assert sorted(type(event).__name__ for event in events) == ["Publish", "Suback"]
        await subscriber.expect_no_message()


async def test_what_was_owed_is_not_sent_once_something_else_is_the_last_message(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publisher, subscriber = await connected(broker, "publisher"), await connected(broker, "subscriber")
        await publisher.publish("a", b"old", retain=True)
        await subscriber.subscribe("a")
        assert (await subscriber.expect(Publish)).payload == b"old"  # and is not acknowledged
        subscriber.cut()
        await publisher.publish("a", b"new", retain=True)
        subscriber = await connected(broker, "subscriber")
        assert (await subscriber.receive()).payload == b"new"
        await subscriber.expect_no_message()


async def test_a_flood_of_retained_messages_at_qos_0_waits_for_the_medium(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        flood, other = await connected(broker, "flood"), await connected(broker, "other")
        with commits_held_up(tmp_path):
            for number in range(100):
                flood.protocol.publish(f"a/{number % 10}", bytes(500_000), qos=0, retain=True)
            flood.flush()
            await until(lambda: broker.counters.messages_received[0] > 30, "there is room for 16 MB")
            for _ in range(10):
                await other.ping()
            assert broker.counters.messages_received[0] < 50
        await until(lambda: broker.counters.messages_received[0] == 100, "all were taken")
        await other.publish("b")
        assert broker.log.space.retained.topics == 10


async def test_what_a_full_disk_did_not_take_of_retained_messages_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        with disk_full():
            for number in range(20):
                publisher.send("a", b"%d" % number + bytes(200_000), qos=0, retain=True)
            await until(lambda: "attempts go on" in caplog.text, "the disk has refused some of them")
        await publisher.publish("b")
        subscriber = await subscribed(broker, "subscriber", "a", options=0)
        assert (await subscriber.receive()).payload[:2] == b"19"


async def test_large_ones_are_in_memory_a_few_at_a_time_and_all_come(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        topics = [f"a/{number}" for number in range(6)]
        for topic in topics:
            await publisher.publish(topic, bytes(600_000), retain=True)
        assert list(await broker.log.reader.read_retained(topics)) == topics[:2]
        subscriber = await subscribed(broker, "subscriber", "a/#")
        assert sorted([(await subscriber.receive()).topic for _ in topics]) == topics
        await subscriber.expect_no_message()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_retained_messages_come_before_live_ones(tmp_path: Path, qos: int) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(3):
            await publisher.publish(f"a/{number}", b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", "a/#", options=2, receive_maximum=1)
        first = await subscriber.expect(Publish)  # the others wait for its acknowledgement
        for number in range(3):
            await publish_at(publisher, "a/live", b"%d" % number, qos)
        await publisher.ping()
        subscriber.acknowledge(first)
        packets = [first, *[await subscriber.receive() for _ in range(5)]]
        assert sorted(packet.topic for packet in packets[:3]) == ["a/0", "a/1", "a/2"]
        assert [(packet.payload, packet.qos) for packet in packets[3:]] == [(b"%d" % one, qos) for one in range(3)]


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_live_message_does_not_wait_for_subscriptions_behind_it(tmp_path: Path, qos: int) -> None:
    """A client that subscribes again and again still gets its live messages."""
    async with with_publisher(tmp_path) as (broker, publisher):
        for topic in ("a/1", "a/2", "b/1", "b/2", "c/1"):
            await publisher.publish(topic, b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", "live", options=2, receive_maximum=1)
        subscriber.protocol.subscribe([("a/#", 1)])
        subscriber.flush()
        await subscriber.expect(Suback)
        first = await subscriber.expect(Publish)
        for number, topic_filter in enumerate(("b/#", "c/#")):
            await publish_at(publisher, "live", b"%d" % number, qos)
            await publisher.ping()
            await subscriber.subscribe(topic_filter)
        subscriber.acknowledge(first)
        topics = [first.topic, *[(await subscriber.receive()).topic for _ in range(6)]]
        assert sorted(topics[:2]) == ["a/1", "a/2"]
        assert topics.index("live") < topics.index("c/1")
        assert max(topics.index("b/1"), topics.index("b/2")) < 6 - topics[::-1].index("live")
        assert topics.count("live") == 2


async def test_messages_of_a_shared_subscription_do_not_wait_for_retained_ones(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(3):
            await publisher.publish(f"a/{number}", b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", "$share/group/s", "a/#", receive_maximum=2)
        for _ in range(2):
            await subscriber.expect(Publish)  # the last one waits for an acknowledgement
        publisher.send("s", b"1", qos=0)
        assert (await subscriber.receive()).topic == "s"


async def publish_at(publisher: Client, topic: str, payload: bytes, qos: int) -> None:
    if qos:
        await (publisher.publish if qos == 1 else publisher.publish_once)(topic, payload)
    else:
        publisher.send(topic, payload, qos=0)


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_comes_live_is_remembered_only_where_an_older_one_is_on_its_way(tmp_path: Path, qos: int) -> None:
    """A client that takes nothing does not make the gateway keep all topic names that other clients make up."""
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(2):
            await publisher.publish_once(f"owed/{number}", bytes(400_000), retain=True)
        subscriber = await subscribed(broker, "subscriber", "#", options=qos, receive_maximum=1)
        first = await subscriber.expect(Publish)  # the next one waits for its acknowledgement
        for number in range(100):  # more than wait in memory
            publisher.send(f"new/{number}", bytes(12_000), retain=True, qos=0)
        publisher.send("owed/1", b"live", retain=True, qos=0)
        publisher.send("owed/0", b"live", retain=True, qos=0)
        assert [(await subscriber.receive()).topic for _ in range(102)][-2:] == ["owed/1", "owed/0"]
        sender = session_of(broker, "subscriber").sender
        assert set(sender.retained.superseded) == {"owed/0", "owed/1"}  # type: ignore[union-attr]
        subscriber.acknowledge(first)
        if qos == 2:
            await subscriber.expect(Pubrel)
            subscriber.complete(first)
        await subscriber.expect_no_message()
    assert stored(tmp_path, "SELECT count(*) FROM flow WHERE state < 2") == [(0,)]


@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+", "+/a", "a/#", "a/+", "a/\U0010ffff"])
async def test_the_last_letters_of_unicode_are_letters_too(tmp_path: Path, topic_filter: str) -> None:
    topics = ["\U0010ffff\U0010ffff\U0010ffff", "\U0010ffff\U0010ffff/a", "a", "a/\U0010ffff", "a0", "a\U0010ffff"]
    async with with_publisher(tmp_path) as (broker, publisher):
        for topic in topics:
            await publisher.publish(topic, b"1", retain=True)
        subscriber = await subscribed(broker, "subscriber", topic_filter)
        wanted = sorted(topic for topic in topics if matches(topic_filter, topic))
        assert sorted([(await subscriber.receive()).topic for _ in wanted]) == wanted
        await subscriber.expect_no_message()


async def test_a_subscribe_that_names_a_filter_thousands_of_times_is_searched_once_for_it(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(20):
            await publisher.publish(f"a/{number}", b"x", retain=True)
        subscriber = await connected(broker, "subscriber")
        assert await subscriber.subscribe(*["a/#"] * 10_000) == [1] * 10_000
        assert {(await subscriber.receive()).topic for _ in range(20)} == {f"a/{number}" for number in range(20)}
        await subscriber.expect_no_message()


@pytest.mark.parametrize("most", [1, 3, 7, 500])
async def test_each_of_many_filters_in_one_subscribe_brings_its_retained_messages(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many the store finds at a time."""
    monkeypatch.setattr("gateway.store.tables.retained.FIND_MOST", most)
    names = [f"a/{number:02}" for number in range(20)]
    async with with_publisher(tmp_path) as (broker, publisher):
        for name in names:
            await publisher.publish(name, b"x", retain=True)
        subscriber = await connected(broker, "subscriber")
        nothing = [f"b/{number}" for number in range(200)]
        await subscriber.subscribe(*names[10:], *nothing, "a/#", "b/#", *names[:5])
        received = [(await subscriber.receive()).topic for _ in range(35)]
        assert received == [*names[10:], *names, *names[:5]]
        await subscriber.expect_no_message()


class _Account:
    """An account that counts nothing."""

    def add(self, size: int) -> None:
        pass


async def test_a_message_that_went_before_a_subscription_stands_for_no_retained_message_of_that(tmp_path: Path) -> None:
    """It may have gone for the subscription before, whose client has dropped it."""
    async with opened(tmp_path) as log:
        cursor = RetainedCursor(log, {}, _Account(), durable=False)
        cursor.expect()
        cursor.supersede(Message("t", b"2", 1, True))
        cursor.add([Owed(0, "session", "t", 1, 1, 0)])
        assert list(cursor.superseded) == ["t"], "it went while that was searched for"
        cursor.expect()
        cursor.add([Owed(0, "session", "t", 2, 1, 0)])
        assert list(cursor.superseded) == []
