"""Limits of the store and its disk: what is refused, what waits, what is dropped, and the ranges that record it."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import StoreConfig
from gateway.store import compaction, maintenance
from gateway.store.database import Database
from tests.gateway.steps import away, dropped, limited, publish_numbers, received
from tests.gateway.support import LONG_S, connected, running, subscribed, until
from wire.codec.packets import Puback, Publish
from wire.reasons import NOT_AUTHORIZED, QUOTA_EXCEEDED


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
