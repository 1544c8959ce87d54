"""Messages are taken out of the middle of the log: what a consumer needs stays at its position."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.loop import pace
from gateway.message import Message
from gateway.store import MESSAGES, Cursor, Endings, MessageLog, compaction, maintenance, qos2
from gateway.store.repair import repair
from gateway.store.tables.log_rows import Part
from gateway.store.tables.qos2 import BEGUN
from tests.gateway.store.corruption import corrupt_pages, zero
from tests.gateway.store.repair.test_repair import change, pages_of_messages
from tests.gateway.store.support import (
    append_all,
    epoch_of,
    leave_as_killed,
    messages_in,
    numbered,
    opened,
    redeliver_all,
    stored,
    take_all,
)
from tests.gateway.store.test_log_rows import run_of
from tests.gateway.support import until
from wire.codec.packets import MQTT_3_1_1, MQTT_5

TOPICS = ("a", "b", "c/d", "c/e", "rare")


def some_run(topics: list[str], payloads: list[bytes], level: int = MQTT_3_1_1) -> Part:
    """A run as it comes from a client, before it has an identity."""
    run = run_of(topics, payloads, level, first_seq=0)
    run.epoch = 0
    return run


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps begin after a few messages."""
    monkeypatch.setattr(compaction, "SWEEP_FROM_BYTES", 4000)
    monkeypatch.setattr(compaction, "ROW_BYTES", 2000)
    monkeypatch.setattr(compaction, "PIECE_ROWS", 7)
    monkeypatch.setattr(compaction, "PAUSE_S", 0.0)
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)


async def flood(log: MessageLog, others: Cursor, count: int) -> None:
    """Many messages come, and one consumer takes all of them."""
    for _ in range(count // 1000):
        await log.submit([some_run(["others"] * 1000, [b"x" * 100] * 1000)])
        while deliveries := await others.fetch_now(1000):
            others.acknowledge_all([delivery.packet_identifier for delivery in deliveries])


async def test_a_consumer_that_is_away_costs_what_waits_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        away, others = Cursor(log, "away", ["alarm"]), Cursor(log, "others", ["others"])
        await log.submit([Message("alarm", b"fire")])
        most = 0
        for _ in range(20):
            await flood(log, others, 10_000)
            most = max(most, log.space.used_bytes)
        assert most < 18_000_000, "all of them are 24 MB"
        await until(lambda: log.space.stored_count < 120_000, "the last sweep is over")
        assert log.space.needed_count <= log.space.stored_count
    async with opened(tmp_path) as log:
        assert log.space.stored_count < 120_000, "that is known after a restart, too"
        away, others = Cursor(log, "away", ["alarm"]), Cursor(log, "others", ["others"])
        assert await take_all(away) == [Message("alarm", b"fire", origin="gw", epoch=epoch_of(tmp_path), seq=1)]
        await log.submit([Message("others", b"")])
        assert len(await take_all(others)) == 1
        await until(lambda: log.space.stored_count == 1, "all is trimmed")
    assert stored(tmp_path, "SELECT count(*) FROM compacted") == [(0,)]


@pytest.mark.usefixtures("often")
async def test_messages_are_taken_out_between_commits_that_gather_others(tmp_path: Path) -> None:
    async with opened(tmp_path, commit_interval_ms=20) as log:
        away = Cursor(log, "away", ["alarm"])
        for number in range(30):
            await append_all(log, [Message("alarm", b"%d" % number), *[Message("b", bytes(400)) for _ in range(20)]])
        await until(lambda: log.space.stored_count < 300, "they are taken out")
        assert [int(message.payload) for message in await take_all(away)] == [*range(30)]


@pytest.mark.usefixtures("often")
async def test_what_comes_during_a_sweep_goes_with_the_next_one_where_nothing_more_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "PAUSE_S", 0.2)  # so long a sweep takes at least
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["alarm"])
        for _ in range(40):
            await append_all(log, [Message("alarm", b""), *[Message("b", bytes(100)) for _ in range(20)]])
        await until(lambda: log.space.stored_count < 200, "they are taken out")


@pytest.mark.usefixtures("often")
async def test_what_all_wait_for_is_not_written_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["#"])
        for _ in range(100):
            await append_all(log, [Message("a", b"x" * 100) for _ in range(10)])
        assert stored(tmp_path, "SELECT count(*) FROM message_group") >= [(100,)]
        assert stored(tmp_path, "SELECT * FROM compacted") == []


@pytest.mark.usefixtures("often")
async def test_a_qos_2_message_on_its_way_stays_until_it_was_received(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "session/c", ["a"])
        [position] = await log.submit([Message("a", b"once", qos=2)])
        flow = qos2.Flow("c", 1, cursor.consumer, position, state=BEGUN)
        (delivery,) = await cursor.fetch_now(1)
        log.consumers.keepers.pin(flow)
        await log.submit([qos2.begin([flow])])
        cursor.acknowledge_all([delivery.packet_identifier])
        away = Cursor(log, "away", ["alarm"])
        await log.submit([Message("alarm", b"")])
        for _ in range(20):
            await append_all(log, [Message("b", b"x" * 100) for _ in range(20)])
        await until(lambda: log.space.stored_count < 100, "they are taken out")
        await take_all(away)
    async with opened(tmp_path) as log:
        found = await log.read_one(position)
        assert found is not None and found.payload == b"once"


@pytest.mark.usefixtures("often")
async def test_what_was_sent_before_an_unsubscribe_comes_again_when_the_client_does(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "session/c", ["a", "alarm"])
        await append_all(log, [Message("alarm", b""), Message("a", b"sent")])
        assert len(await cursor.fetch_now(2)) == 2
        cursor.unsubscribe("a")
        for _ in range(20):
            await append_all(log, [Message("b", b"x" * 100) for _ in range(20)])
        await until(lambda: log.space.stored_count < 100, "they are taken out")
        redeliver_all(cursor)
        assert [delivery.message.payload for delivery in await cursor.fetch_now(2)] == [b"", b"sent"]


@pytest.mark.usefixtures("often")
async def test_a_consumer_that_leaves_during_a_sweep_finds_what_waited_when_it_returns(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "stays", ["alarm"])
        await log.submit([Message("alarm", b"")])
        for number in range(20):
            leaves = Cursor(log, "leaves", ["a"])
            for _ in range(20):
                await append_all(log, [*numbered(1), *[Message("b", b"x" * 100) for _ in range(5)]])
            leaves.close()
            await append_all(log, [Message("b", b"x" * 100) for _ in range(number)])
            leaves = Cursor(log, "leaves", ["a"])
            assert len(await take_all(leaves)) == 20
            leaves.close()


@pytest.mark.usefixtures("often")
async def test_a_repair_leaves_messages_at_their_positions(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        away = Cursor(log, "away", ["alarm"])
        for _ in range(50):
            await append_all(log, [Message("alarm", b""), *[Message("b", b"x" * 100) for _ in range(20)]])
        await until(lambda: log.space.stored_count < 500, "they are taken out")
    count = len(messages_in(tmp_path))
    before = [one for one in messages_in(tmp_path) if one[1].topic == "alarm"]
    with closing(sqlite3.connect(tmp_path / "messages.sqlite")) as connection:
        connection.execute("UPDATE cursor SET count = 700")  # its checksum tells that it is damaged
        connection.commit()
    assert repair(tmp_path, "gw", ["away"]).damage
    assert [one for one in messages_in(tmp_path) if one[1].topic == "alarm"] == before
    async with opened(tmp_path) as log:
        assert log.space.stored_count == count
        away = Cursor(log, "away", ["alarm"])
        assert len(await take_all(away)) == 50


@pytest.mark.usefixtures("often")
async def test_where_a_row_is_damaged_what_was_taken_out_of_it_is_not_counted(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["alarm"])
        for _ in range(50):
            await append_all(log, [Message("alarm", b""), *[Message("b", bytes(100)) for _ in range(20)]])
        await until(lambda: log.space.stored_count < 500, "they are taken out")
    ((last, left),) = stored(
        tmp_path, "SELECT last, count - gone FROM compacted JOIN message_group USING (last) ORDER BY last LIMIT 1"
    )
    change(tmp_path, f"UPDATE message_group SET crc = crc - 1 WHERE last = {last}")
    async with opened(tmp_path) as log:
        away = Cursor(log, "away", ["alarm"])
        assert len(await take_all(away)) == 50 - left
        assert log.counters.messages_dropped["damaged"] == left
    assert stored(tmp_path, "SELECT messages FROM dropped WHERE reason = 'damaged'") == [(left,)]


@pytest.mark.usefixtures("often")
async def test_a_damaged_page_out_of_whose_rows_messages_were_taken_keeps_no_gateway_from_its_start(
    tmp_path: Path, seed: int
) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "away", ["alarm"])
        for _ in range(100):
            await append_all(log, [Message("alarm", bytes(100)), *[Message("b", bytes(100)) for _ in range(20)]])
        await until(lambda: log.space.stored_count < 500, "they are taken out")
    lasts = [last for (last,) in stored(tmp_path, "SELECT last FROM compacted ORDER BY last")]
    (page, *_) = sorted(pages_of_messages(tmp_path / MESSAGES)[lasts[len(lasts) // 4]])
    corrupt_pages(tmp_path / MESSAGES, [page], random.Random(seed), zero)
    async with opened(tmp_path) as log:
        found = len(await take_all(Cursor(log, "away", ["alarm"])))
        assert 0 < found < 100
        assert found + log.counters.messages_dropped["damaged"] == 100


@pytest.mark.usefixtures("often")
async def test_what_waited_for_a_consumer_that_ends_during_a_sweep_has_its_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        endings = Endings(log)
        Cursor(log, "away", ["alarm"])
        await log.submit([Message("alarm", b"")])
        for _ in range(20):
            ends = Cursor(log, "ends", ["a"])
            for _ in range(10):
                await append_all(log, [*numbered(1), *[Message("b", bytes(100)) for _ in range(5)]])
            endings.note(ends)
            ends.drop()
            await append_all(log, [Message("b", bytes(100)) for _ in range(50)])
        await endings.close()
    (count,) = stored(tmp_path, "SELECT sum(messages) FROM dropped WHERE reason = 'ended'")
    assert count == (200,)


class Consumer:
    """What a consumer is to get: by position, what was published for it and is not acknowledged."""

    def __init__(self, name: str, topic_filter: str) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.waiting: dict[int, bytes] = {}
        self.acknowledged: set[int] = set()
        self.identifiers: dict[int, int] = {}

    def wants(self, topic: str) -> bool:
        return self.topic_filter in ("#", topic) or (self.topic_filter == "c/+" and topic.startswith("c/"))


class Play:
    """Consumers that come, take, leave, and a gateway that is killed; held against what each is to get."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder = folder
        self._dice = dice
        self._number = 0
        self._lives = 0
        filters = ("#", "a", "c/+", "rare", "rare")
        self._consumers = [Consumer(f"{number}/{name}", name) for number, name in enumerate(filters)]
        self._cursors: dict[Consumer, Cursor] = {}
        self.log: MessageLog

    async def run(self, steps: int) -> None:
        await self._open(self._folder / "0")
        for _ in range(steps):
            await self._dice.choice([self._publish] * 6 + [self._take] * 4 + [self._leave, self._kill])()
        for consumer in self._consumers:
            # After a kill, acknowledgements whose commit was still due are gone: their messages come again.
            while await self._take_of(consumer, 1.0):
                pass
            assert not consumer.waiting
        await self.log.submit([Message("z", b"")])
        await until(lambda: self.log.space.stored_count <= 2, "nothing is left")
        await self.log.close()

    async def _open(self, folder: Path) -> None:
        self.log = await MessageLog.open(folder, origin="gw")
        self._cursors = {one: Cursor(self.log, one.name, [one.topic_filter]) for one in self._consumers}

    async def _publish(self) -> None:
        parts: list[Part] = []
        for _ in range(self._dice.choice([1, 1, 3])):
            topics = self._dice.choices(TOPICS, weights=[9, 9, 9, 9, 1], k=self._dice.choice([1, 2, 30]))
            texts = [b"%d " % (self._number + n) + b"x" * self._dice.choice([0, 100]) for n in range(len(topics))]
            self._number += len(topics)
            is_run = self._dice.random() < 0.6
            level = self._dice.choice([MQTT_3_1_1, MQTT_5])
            parts += [some_run(topics, texts, level)] if is_run else map(Message, topics, texts)
        for first, part in zip(await self.log.submit(parts), parts, strict=True):
            for position, message in enumerate(part.messages(), first):
                for consumer in self._consumers:
                    if consumer.wants(message.topic):
                        consumer.waiting[position] = message.payload

    async def _take(self) -> None:
        # The first ones keep up, the last ones hardly ever come.
        weights = [9, 9, 9, 2, 1]
        (consumer,) = self._dice.choices(self._consumers, weights)
        await self._take_of(consumer, self._dice.choice([0.5, 1.0, 1.0]))

    async def _take_of(self, consumer: Consumer, share: float) -> int:
        """Takes what waits, acknowledges that share of it, and returns how many messages came."""
        cursor = self._cursors[consumer]
        redeliver_all(cursor)
        deliveries = await cursor.fetch_now(500)
        for delivery in deliveries:
            position = delivery.position
            is_again = position in consumer.acknowledged
            assert is_again or consumer.waiting[position] == delivery.message.payload
            assert all(position <= other for other in consumer.waiting.keys() - consumer.identifiers.keys())
            known = consumer.identifiers.setdefault(position, delivery.packet_identifier)
            assert known == delivery.packet_identifier, "it is the same when it comes again [MQTT-4.4.0-1]"
            if self._dice.random() < share:
                cursor.acknowledge_all([delivery.packet_identifier])
                consumer.waiting.pop(position, None)
                consumer.acknowledged.add(position)
        return len(deliveries)

    async def _leave(self) -> None:
        consumer = self._dice.choice(self._consumers)
        self._cursors[consumer].close()
        await self._publish()
        self._cursors[consumer] = Cursor(self.log, consumer.name, [consumer.topic_filter])

    async def _kill(self) -> None:
        """The gateway goes on with what was committed, in the midst of whatever it does."""
        self._lives += 1
        folder = self._folder / str(self._lives)
        leave_as_killed(self._folder / str(self._lives - 1), folder)
        await self.log.close()
        await self._open(folder)


@pytest.mark.usefixtures("often")
async def test_whatever_is_taken_out_each_consumer_gets_all_that_is_for_it(tmp_path: Path, seed: int) -> None:
    play = Play(tmp_path, random.Random(seed))
    (tmp_path / "0").mkdir()
    await play.run(300)


@pytest.mark.usefixtures("often")
async def test_a_sweep_asks_all_consumers_of_one_message_at_most_before_other_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    away_count, asked = 20, [0]  # in each turn of the event loop
    takes = Cursor.takes

    def counted(cursor: Cursor, position: int, message: Message) -> bool:
        asked[-1] += 1
        return takes(cursor, position, message)

    async def count_turns() -> None:
        while True:
            asked.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(Cursor, "takes", counted)
    async with opened(tmp_path) as log:
        for number in range(away_count):
            Cursor(log, f"away/{number}", ["alarm", f"a/{number}/#"])
        counting = asyncio.create_task(count_turns())
        await log.submit(
            [Message("alarm", b""), some_run([f"a/{number % 40}/x" for number in range(500)], [bytes(20)] * 500)]
        )
        for _ in range(20):
            await append_all(log, [Message("b", bytes(100)) for _ in range(20)])
        await until(lambda: sum(asked) >= 300, "a sweep has asked")
        counting.cancel()
        assert max(asked) <= 4 * away_count
