"""A cursor that many share, where rules deny some topic names to some: what one may not have waits for another."""

import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from gateway.message import Message
from gateway.store import Delivery, GroupCursor, MessageLog, count_backlogs
from tests.gateway.store.support import CountsBacklogs, append_all, opened, payloads, stored

GROUP = "share/g/#"


def group(log: MessageLog) -> GroupCursor:
    return GroupCursor(log, GROUP, ["#"], window=sys.maxsize)


def not_secret(topic: str) -> bool:
    return not topic.startswith("secret")


def everything(topic: str) -> bool:
    return bool(topic)


def messages(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % number, publisher="p") for number in range(count)]


async def drained(cursor: GroupCursor, may_have: object) -> list[Delivery]:
    """All that there is for one that may have some topic names, acknowledged."""
    found: list[Delivery] = []
    while deliveries := await cursor.fetch_now(8, may_have):  # type: ignore[arg-type]
        found += deliveries
        cursor.acknowledge_all([delivery.packet_identifier for delivery in deliveries])
    return found


@pytest.mark.parametrize("topics", [1, 900])
async def test_what_one_may_not_have_keeps_nothing_from_it(tmp_path: Path, topics: int) -> None:
    """However much that is; one that may have it gets it in order and once, also what comes meanwhile."""
    async with opened(tmp_path) as log:
        cursor = group(log)
        secrets = [Message(f"secret/{number % topics}", b"%d" % number) for number in range(2_000)]
        await append_all(log, secrets[:1_500])
        await append_all(log, messages("open", 10))
        assert payloads(await drained(cursor, not_secret)) == list(range(10))
        assert cursor.position == 0
        first = await cursor.fetch_now(8, everything)
        await append_all(log, [*secrets[1_500:], *messages("open", 10)])
        assert payloads(await drained(cursor, not_secret)) == list(range(10))
        assert cursor.position == 0
        cursor.acknowledge_all([delivery.packet_identifier for delivery in first])
        assert payloads([*first, *await drained(cursor, everything)]) == list(range(2_000))
        assert cursor.position == log.head


async def test_beyond_so_many_topic_names_it_goes_on_as_soon_as_their_messages_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.consumers.group_cursor.HELD_BACK_MOST", 50)
    async with opened(tmp_path) as log:
        cursor = group(log)
        await append_all(log, [Message(f"secret/{number}", b"0") for number in range(100)])
        await append_all(log, messages("open", 10))
        assert await drained(cursor, not_secret) == []
        await log.eviction.evict(100, 0)
        assert payloads(await drained(cursor, not_secret)) == list(range(10))
        assert await drained(cursor, everything) == []
        assert cursor.position == log.head
    assert stored(tmp_path, "SELECT reason, consumer, messages FROM dropped") == [("evicted", GROUP, 100)]


async def test_one_that_takes_what_waits_lets_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.consumers.group_cursor.HELD_BACK_MOST", 50)
    async with opened(tmp_path) as log:
        cursor = group(log)
        await append_all(log, [Message(f"secret/{number}", b"%d" % number) for number in range(100)])
        await append_all(log, messages("open", 1))
        assert await drained(cursor, not_secret) == []
        assert len(await drained(cursor, everything)) == 101
        await append_all(log, messages("open", 3))
        assert payloads(await drained(cursor, not_secret)) == [0, 1, 2]


async def test_what_none_may_have_any_more_leaves_a_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs())
        cursor = group(log)
        await append_all(log, messages("secret", 100))
        assert await drained(cursor, not_secret) == []
        cursor.may_be_taken = not_secret
        cursor.reconsider()
        await append_all(log, [*messages("open", 1), *messages("secret", 5)])
        assert len(await drained(cursor, not_secret)) == 1
        assert cursor.position == log.head
        assert cursor.backlog is not None and cursor.backlog.messages == 0
    columns = "reason, consumer, sum(messages)"
    assert stored(tmp_path, f"SELECT {columns} FROM dropped GROUP BY 1, 2") == [("filtered", GROUP, 105)]


async def test_it_counts_for_the_queue_and_is_the_oldest_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs())
        cursor = group(log)
        await append_all(log, [*messages("secret", 100), *messages("open", 100)])
        assert len(await cursor.fetch_now(50, not_secret)) == 50
        assert cursor.backlog is not None and cursor.backlog.messages == 200
        await count_backlogs(log, [cursor])
        assert cursor.backlog is not None and cursor.backlog.messages == 200
        await cursor.discard_oldest(lambda backlog: backlog.messages <= 110)
        assert cursor.backlog.messages == 110
        assert payloads(await drained(cursor, everything)) == [*range(90, 100), *range(50, 100)]
    assert stored(tmp_path, "SELECT reason, consumer, messages FROM dropped") == [("evicted", GROUP, 90)]


@pytest.mark.parametrize("evicts", [False, True])
async def test_each_message_goes_to_one_that_may_have_it_once(tmp_path: Path, seed: int, evicts: bool) -> None:
    """Whatever comes back, and whatever the rules say meanwhile; held against what each should have had."""
    dice = Random(seed)
    topics = [f"t/{number}" for number in range(6)]
    rights = [set(topics), {"t/0", "t/1"}, {"t/1", "t/2", "t/3"}]
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs())
        cursor = group(log)
        arrived: Counter[int] = Counter()
        held: list[tuple[set[str], Delivery]] = []
        sent = 0
        for _ in range(400):
            match dice.randrange(7 if evicts else 6):
                case 0 | 1:
                    some = [Message(dice.choice(topics), b"") for _ in range(dice.randrange(1, 12))]
                    sent += len(some)
                    await append_all(log, some)
                case 2:
                    member = dice.choice(rights[1:])
                    held += [(member, one) for one in await cursor.fetch_now(dice.randrange(1, 9), member.__contains__)]
                case 3:
                    dice.shuffle(held)
                    for _ in range(dice.randrange(len(held) + 1)):
                        member, delivery = held.pop()
                        assert delivery.message.topic in member
                        if cursor.acknowledge_all([delivery.packet_identifier]):
                            arrived[delivery.position] += 1
                case 4:
                    back, held = held[: len(held) // 2], held[len(held) // 2 :]
                    cursor.redeliver([delivery.packet_identifier for _, delivery in back])
                case 5:
                    forbidden = dice.choice(["", "t/4", "t/5"])  # to all
                    cursor.may_be_taken = lambda topic, forbidden=forbidden: topic != forbidden  # type: ignore[misc]
                    cursor.reconsider()
                case _:
                    await log.eviction.evict(dice.randrange(1, 5), 0)
        cursor.redeliver([delivery.packet_identifier for _, delivery in held])
        for delivery in await drained(cursor, everything):
            arrived[delivery.position] += 1
        assert max(arrived.values()) == 1
        assert cursor.position == log.head
        assert cursor.backlog is not None and (cursor.backlog.messages, cursor.backlog.bytes) == (0, 0)
    (lost,) = stored(tmp_path, "SELECT coalesce(sum(messages), 0) FROM dropped")[0]
    assert len(arrived) + lost == sent if not evicts else len(arrived) + lost >= sent
