"""A cursor that hands out runs, beside a plain one that takes the same messages one by one."""

import random
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import (
    HAND_OUT_BYTES_MAX,
    Cursor,
    Delivery,
    DeliveryRun,
    LaneCursor,
    MessageLog,
    Piece,
    PublishBatch,
    RunCursor,
)
from gateway.store.consumers.runs import columns_of
from gateway.subscriptions import Subscription
from tests.gateway.store.support import CountsBacklogs, opened, random_batch
from wire.bulk.property_block import encode_contents
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Publish
from wire.properties import MESSAGE_EXPIRY_INTERVAL

MINE = Subscription("mine/#", qos=2, retain_as_published=True, takes_qos_0=True)
WINDOW = 300
STEPS = 150


def one(dice: random.Random) -> Message:
    topic = dice.choice(("mine/a", "mine/b", "others"))
    return Message(topic, dice.randbytes(9), dice.choice((0, 1, 2)), dice.random() < 0.1)


def singly(pieces: list[Piece]) -> list[Delivery]:
    """What pieces deliver, one by one."""
    found: list[Delivery] = []
    for piece in pieces:
        if isinstance(piece, DeliveryRun):
            found += piece.deliveries()
        else:
            found.append(piece)
    return found


def state_of(cursor: Cursor) -> tuple[object, ...]:
    """Without messages for others behind the deliveries: one cursor has looked at more of them than the other."""
    handed_out = sorted(cursor.flight.positions())
    return handed_out and cursor.position, cursor.count, handed_out, cursor.backlog


class Pair:
    """A cursor that hands out runs and a plain one; both get the same acknowledgements."""

    def __init__(self, log: MessageLog, dice: random.Random, *, is_route: bool) -> None:
        kind = LaneCursor if is_route else RunCursor
        self.runs = kind(log, "route/runs", [MINE], window=WINDOW)
        self.plain = Cursor(log, "route/plain", [MINE], window=WINDOW, always_counts=is_route)
        self.dice = dice
        self.held: list[Piece] = []
        self.seen = 0

    async def count(self, log: MessageLog) -> None:
        """Counts their backlogs, from now on."""
        await log.backlogs.count(self.runs)
        await log.backlogs.count(self.plain)

    async def fetch(self) -> None:
        pieces = list(await self.runs.fetch_pieces(self.dice.randint(1, 60), self.dice.randint(1, 30)))
        self.seen += sum(isinstance(piece, DeliveryRun) for piece in pieces)
        expected: list[Delivery] = []
        while len(expected) < len(singly(pieces)):
            found = await self.plain.fetch_now(len(singly(pieces)) - len(expected))
            assert found
            expected += found
        assert singly(pieces) == expected
        for piece in pieces:
            if isinstance(piece, DeliveryRun):
                check_columns(piece)
        self.held += pieces

    def acknowledge(self) -> None:
        """Acknowledges some pieces, and parts of others."""
        acknowledged: list[Piece] = []
        for piece in list(self.held):
            if self.dice.random() < 0.5:
                self.held.remove(piece)
                if isinstance(piece, DeliveryRun) and len(piece) > 1 and self.dice.random() < 0.3:
                    at = self.dice.randint(1, len(piece) - 1)
                    piece, rest = self.dice.sample((piece.first(at), piece.behind(at)), 2)
                    self.held.append(rest)
                acknowledged.append(piece)
        self.runs.acknowledge_pieces(acknowledged)
        self.plain.acknowledge_all([delivery.packet_identifier for delivery in singly(acknowledged)])

    def acknowledge_by_number(self) -> None:
        """Acknowledges the oldest deliveries one by one, as PUBACKs come; sometimes another one is among them."""
        deliveries = singly(self.held)
        if not deliveries:
            return
        chosen = deliveries[: self.dice.randint(1, len(deliveries))]
        if self.dice.random() < 0.2:
            chosen = self.dice.sample(deliveries, self.dice.randint(1, len(deliveries)))
        numbers = [delivery.packet_identifier for delivery in chosen]
        while numbers:
            count = self.dice.randint(1, len(numbers))
            assert self.runs.acknowledge_all(numbers[:count]) == self.plain.acknowledge_all(numbers[:count])
            del numbers[:count]
        positions = {delivery.position for delivery in chosen}
        self.held = [delivery for delivery in deliveries if delivery.position not in positions]

    def redeliver(self) -> None:
        """The connection ends."""
        self.runs.redeliver_pieces(self.held)
        self.plain.redeliver([delivery.packet_identifier for delivery in singly(self.held)])
        self.held = []


def check_columns(run: DeliveryRun) -> None:
    """The columns of a run have what its messages have."""
    columns, messages = run.columns(), run.messages()
    assert columns.topics == [message.topic.encode() for message in messages]
    assert columns.payloads == [message.payload for message in messages]
    assert columns.blocks == [encode_contents(message.properties) for message in messages]
    if columns.identities:
        assert columns.identities == [(message.origin, message.epoch, message.seq) for message in messages]
    assert run.sizes == columns.sizes == [message.content_size for message in messages]


@pytest.mark.parametrize("is_route", [True, False], ids=["route", "session"])
async def test_runs_are_the_messages_that_a_plain_cursor_hands_out(tmp_path: Path, seed: int, is_route: bool) -> None:
    """Over random stores, acknowledgements of whole runs and of parts, lost connections, evictions and restarts.

    A route's backlog is always counted, and a session's from some moment on.
    """
    dice = random.Random(seed)
    seen = 0
    for _ in range(4):
        async with opened(tmp_path) as log:
            if is_route:
                log.limit_by(CountsBacklogs())
            pair = Pair(log, dice, is_route=is_route)
            if is_route:
                await pair.count(log)
            for _ in range(STEPS):
                match dice.choice(("store", "store", "fetch", "fetch", "fetch", "acknowledge", "lose", "evict")):
                    case "store" if dice.random() < 0.05:
                        await pair.count(log)
                    case "store":
                        others = ("mine/a", "others") if dice.random() < 0.2 else ("mine/a", "mine/ä")
                        parts = [random_batch(dice, dice.randint(1, 90), others, expires=dice.random() < 0.2)]
                        parts += [one(dice) for _ in range(dice.randint(0, 3))]  # type: ignore[misc]
                        await log.submit(dice.sample(parts, len(parts)))
                    case "fetch":
                        await pair.fetch()
                    case "acknowledge" if dice.random() < 0.5:
                        pair.acknowledge()
                    case "acknowledge":
                        pair.acknowledge_by_number()
                    case "lose" if dice.random() < 0.3:
                        pair.redeliver()
                    case "evict" if dice.random() < 0.2:
                        await log.eviction.evict(dice.randint(1, 40), 0)
                assert state_of(pair.runs) == state_of(pair.plain)
            seen += pair.seen
    assert seen > 20


async def test_a_message_that_may_expire_is_in_no_run(tmp_path: Path, seed: int) -> None:
    async with opened(tmp_path) as log:
        cursor = LaneCursor(log, "route/runs", [MINE])
        packets = [
            Publish("mine/a", b"x", 1, packet_identifier=1, properties={MESSAGE_EXPIRY_INTERVAL: 10}).encode(MQTT_5)
        ] * 20
        await log.submit([PublishBatch(b"".join(packets), {"mine/a": None}, 20, MQTT_5, "c", 1, "gw")])
        assert all(isinstance(piece, Delivery) for piece in await cursor.fetch_pieces(100, 100))


async def test_what_a_route_drops_is_in_no_run(tmp_path: Path, seed: int) -> None:
    async with opened(tmp_path) as log:
        cursor = LaneCursor(log, "route/runs", [MINE])
        cursor.reason_to_drop = lambda message: "expired" if message.payload == b"5" else None
        packets = [Publish("mine/a", b"%d" % number, 1, packet_identifier=1) for number in range(20)]
        data = b"".join(packet.encode(MQTT_3_1_1) for packet in packets)
        await log.submit([PublishBatch(data, {"mine/a": None}, 20, MQTT_3_1_1, "c", 1, "gw")])
        found = singly(list(await cursor.fetch_pieces(100, 100)))
        assert [int(delivery.message.payload) for delivery in found] == [n for n in range(20) if n != 5]
        assert log.counters.messages_dropped["expired"] == 1


async def test_a_backlog_of_a_former_process_leaves_in_runs_too(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    async with opened(tmp_path) as log:
        LaneCursor(log, "route/runs", [MINE])
        for _ in range(50):
            await log.submit([random_batch(dice, 100)])
    async with opened(tmp_path) as log:
        cursor = LaneCursor(log, "route/runs", [MINE])
        await log.backlogs.count(cursor)
        found: list[Piece] = []
        while pieces := await cursor.fetch_pieces(1000, 100):
            found += pieces
            cursor.acknowledge_pieces(pieces)
        assert all(isinstance(piece, DeliveryRun) for piece in found)
        assert sum(len(piece) for piece in found) == 5000
        assert (cursor.position, cursor.backlog and cursor.backlog.messages) == (5000, 0)


async def test_the_runs_of_one_fetch_fit_the_memory_of_one_hand_out(tmp_path: Path) -> None:
    """The rest comes with the next fetches, and a route may take all of it at once."""
    size, count = HAND_OUT_BYTES_MAX // 10 + 1, 25
    data = b"".join(Publish("mine/a", bytes(size), 1, packet_identifier=3).encode(MQTT_3_1_1) for _ in range(count))
    async with opened(tmp_path) as log:
        session, route = RunCursor(log, "session/s", [MINE]), LaneCursor(log, "route/r", [MINE])
        for _ in range(2):
            await log.submit([PublishBatch(data, {"mine/a": None}, count, MQTT_3_1_1, "c", 1, "gw")])
        fetched = [singly(list(await session.fetch_pieces(100, 100))) for _ in range(6)]
        assert [len(deliveries) for deliveries in fetched] == [9, 9, 7, 9, 9, 7]
        assert [piece.last - piece.position + 1 for piece in await route.fetch_pieces(100, 100)] == [count, count]


def test_the_columns_of_a_batch_are_read_once_for_all_of_its_runs() -> None:
    publishes = random_batch(random.Random(1), 20)
    assert columns_of(publishes) is columns_of(publishes)
