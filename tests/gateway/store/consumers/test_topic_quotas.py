"""The limits below topic filters, for one consumer: what counts, what is dropped, and what is left alone."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import Cursor, Delivery, GroupCursor, LaneCursor, MessageLog, count_backlogs
from gateway.store.consumers.quotas import Limit, TopicLimits
from gateway.store.routes.lanes import BackfillRanges
from tests.gateway.store.support import CountsBacklogs, append_all, batch_of, numbered, opened, payloads, stored

RANGES = "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY first"
LIMITS = [
    ("orders/#", Limit(12, None)),
    ("orders/eu/#", Limit(None, 90)),
    ("+/eu/+", Limit(20, 400, discards=False)),
    ("alarms", Limit(5, None)),
]
TOPICS = ("orders/eu/a", "orders/us", "stock/eu/b", "alarms", "weather", "weather/eu")


def session(log: MessageLog) -> Cursor:
    return Cursor(log, "session/s", ["#"])


def route(log: MessageLog) -> Cursor:
    return LaneCursor(log, "route/r", ["#"], backfill=BackfillRanges(), window=100)


async def fetched(cursor: Cursor, limit: int) -> list[Delivery]:
    """What a consumer is handed out next, from runs too."""
    if not isinstance(cursor, LaneCursor):
        return list(await cursor.fetch_now(limit))
    pieces = await cursor.fetch_pieces(limit, limit)
    return [one for piece in pieces for one in ([piece] if isinstance(piece, Delivery) else piece.deliveries())]


class Model:
    """What waits for one consumer and is in flight to it, in lists: (position, topic name, bytes)."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, str, int]] = []
        self.waiting: list[tuple[int, str, int]] = []
        self.in_flight: dict[int, tuple[int, str, int]] = {}
        self.dropped = 0

    def count(self, number: int) -> tuple[int, int]:
        tree = TopicLimits(LIMITS)
        found = [size for _, topic, size in [*self.waiting, *self.in_flight.values()] if number in tree.matching(topic)]
        return len(found), sum(found)

    def is_beyond(self, number: int, less: int = 0) -> bool:
        limit, (messages, size) = LIMITS[number][1], self.count(number)
        return (limit.max_messages is not None and messages > limit.max_messages - less) or (
            limit.max_bytes is not None and size > limit.max_bytes - less
        )

    def is_over(self, topic: str) -> bool:
        numbers = TopicLimits(LIMITS).matching(topic)
        return any(LIMITS[number][1].discards and self.is_beyond(number) for number in numbers)

    def store(self, position: int, message: Message) -> None:
        self.stored.append((position, message.topic, message.content_size))
        self.waiting.append(self.stored[-1])

    def pass_to(self, position: int) -> None:
        """The consumer came to a position and was handed out nothing: each message on the way was over."""
        while self.waiting and self.waiting[0][0] <= position:
            assert self.is_over(self.waiting[0][1])
            self.waiting.pop(0)
            self.dropped += 1

    def hand_out(self, delivery: Delivery) -> None:
        self.pass_to(delivery.position - 1)
        assert self.waiting[0][0] == delivery.position
        assert not self.is_over(delivery.message.topic)
        self.in_flight[delivery.packet_identifier] = self.waiting.pop(0)

    def restart(self, place: int) -> None:
        self.waiting, self.in_flight = [one for one in self.stored if one[0] > place], {}

    def agrees(self, cursor: Cursor) -> None:
        topics, kept = cursor.tally.topics, cursor.tally.kept
        assert topics is not None
        assert [topics.is_full(number) for number in range(4)] == [self.is_beyond(number, 1) for number in range(4)]
        assert cursor.backlog is not None
        assert kept is not None
        assert cursor.backlog.messages == len(self.waiting) + len(self.in_flight)
        over = any(LIMITS[number][1].discards and self.is_beyond(number) for number in range(4))
        assert (topics.excess.messages > 0) == (over and self.has_over_waiting())
        if self.waiting and not self.in_flight and not self.is_beyond(1):
            excess = sum(max(0, self.count(number)[0] - (LIMITS[number][1].max_messages or 0)) for number in (0, 3))
            assert kept.messages == len(self.waiting) - excess

    def has_over_waiting(self) -> bool:
        return any(self.is_over(topic) for _, topic, _ in self.waiting)


@pytest.mark.parametrize("open_cursor", [session, route])
async def test_what_is_counted_and_dropped_is_what_a_model_says(
    tmp_path: Path, seed: int, open_cursor: Callable[[MessageLog], Cursor]
) -> None:
    chance, model = random.Random(seed), Model()
    counted = 0
    for life in range(4):
        async with opened(tmp_path) as log:
            log.limit_by(CountsBacklogs(TopicLimits(LIMITS)))
            cursor = open_cursor(log)
            if life:
                model.restart(cursor.position)
                await count_backlogs(log, [cursor])
            model.agrees(cursor)
            for _ in range(80):
                await step(chance, log, cursor, model)
                model.agrees(cursor)
            counted += log.counters.messages_dropped["evicted"]
    assert counted == model.dropped > 50


async def step(chance: random.Random, log: MessageLog, cursor: Cursor, model: Model) -> None:
    """Does one random thing with a consumer and its model."""
    dice = chance.random()
    if dice < 0.35:
        topics = chance.sample(TOPICS, chance.randint(1, 3))
        messages = [Message(chance.choice(topics), bytes(chance.randrange(20))) for _ in range(chance.randint(1, 15))]
        if chance.random() < 0.5:
            first = (await log.submit([batch_of([(one.topic, one.payload) for one in messages])]))[0]
            positions = list(range(first, first + len(messages)))
        else:
            positions = await append_all(log, messages)
        for position, message in zip(positions, messages, strict=True):
            model.store(position, message)
    elif dice < 0.6:
        for delivery in await fetched(cursor, chance.randint(1, 30)):
            model.hand_out(delivery)
        model.pass_to(cursor.unread_from)
    elif dice < 0.85 and model.in_flight:
        arrived = chance.sample(list(model.in_flight), chance.randint(1, len(model.in_flight)))
        cursor.acknowledge_all(arrived)
        for packet_identifier in arrived:
            del model.in_flight[packet_identifier]
    elif dice < 0.95:
        await cursor.discard_oldest(lambda _: True)
        model.pass_to(cursor.unread_from)
        assert not (model.waiting and model.is_over(model.waiting[0][1]))
    else:
        await count_backlogs(log, [cursor])


async def test_messages_of_other_topics_stay_whatever_is_dropped_between_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs(TopicLimits([("orders/#", Limit(2, None))])))
        cursor = session(log)
        for number in range(5):
            await append_all(log, [Message("orders/a", b"%d" % number), Message("alarms", b"%d" % (10 + number))])
        await cursor.discard_oldest(lambda _: True)
        assert cursor.backlog is not None
        assert cursor.backlog.messages == 9  # the first one, as an alarm is behind it
        assert payloads(await cursor.fetch_now(100)) == [10, 11, 12, 3, 13, 4, 14]
    assert stored(tmp_path, RANGES) == [("evicted", "session/s", number, number, 1) for number in (1, 3, 5)]


async def test_what_is_in_flight_counts_and_is_not_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs(TopicLimits([("a", Limit(3, None))])))
        cursor = session(log)
        await append_all(log, numbered(3))
        in_flight = await cursor.fetch_now(2)
        await append_all(log, [Message("a", b"3"), Message("a", b"4")])
        assert payloads(await cursor.fetch_now(10)) == [4]
        cursor.redeliver([delivery.packet_identifier for delivery in in_flight])
        assert payloads(await cursor.fetch_now(10)) == [0, 1]


async def test_a_share_group_loses_the_oldest_of_what_it_holds_back_for_another_member(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs(TopicLimits([("shop/#", Limit(3, None))])))
        cursor = GroupCursor(log, "share/g/#", ["#"])
        await append_all(log, [Message("shop/secret", b"0"), Message("shop/secret", b"1"), Message("shop/open", b"2")])

        def is_open(topic: str) -> bool:
            return not topic.endswith("secret")

        (first,) = await cursor.fetch_now(10, is_open)
        await append_all(log, [Message("shop/open", b"3")])
        (second,) = await cursor.fetch_now(10, is_open)
        assert payloads([first, second]) == [2, 3]
        assert payloads(await cursor.fetch_now(10, bool)) == [1]
    assert [row[:2] + row[4:] for row in stored(tmp_path, RANGES)] == [("evicted", "share/g/#", 1)]


async def test_a_route_hands_out_runs_of_topics_without_a_limit(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.limit_by(CountsBacklogs(TopicLimits([("limited", Limit(5, None))])))
        cursor = route(log)
        assert isinstance(cursor, LaneCursor)
        await log.submit([batch_of([("free", b"%d" % number) for number in range(20)])])
        await log.submit([batch_of([("limited", b"%d" % number) for number in range(20)])])
        (run,) = await cursor.fetch_pieces(100, 100)
        assert not isinstance(run, Delivery)
        assert len(run) == 20
        singles = await cursor.fetch_pieces(100, 100)
        assert payloads([one for one in singles if isinstance(one, Delivery)]) == list(range(15, 20))
        cursor.acknowledge_pieces([run, *singles])
        assert cursor.backlog is not None
        assert (cursor.backlog.messages, cursor.backlog.bytes) == (0, 0)
        assert cursor.tally.topics is not None
        assert not cursor.tally.topics.is_full(0)
