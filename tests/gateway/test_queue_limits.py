"""Limits on what waits for a session: what is refused, what waits, what is dropped, and the ranges that record it."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import QueueConfig
from tests.gateway.steps import away, dropped, publish_numbers, received, session_of, with_publisher
from tests.gateway.support import connected, running, subscribed, until
from wire.codec.packets import Puback, Publish, Pubrec
from wire.properties import USER_PROPERTY


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_queue_that_discards_keeps_the_newest(tmp_path: Path, qos: int) -> None:
    queue = QueueConfig(max_messages=5)
    async with running(tmp_path, queue=queue) as broker:
        await away(broker, "a", options=qos)
        publisher = await connected(broker, "publisher")
        for number in range(20):
            await publisher.publish("a", b"%d" % number)
            await publisher.publish("other", b"")
        cursor = session_of(broker, "subscriber").cursor
        await until(lambda: cursor.backlog and cursor.backlog.messages == 5, "discarded")
        assert await received(broker, 5) == list(range(15, 20))
    assert sum(row[4] for row in dropped(tmp_path)) == 15
    assert {row[:2] for row in dropped(tmp_path)} == {("evicted", "session/subscriber")}


async def test_a_queue_is_not_counted_again_for_a_subscription_that_is_the_same(tmp_path: Path) -> None:
    queue = QueueConfig(max_messages=3, when_full="reject_incoming")
    async with running(tmp_path, queue=queue) as broker:
        client = await subscribed(broker, "subscriber", "a")
        session = session_of(broker, "subscriber")
        counted = session.cursor.backlog
        await client.subscribe("a")
        assert session.cursor.backlog is counted
        await client.subscribe("a", options=2)
        await until(lambda: session.cursor.backlog and session.cursor.backlog is not counted, "it was counted anew")


async def test_a_queue_counts_bytes(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_bytes=1000)) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        for number in range(10):
            await publisher.publish("a", b"%d" % number + b" " * 398)
        cursor = session_of(broker, "subscriber").cursor
        await until(lambda: cursor.backlog and cursor.backlog.bytes == 800, "discarded")
        assert await received(broker, 2) == [8, 9]


async def test_a_queue_that_rejects_has_its_publishers_told(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=3, when_full="reject_incoming")) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 3)
        for qos, answer in ((1, Puback), (2, Pubrec)):
            publisher.send("a", b"9", qos=qos)
            assert (await publisher.expect(answer)).reason_code == 0x97
        await publisher.publish("other")
        assert await received(broker, 3) == [0, 1, 2]
        await publisher.publish("a", b"4")
    assert dropped(tmp_path) == [("rejected", "gateway", 0, 0, 2)]


async def test_an_older_client_is_left_without_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=1, when_full="reject_incoming")) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher", protocol_level=4, session_expiry_s=0)
        await publisher.publish("a", b"0")
        publisher.send("a", b"1")
        await publisher.publish("other")
        assert await received(broker, 1) == [0]


async def test_flow_control_lets_publishers_wait_and_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=5, when_full="flow_control")) as broker:
        await away(broker, "a", options=2)
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 5)
        sent = [publisher.send("a", b"%d" % number, qos=1 + number % 2) for number in range(5, 30)]
        publisher.send("b", b"", qos=1)  # waits as well: answers come in order
        await publisher.ping()
        subscriber = await connected(broker, "subscriber", receive_maximum=1)
        got = [int((await subscriber.receive()).payload) for _ in range(30)]
        assert got == list(range(30))
        answered = [(await publisher.event()).packet_identifier for _ in sent]  # type: ignore[union-attr]
        assert answered == sent
    assert dropped(tmp_path) == []


async def test_what_waits_is_counted_again_after_a_restart(tmp_path: Path) -> None:
    queue = QueueConfig(max_messages=5, when_full="reject_incoming")
    async with running(tmp_path, queue=queue) as broker:
        await away(broker, "a", "$share/group/b")
        publisher = await connected(broker, "publisher")
        for topic in ("a", "b", "other"):
            for number in range(5):
                await publisher.publish(topic, b"%d" % number)
    async with with_publisher(tmp_path, queue=queue) as (broker, publisher):
        for topic, reason_code in (("a", 0x97), ("b", 0x97), ("other", 0x10)):
            publisher.send(topic, b"")
            assert (await publisher.expect(Puback)).reason_code == reason_code


@pytest.mark.parametrize("when_full", ["discard_old", "reject_incoming"])
async def test_what_waited_for_a_filter_that_is_no_more_takes_no_room(tmp_path: Path, when_full: Any) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=5, when_full=when_full)) as broker:
        await away(broker, "old")
        publisher = await connected(broker, "publisher")
        for _ in range(5):
            await publisher.publish("old")
        subscriber = await connected(broker, "subscriber", receive_maximum=1)
        unacknowledged = await subscriber.expect(Publish)
        await subscriber.unsubscribe("old")
        await subscriber.subscribe("new")
        subscriber.acknowledge(unacknowledged)
        subscriber.cut()
        (cursor,) = broker.services.subscribers.cursors_for("new")
        if when_full == "reject_incoming":
            await until(lambda: cursor.backlog is not None and cursor.backlog.messages <= 1, "it was counted")
        await publish_numbers(publisher, 4, "new")
        assert not any(broker.counters.messages_dropped.values())


async def test_what_the_rules_forbid_now_takes_no_room(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\n")
    queue = QueueConfig(max_messages=5, when_full="reject_incoming")
    async with running(tmp_path, queue=queue, acl=str(rules)) as broker:
        await away(broker, "old", "new")
        publisher = await connected(broker, "publisher")
        for _ in range(5):
            await publisher.publish("old")
        rules.write_text("deny * subscribe old\nallow * publish,subscribe #\n")
        broker.reload()
        (cursor,) = broker.services.subscribers.cursors_for("new")
        await until(lambda: cursor.backlog is not None, "it was counted")
        await publisher.publish("new", b"0")
        assert await received(broker, 1) == [0]


async def test_a_queue_counts_properties(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_bytes=10_000, when_full="reject_incoming")) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        properties = {USER_PROPERTY: [("a", 2_500 * "b")]}
        for _ in range(4):
            await publisher.publish("a", b"1", properties=properties)
        publisher.send("a", b"1", properties=properties)
        assert (await publisher.expect(Puback)).reason_code == 0x97


async def test_what_waits_for_a_session_is_looked_at_only_where_it_may_be_too_much(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=100)) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        cursor = session_of(broker, "subscriber").cursor
        await publish_numbers(publisher, 100)
        assert cursor.backlog is None, "as many as may wait have come"
        await publisher.publish("a", b"100")
        await until(lambda: cursor.backlog and cursor.backlog.messages == 100, "counted, and one dropped")
        subscriber = await connected(broker, "subscriber")
        for _ in range(60):
            await subscriber.receive()
        await until(lambda: cursor.backlog and cursor.backlog.messages == 40, "acknowledged")
        await publisher.publish("a", b"101")
        await until(lambda: cursor.backlog is None, "few wait: it is not counted any more")
        assert cursor.tally.noticed.messages <= 41
    assert sum(row[4] for row in dropped(tmp_path)) == 1


async def test_a_queue_is_no_longer_than_its_limit_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 20)
    async with running(tmp_path, queue=QueueConfig(max_messages=5)) as broker:
        cursor = session_of(broker, "subscriber").cursor
        await until(lambda: cursor.backlog and cursor.backlog.messages == 5, "counted, and dropped")
        assert await received(broker, 5) == list(range(15, 20))
