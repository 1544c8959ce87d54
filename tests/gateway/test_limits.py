"""Limits on what waits: who is refused, who waits, what is dropped, and that it is written down."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.config import LimitsConfig, QueueConfig, StoreConfig
from tests.gateway.store.support import stored
from tests.gateway.support import Client, running, tcp_port, until
from wire.packets import Puback, Publish, Pubrec


def dropped(folder: Path) -> list[tuple[Any, ...]]:
    return stored(folder, "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY first, consumer")


async def connected(broker: Any, name: str, **options: Any) -> Client:
    return await Client(name, **options).connect(tcp_port(broker))


async def away(broker: Any, *filters: str, options: int = 1) -> None:
    """A durable session with subscriptions whose client is not there."""
    subscriber = await connected(broker, "subscriber")
    await subscriber.subscribe(*filters, options=options)
    await subscriber.disconnect()


async def received(broker: Any, count: int) -> list[int]:
    subscriber = await connected(broker, "subscriber")
    packets = [await subscriber.receive() for _ in range(count)]
    assert await subscriber.silent()
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
        cursor = broker.sessions.get("subscriber").cursor  # type: ignore[union-attr]
        await until(lambda: cursor.backlog.messages == 5, "discarded")  # type: ignore[union-attr]
        assert await received(broker, 5) == list(range(15, 20))
    assert sum(row[4] for row in dropped(tmp_path)) == 15
    assert {row[:2] for row in dropped(tmp_path)} == {("evicted", "session/subscriber")}


async def test_a_queue_counts_bytes(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_bytes=1000)) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        for number in range(10):
            await publisher.publish("a", b"%d" % number + b" " * 398)
        cursor = broker.sessions.get("subscriber").cursor  # type: ignore[union-attr]
        await until(lambda: cursor.backlog.bytes == 800, "discarded")  # type: ignore[union-attr]
        assert await received(broker, 2) == [8, 9]


async def test_a_queue_that_rejects_has_its_publishers_told(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=3, when_full="reject_incoming")) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        for number in range(3):
            await publisher.publish("a", b"%d" % number)
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
        assert await publisher.silent()
        await publisher.publish("other")
        assert await received(broker, 1) == [0]


async def test_flow_control_lets_publishers_wait_and_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=5, when_full="flow_control")) as broker:
        await away(broker, "a", options=2)
        publisher = await connected(broker, "publisher")
        for number in range(5):
            await publisher.publish("a", b"%d" % number)
        sent = [publisher.send("a", b"%d" % number, qos=1 + number % 2) for number in range(5, 30)]
        publisher.send("b", b"", qos=1)  # waits as well: answers come in order
        assert await publisher.silent()
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
    async with running(tmp_path, queue=queue) as broker:
        publisher = await connected(broker, "publisher")
        for topic, reason_code in (("a", 0x97), ("b", 0x97), ("other", 0)):
            publisher.send(topic, b"")
            assert (await publisher.expect(Puback)).reason_code == reason_code


async def test_a_store_that_rejects(tmp_path: Path) -> None:
    async with limited(tmp_path, max_messages=5, when_full="reject_incoming") as broker:
        await away(broker, "#")
        publisher = await connected(broker, "publisher")
        for number in range(5):
            await publisher.publish("a", b"%d" % number)
        publisher.send("b", b"")
        assert (await publisher.expect(Puback)).reason_code == 0x97
        publisher.send("q", b"", qos=0)
        assert await received(broker, 5) == list(range(5))
        await publisher.publish("b")


async def test_a_store_that_discards_does_so_for_all(tmp_path: Path) -> None:
    async with limited(tmp_path, max_messages=10, when_full="discard_old") as broker:
        await away(broker, "a", options=2)
        slow = await connected(broker, "slow", receive_maximum=2)
        await slow.subscribe("a")
        publisher = await connected(broker, "publisher")
        for number in range(40):
            await publisher.publish("a", b"%d" % number)
        await until(lambda: broker.log.needed_count <= 10, "dropped")
        assert await received(broker, 10) == list(range(30, 40))
        held = [await slow.expect(Publish) for _ in range(2)]
        assert [packet.payload for packet in held] == [b"0", b"1"]
    assert dropped(tmp_path) == [("evicted", "gateway", 1, 30, 30)]


async def test_a_store_limit_in_bytes(tmp_path: Path) -> None:
    async with limited(tmp_path, max_bytes=1_000_000, when_full="discard_old") as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        for _ in range(300):
            await publisher.publish("a", b"x" * 10_000)
        await until(lambda: broker.log.used_bytes <= 1_000_000, "dropped")
        assert broker.log.needed_count > 20


async def test_a_client_that_publishes_too_fast_waits(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=20)) as broker:
        fast, other = await connected(broker, "fast"), await connected(broker, "other")
        for _ in range(5):
            await other.publish("a")
        started_s = asyncio.get_running_loop().time()
        for _ in range(60):  # a burst of a second, and two seconds more
            await fast.publish("a")
        assert asyncio.get_running_loop().time() - started_s > 1


def limited(folder: Path, **limits: Any) -> Any:
    return running(folder, store=StoreConfig(str(folder), **limits))
