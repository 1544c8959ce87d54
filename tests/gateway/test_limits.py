"""Limits on what waits: which clients are refused, which wait, what is dropped, and the ranges that record it."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway import limits
from gateway.broker import Broker
from gateway.config.schema import ClientConfig, LimitsConfig, QueueConfig, StoreConfig
from gateway.store import compaction, maintenance
from gateway.store.database import Database
from tests.gateway.steps import publish_numbers, session_of, with_publisher
from tests.gateway.store.support import stored
from tests.gateway.support import LONG_S, Client, connected, reasons_of, running, subscribed, tcp_port, until
from wire.codec.packets import Connack, Puback, Publish, Pubrec, Will
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY
from wire.properties import USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED, QUOTA_EXCEEDED, SERVER_UNAVAILABLE


def dropped(folder: Path) -> list[tuple[Any, ...]]:
    return stored(folder, "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY first, consumer")


async def away(broker: Any, *filters: str, options: int = 1) -> None:
    """A durable session with subscriptions whose client is not there."""
    subscriber = await subscribed(broker, "subscriber", *filters, options=options)
    await subscriber.disconnect()


async def received(broker: Any, count: int, retained: bool = True, address: str = "127.0.0.1") -> list[int]:
    subscriber = await connected(broker, "subscriber", address=address)
    packets = [await subscriber.receive() for _ in range(count)]
    await subscriber.expect_no_message(retained)
    return [int(packet.payload) for packet in packets]


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


async def test_a_store_that_rejects(tmp_path: Path) -> None:
    async with limited(tmp_path, max_messages=5, when_full="reject_incoming") as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 5)
        publisher.send("b", b"")
        assert (await publisher.expect(Puback)).reason_code == 0x97
        publisher.send("q", b"", qos=0)
        assert await received(broker, 5) == list(range(5))
        await publisher.publish("b")


async def test_a_store_that_discards_does_so_for_all(tmp_path: Path) -> None:
    async with limited(tmp_path, max_messages=10, when_full="discard_old") as broker:
        await away(broker, "a", options=2)
        slow = await subscribed(broker, "slow", "a", receive_maximum=2)
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 40)
        await until(lambda: broker.log.space.needed_count <= 10, "dropped")
        subscriber = await connected(broker, "subscriber")
        assert [int((await subscriber.receive()).payload) for _ in range(10)] == list(range(30, 40))
        held = [await slow.expect(Publish) for _ in range(2)]
        assert [packet.payload for packet in held] == [b"0", b"1"]
    assert sorted(dropped(tmp_path)) == [
        ("evicted", "session/slow", 1, 2, 2),
        ("evicted", "session/slow", 3, 30, 28),
        ("evicted", "session/subscriber", 1, 30, 30),
    ]


async def test_by_default_a_full_store_goes_on_taking_messages_and_says_what_it_dropped(tmp_path: Path) -> None:
    async with limited(tmp_path, max_bytes=1_000_000) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        for number in range(300):
            await publisher.publish("a", b"%d " % number + b"x" * 10_000)
        await until(lambda: broker.log.space.used_bytes <= 1_000_000, "dropped")
        left = broker.log.space.needed_count
        subscriber = await connected(broker, "subscriber")
        assert [int((await subscriber.receive()).payload.split()[0]) for _ in range(left)] == [*range(300 - left, 300)]
    assert [row[:2] + row[4:] for row in dropped(tmp_path)] == [("evicted", "session/subscriber", 300 - left)]


async def test_a_full_store_has_room_again_though_the_oldest_message_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "REST_S", 0.0)
    async with limited(tmp_path, max_messages=50, when_full="flow_control") as broker:
        await away(broker, "alarm")
        reader, publisher = await connected(broker, "reader"), await connected(broker, "publisher")
        await reader.subscribe("a")
        await publisher.publish("alarm", b"0")
        for number in range(120):
            publisher.send("a", b"%d" % number)
            assert (await reader.receive()).payload == b"%d" % number
            assert (await publisher.expect(Puback)).reason_code == 0
        assert await received(broker, 1) == [0]


async def test_a_store_limit_in_bytes(tmp_path: Path) -> None:
    async with limited(tmp_path, max_bytes=1_000_000, when_full="discard_old") as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        for _ in range(340):
            await publisher.publish("a", b"x" * 10_000)
        await until(lambda: broker.log.space.used_bytes <= 1_000_000, "dropped")
        assert broker.log.space.needed_count > 70, "no more than have to"


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


async def test_a_client_that_publishes_too_fast_waits(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=20)) as broker:
        fast, other = await connected(broker, "fast"), await connected(broker, "other", address="127.0.0.2")
        for _ in range(5):
            await other.publish("a")
        started_s = asyncio.get_running_loop().time()
        for _ in range(60):  # a burst of a second, and two seconds more
            await fast.publish("a")
        assert asyncio.get_running_loop().time() - started_s > 1


@pytest.mark.parametrize("name", ["fast", "another"])
async def test_a_client_that_was_too_fast_gains_nothing_by_connecting_again(tmp_path: Path, name: str) -> None:
    """Nor by another client identifier: without a user its address counts."""
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        fast = await connected(broker, "fast")
        for _ in range(300):  # five minutes' worth
            fast.protocol.publish("a", b"", qos=0)
        fast.flush()
        await until(lambda: broker.counters.messages_received[0] == 300, "they have come")
        fast.cut()
        fast, other = await connected(broker, name), await connected(broker, "other", address="127.0.0.2")
        fast.send("a", b"")
        for _ in range(4):
            await other.publish("a")
        assert broker.counters.messages_received[1] == 4


async def test_wills_count_for_the_rate(tmp_path: Path) -> None:
    """An owner that has had many published, each under another client identifier, is not read from meanwhile."""
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        will = Will("a", b"", 1)
        dying = [await connected(broker, f"dies-{number}", session_expiry_s=0, will=will) for number in range(100)]
        for client in dying:
            client.cut()
        await until(lambda: broker.counters.messages_stored == 100, "they are published")
        fast, other = await connected(broker, "fast"), await connected(broker, "other", address="127.0.0.2")
        fast.send("a")
        for _ in range(2):  # it would be read before the other one's
            await other.publish("a")
        assert broker.counters.messages_received[1] == 2


async def test_a_client_that_publishes_too_fast_does_not_keep_the_gateway_from_closing(tmp_path: Path) -> None:
    async with asyncio.timeout(LONG_S), running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        fast = await connected(broker, "fast")
        for _ in range(1000):
            fast.protocol.publish("a", b"", qos=0)
        fast.flush()
        await until(lambda: broker.counters.messages_received[0] == 1000, "they have come")


async def test_what_waits_for_room_is_held_against_the_access_rules_of_the_moment(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\n")
    store = StoreConfig(str(tmp_path), max_messages=1, when_full="flow_control")
    async with running(tmp_path, store=store, acl=str(rules)) as broker:
        subscriber, publisher = await connected(broker, "subscriber"), await connected(broker, "publisher")
        await subscriber.subscribe("a")
        await publisher.publish("a", b"first")
        publisher.send("a", b"second")
        await publisher.ping()
        rules.write_text("allow * subscribe #\n")
        broker.reload()
        assert (await subscriber.receive()).payload == b"first"
        assert (await publisher.expect(Puback)).reason_code == NOT_AUTHORIZED
        await subscriber.ping()


@pytest.mark.parametrize("when_full", ["flow_control", "reject_incoming", "discard_old"])
async def test_the_last_of_a_disk_is_kept_for_trimming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when_full: Any
) -> None:
    real = os.statvfs(tmp_path)
    left = os.statvfs_result((*real[:4], 10, *real[5:]))  # blocks
    async with limited(tmp_path, when_full=when_full) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        with monkeypatch.context() as disk:
            disk.setattr(os, "statvfs", lambda path: left)
            await publisher.publish("a", b"0")  # and with it, it is seen
            publisher.send("a", b"1")
            if when_full == "flow_control":
                await publisher.ping()
            elif when_full == "reject_incoming":
                assert (await publisher.expect(Puback)).reason_code == 0x97
            else:
                await publisher.expect(Puback)
                await until(lambda: broker.log.space.needed_count == 0, "evicted")
        if when_full == "flow_control":
            await publisher.expect(Puback)
            assert await received(broker, 2) == [0, 1]


async def test_how_much_a_disk_has_left_is_seen_before_a_message_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    may_go_on.set()
    waited = []
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 3600.0)  # for ever, for this test
    monkeypatch.setattr(Database, "checkpoint", lambda database: waited.append(may_go_on.wait(LONG_S)))
    real = os.statvfs(tmp_path)
    left = os.statvfs_result((*real[:4], 10, *real[5:]))  # blocks
    async with limited(tmp_path, when_full="reject_incoming") as broker:
        publisher = await connected(broker, "publisher")
        await until(lambda: len(waited) == sum(broker.counters.commit_s.counts), "each commit is over")
        may_go_on.clear()
        monkeypatch.setattr(os, "statvfs", lambda path: left)
        await publisher.publish("a", b"0")
        publisher.send("a", b"1")
        await until(lambda: broker.counters.messages_received[1] == 2, "it has come")
        may_go_on.set()
        assert (await publisher.expect(Puback)).reason_code == QUOTA_EXCEEDED


def limited(folder: Path, **limits: Any) -> Any:
    return running(folder, store=StoreConfig(str(folder), **limits))


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
async def test_only_so_many_topics_have_a_retained_message(tmp_path: Path, qos: int, answer: Any) -> None:
    async with with_publisher(tmp_path, limits=LimitsConfig(retained_messages=2)) as (broker, publisher):
        for topic in ("a", "b"):
            await publisher.publish(topic, b"1", retain=True)
        publisher.send("c", b"1", qos=qos, retain=True)
        assert (await publisher.expect(answer)).reason_code == 0x97
        await publisher.publish("c", b"1")
        await publisher.publish("c", b"", retain=True)
        await publisher.publish("a", b"2", retain=True)
        await publisher.publish("b", b"", retain=True)
        await publisher.publish("c", b"2", retain=True)
        reader = await subscribed(broker, "reader", "#")
        assert {(packet.topic, packet.payload) for packet in [await reader.receive(), await reader.receive()]} == {
            ("a", b"2"),
            ("c", b"2"),
        }
        await publisher.publish("d", b"marker")
        assert (await reader.receive()).topic == "d"
        assert broker.log.space.retained.topics == 2
    assert dropped(tmp_path) == [("rejected", "gateway", 0, 0, 1)]


async def test_beyond_that_what_cannot_be_refused_is_delivered_and_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(retained_messages=1)) as broker:
        reader, publisher = await connected(broker, "reader"), await connected(broker, "publisher")
        await publisher.publish("a", b"1", retain=True)
        await reader.subscribe("b")
        publisher.send("b", b"1", qos=0, retain=True)
        assert (await reader.receive()).payload == b"1"
        (await connected(broker, "dying", will=Will("b", b"2", 1, True))).cut()
        assert (await reader.receive()).payload == b"2"
        assert broker.log.space.retained.topics == 1
    assert [row[:2] + row[4:] for row in dropped(tmp_path)] == [("rejected", "retained", 1)] * 2


@pytest.mark.parametrize("by", ["limit", "half of the store"])
async def test_retained_messages_have_only_so_many_bytes(tmp_path: Path, by: str) -> None:
    """Whatever way they come: at QoS 0, at QoS 1 and as a will; small ones take another one's place all the same."""
    settings: dict[str, Any] = {"limits": LimitsConfig(retained_bytes=500_000)}
    if by != "limit":
        settings = {"store": StoreConfig(str(tmp_path), max_bytes=1_000_000)}
    async with with_publisher(tmp_path, **settings) as (broker, publisher):
        for number in range(4):
            await publisher.publish(str(number), bytes(100_000), retain=True)
        publisher.send("4", bytes(100_000), qos=0, retain=True)
        publisher.send("5", bytes(100_000), retain=True)
        assert (await publisher.expect(Puback)).reason_code == 0x97
        will = Will("6", bytes(60_000), 1, True)
        (await connected(broker, "dying", will=will)).cut()
        await publisher.publish("0", bytes(50_000), retain=True)
        await publisher.publish("0", bytes(100_000), retain=True)
        assert (broker.log.space.retained.topics, 400_000 < broker.log.space.retained.bytes <= 500_000) == (
            5,
            True,
        )  # with the will
        await publisher.publish("small", b"1", retain=True)
        await publisher.publish("1", bytes(139_500), retain=True)
        await publisher.publish("small", bytes(900), retain=True)
        publisher.send("small", bytes(10_000), retain=True)
        assert (await publisher.expect(Puback)).reason_code == 0x97
        held = broker.log.space.retained.bytes
    async with running(tmp_path, **settings) as broker:
        assert broker.log.space.retained.bytes == held
    assert [row[:2] for row in dropped(tmp_path)].count(("rejected", "retained")) >= 1


async def test_retained_messages_count_with_all_names_and_properties(tmp_path: Path) -> None:
    """Each has a payload of one byte, and the store 700 bytes more for it."""
    long = 250 * "x"
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow * identify *\n")
    limits = LimitsConfig(retained_bytes=65_536)
    async with running(tmp_path / "store", limits=limits, acl=str(rules)) as broker:
        publisher = await connected(broker, 200 * "p")
        codes = []
        for number in range(100):
            names = [(IDENTITY_PROPERTY, f"00000001/{number + 1}/{long}"), (RECEIVED_PROPERTY, f"1/{long}")]
            publisher.send(str(number), b"1", retain=True, properties={USER_PROPERTY: names})
            codes.append((await publisher.expect(Puback)).reason_code)
        assert codes[93] == 0x97, "93 of 704 bytes fit"
        assert 65_536 - 800 < broker.log.space.retained.bytes <= 65_536
        held = broker.log.space.retained.bytes
    async with running(tmp_path / "store", limits=limits, acl=str(rules)) as broker:
        assert broker.log.space.retained.bytes == held


async def test_a_queue_counts_properties(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_bytes=10_000, when_full="reject_incoming")) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        properties = {USER_PROPERTY: [("a", 2_500 * "b")]}
        for _ in range(4):
            await publisher.publish("a", b"1", properties=properties)
        publisher.send("a", b"1", properties=properties)
        assert (await publisher.expect(Puback)).reason_code == 0x97


async def test_a_full_store_keeps_no_retained_message_of_qos_0(tmp_path: Path) -> None:
    async with limited(tmp_path, max_messages=1, when_full="reject_incoming") as broker:
        await away(broker, "a")
        publisher, reader = await connected(broker, "publisher"), await connected(broker, "reader")
        await reader.subscribe("r")
        await publisher.publish("a", b"0")
        publisher.send("r", b"1", qos=0, retain=True)
        assert (await reader.receive()).payload == b"1"
        assert await received(broker, 1) == [0]
        assert broker.log.space.retained.topics == 0


async def test_an_older_client_is_left_without_an_answer_to_a_retained_message_too_many(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(retained_messages=1)) as broker:
        publisher = await connected(broker, "publisher", protocol_level=4, session_expiry_s=0)
        await publisher.publish("a", b"1", retain=True)
        publisher.send("b", b"1", retain=True)
        await publisher.publish("a", b"2", retain=True)


@pytest.mark.parametrize("limit", [{"max_messages": 5}, {"max_bytes": 5 * 101}])
async def test_a_client_that_has_its_share_of_the_store_is_refused_and_others_are_not(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    """Also under another client identifier: without a user its address counts."""
    async with running(tmp_path, client=ClientConfig(**limit, when_full="reject_incoming")) as broker:
        await away(broker, "#")
        greedy, modest = await connected(broker, "greedy"), await connected(broker, "modest", address="127.0.0.2")
        for number in range(5):
            await greedy.publish("a", b"%d" % number + b" " * 99)
        greedy.send("b", b"x")
        assert (await greedy.expect(Puback)).reason_code == 0x97
        await modest.publish("b", b"5")
        greedy.cut()
        greedy = await connected(broker, "greedy by another name")
        greedy.send("a", b"x", qos=2)
        assert (await greedy.expect(Pubrec)).reason_code == 0x97
        assert await received(broker, 6, address="127.0.0.3") == list(range(6))
        await asyncio.sleep(limits.RETRY_S)  # so often it looks whether there is room
        await greedy.publish("a", b"7")
    assert [row for row in dropped(tmp_path) if row[0] == "rejected"] == [("rejected", "gateway", 0, 0, 1)] * 2


async def test_a_client_that_has_its_share_waits_for_room(tmp_path: Path) -> None:
    async with running(tmp_path, client=ClientConfig(max_messages=5)) as broker:
        await away(broker, "#")
        greedy, modest = await connected(broker, "greedy"), await connected(broker, "modest", address="127.0.0.2")
        await publish_numbers(greedy, 5)
        sent = [greedy.send("a", b"%d" % number) for number in range(5, 10)]
        await modest.publish("a", b"5")
        await greedy.ping()
        subscriber = await connected(broker, "subscriber")
        assert len([await subscriber.receive() for _ in range(11)]) == 11
        assert [(await greedy.expect(Puback)).packet_identifier for _ in sent] == sent


async def test_there_are_only_so_many_sessions_that_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, limits=LimitsConfig(sessions=2)) as broker:
        for name in ("one", "two"):
            await (await connected(broker, name)).disconnect()
        assert await code_of(Client("three"), broker) == QUOTA_EXCEEDED
        assert await code_of(Client("three", protocol_level=4), broker) == SERVER_UNAVAILABLE
        assert broker.counters.connections_refused == {QUOTA_EXCEEDED: 2}
        why = "quota exceeded (0x97): 2 sessions wait for their clients (limits.sessions)"
        assert reasons_of(caplog).count(why) == 2
        assert await code_of(Client("three", session_expiry_s=0), broker) == 0
        assert await code_of(Client("one"), broker) == 0
        assert await code_of(Client("two", clean_start=True, session_expiry_s=0), broker) == 0
        assert await code_of(Client("three"), broker) == 0
    async with running(tmp_path, limits=LimitsConfig(sessions=1)) as broker:
        assert (await connected(broker, "three")).connack.session_present
        assert await code_of(Client("four"), broker) == QUOTA_EXCEEDED
        four = await connected(broker, "four", session_expiry_s=0)
        assert await code_of(Client("four", clean_start=True), broker) == QUOTA_EXCEEDED
        await four.publish("a", b"still here")


async def code_of(client: Client, broker: Broker) -> int:
    """The reason code with which a client is let in or not."""
    await client.open(tcp_port(broker))
    return (await client.expect(Connack)).reason_code


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
