"""The limits below topic filters at a gateway: what its clients and routes see of them."""

from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from gateway.config.network import TopicConfig
from gateway.config.schema import QueueConfig
from tests.gateway.steps import publish_numbers, session_of
from tests.gateway.store.support import stored
from tests.gateway.support import Client, connected, running, subscribed, until
from wire.codec.packets import Puback, Pubrec

RANGES = "SELECT reason, consumer, messages FROM dropped ORDER BY reason, consumer"


def below(topic_filter: str, max_messages: int | None = None, when_full: Any = "discard_old") -> TopicConfig:
    return TopicConfig(topic_filter, max_messages=max_messages, when_full=when_full)


def dropped(folder: Path) -> dict[tuple[str, str], int]:
    """How many messages, by reason and consumer."""
    found: dict[tuple[str, str], int] = {}
    for reason, consumer, messages in stored(folder, RANGES):
        found[reason, consumer] = found.get((reason, consumer), 0) + messages
    return found


async def away(broker: Broker, *filters: str, name: str = "subscriber", options: int = 1) -> None:
    """A durable session with subscriptions whose client is not there."""
    await (await subscribed(broker, name, *filters, options=options)).disconnect()


async def taken(client: Client, count: int) -> list[tuple[str, int]]:
    """The next messages of a client, which gets no more."""
    packets = [await client.receive() for _ in range(count)]
    await client.expect_no_message()
    return [(packet.topic, int(packet.payload)) for packet in packets]


async def publish_in_turn(publisher: Client, topics: tuple[str, ...], count: int, qos: int = 1) -> None:
    for number in range(count):
        for topic in topics:
            await (publisher.publish if qos == 1 else publisher.publish_once)(topic, b"%d" % number)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_session_keeps_the_newest_below_a_filter_and_everything_else(
    tmp_path: Path, qos: int, is_restarted: bool
) -> None:
    topic = [below("orders/#", 3)]
    async with running(tmp_path, topic=topic) as broker:
        await away(broker, "orders/#", "alarms", options=qos)
        publisher = await connected(broker, "publisher")
        await publish_in_turn(publisher, ("alarms", "orders/eu"), 8, qos)
        if not is_restarted:
            found = await taken(await connected(broker, "subscriber", receive_maximum=1), 11)
    if is_restarted:
        async with running(tmp_path, topic=topic) as broker:
            found = await taken(await connected(broker, "subscriber", receive_maximum=1), 11)
    assert [number for topic_name, number in found if topic_name == "alarms"] == list(range(8))
    assert [number for topic_name, number in found if topic_name == "orders/eu"] == [5, 6, 7]
    assert dropped(tmp_path) == {("evicted", "session/subscriber"): 5}


async def test_what_an_absent_session_loses_is_dropped_while_it_is_absent(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("orders/#", 3)]) as broker:
        await away(broker, "orders/+")
        await publish_in_turn(await connected(broker, "publisher"), ("orders/eu",), 50)
        cursor = session_of(broker, "subscriber").cursor
        await until(lambda: cursor.backlog and cursor.backlog.messages == 3, "the others are dropped")
    assert dropped(tmp_path) == {("evicted", "session/subscriber"): 47}


async def test_a_limit_counts_bytes(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[TopicConfig("a", max_bytes=1000)]) as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        await publisher.publish("b", b"7")
        for number in range(10):
            await publisher.publish("a", b"%d" % number + b" " * 398)
        assert await taken(await connected(broker, "subscriber"), 3) == [("b", 7), ("a", 8), ("a", 9)]


async def test_a_message_counts_for_each_filter_that_matches_it(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("orders/#", 4), below("orders/eu", 2)]) as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        await publish_in_turn(publisher, ("first", "orders/us", "orders/eu"), 5)
        found = await taken(await connected(broker, "subscriber"), 9)
    assert [number for topic, number in found if topic == "orders/eu"] == [3, 4]
    assert [number for topic, number in found if topic == "orders/us"] == [3, 4]
    assert len(found) == 9


async def test_each_consumer_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("a", 2)]) as broker:
        await away(broker, "+", name="away")
        await away(broker, "$share/g/a", name="member")
        here = await subscribed(broker, "here", "a")
        publisher = await connected(broker, "publisher")
        for number in range(6):
            await publisher.publish("a", b"%d" % number)
            assert int((await here.receive()).payload) == number
        member = await connected(broker, "member")
        assert await taken(member, 2) == [("a", 4), ("a", 5)]
        assert await taken(await connected(broker, "away"), 2) == [("a", 4), ("a", 5)]
    assert dropped(tmp_path) == {("evicted", "session/away"): 4, ("evicted", "share/g/a"): 4}


async def test_a_filter_that_rejects_has_publishers_told_and_no_consumer_gets_the_message(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("orders/#", 3, "reject_incoming")]) as broker:
        await away(broker, "orders/#", "alarms")
        here = await subscribed(broker, "here", "orders/#", "alarms")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 3, "orders/eu")
        for qos, answer in ((1, Puback), (2, Pubrec)):
            publisher.send("orders/us", b"9", qos=qos)
            assert (await publisher.expect(answer)).reason_code == 0x97
        await publisher.publish("alarms", b"4")
        expected = [("orders/eu", 0), ("orders/eu", 1), ("orders/eu", 2), ("alarms", 4)]
        assert await taken(here, 4) == expected
        subscriber = await connected(broker, "subscriber")
        assert await taken(subscriber, 4) == expected
        await publisher.publish("orders/us", b"5")
        assert await taken(subscriber, 1) == [("orders/us", 5)]
    assert dropped(tmp_path) == {("rejected", "gateway"): 2}


async def test_an_older_client_is_left_without_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("a", 1, "reject_incoming")]) as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher", protocol_level=4, session_expiry_s=0)
        await publisher.publish("a", b"0")
        publisher.send("a", b"1")
        await publisher.publish("other", b"2")
        assert await taken(await connected(broker, "subscriber"), 2) == [("a", 0), ("other", 2)]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_flow_control_lets_publishers_wait_and_loses_nothing(tmp_path: Path, is_restarted: bool) -> None:
    topic = [below("a", 5, "flow_control")]
    async with running(tmp_path, topic=topic) as broker:
        await away(broker, "#", options=2)
        if is_restarted:
            await publish_numbers(await connected(broker, "publisher"), 5)
    async with running(tmp_path, topic=topic) as broker:
        publisher = await connected(broker, "publisher")
        if not is_restarted:
            await publish_numbers(publisher, 5)
        sent = [publisher.send("a", b"%d" % number, qos=1 + number % 2) for number in range(5, 30)]
        other = await connected(broker, "other")
        await other.publish("b", b"99")  # is answered, as no message of its client waits
        subscriber = await connected(broker, "subscriber", receive_maximum=1)
        found = await taken(subscriber, 31)
        assert [number for name, number in found if name == "a"] == list(range(30))
        assert [(await publisher.event()).packet_identifier for _ in sent] == sent  # type: ignore[union-attr]
    assert dropped(tmp_path) == {}


@pytest.mark.parametrize("qos", [1, 2])
async def test_many_messages_in_one_write_keep_to_a_limit(tmp_path: Path, qos: int) -> None:
    topic = [below("full", 2, "reject_incoming"), below("old", 3)]
    async with running(tmp_path, topic=topic) as broker:
        await away(broker, "+", options=qos)
        publisher = await connected(broker, "publisher")
        for name in ("first", "old", "full", "full"):
            await (publisher.publish if qos == 1 else publisher.publish_once)(name, b"0")
        for name in ("old", "full"):
            for number in range(1, 51):
                publisher.protocol.publish(name, b"%d" % number, qos=qos)
            publisher.flush()
        codes = [(await publisher.expect(Puback if qos == 1 else Pubrec)).reason_code for _ in range(100)]
        assert codes == [0] * 50 + [0x97] * 50
        found = await taken(await connected(broker, "subscriber", receive_maximum=1), 6)
    assert found == [("first", 0), ("full", 0), ("full", 0), ("old", 48), ("old", 49), ("old", 50)]


async def test_what_a_filter_drops_does_not_count_for_the_queue(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("noise", 2)], queue=QueueConfig(max_messages=6)) as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        await publisher.publish("alarms", b"0")
        await publish_numbers(publisher, 20, "noise")
        await publisher.publish("alarms", b"1")
        found = await taken(await connected(broker, "subscriber"), 4)
    assert found == [("alarms", 0), ("noise", 18), ("noise", 19), ("alarms", 1)]
    assert dropped(tmp_path) == {("evicted", "session/subscriber"): 18}


async def test_the_queue_drops_messages_of_all_topics_where_it_is_full(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("noise", 4)], queue=QueueConfig(max_messages=6)) as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        await publish_in_turn(publisher, ("alarms", "noise"), 10)
        cursor = session_of(broker, "subscriber").cursor
        await until(lambda: cursor.tally.kept and cursor.tally.kept.messages == 6, "the rest is to be dropped")
        found = await taken(await connected(broker, "subscriber"), 6)
    assert found == [(topic, number) for number in (7, 8, 9) for topic in ("alarms", "noise")]
    assert dropped(tmp_path) == {("evicted", "session/subscriber"): 14}


async def test_dropped_messages_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path, topic=[below("a", 1), below("b", 1, "reject_incoming")]) as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 3, "a")
        await publisher.publish("b", b"0")
        publisher.send("b", b"1", qos=1)
        assert (await publisher.expect(Puback)).reason_code == 0x97
        await until(lambda: broker.counters.messages_dropped["evicted"] == 2, "the oldest are dropped")
        assert broker.counters.messages_dropped["rejected"] == 1
