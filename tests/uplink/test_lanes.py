"""A route with order = "live_first": fresh messages go first, and the backfill goes behind them in its own order."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from gateway.message import Message
from gateway.store import Endings, MessageLog
from tests.gateway.store.support import stored
from tests.house.repository import ROOT
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.support.subscriber import subscriber
from tests.uplink.support import append, backlog_is, get, note_session, opened, route_config, running, serving, until
from tests.uplink.test_carry import everything, imports
from tests.uplink.test_framing import fill, numbers_in
from tests.uplink.test_reload import steered
from tests.uplink.test_shape import SELECTED
from tests.uplink.test_shape import fill as fill_json
from tools.lab.testing.mosquitto import mosquitto
from uplink.config.route import RouteConfig
from uplink.outlet.pace import BOUND_FIRST, BackfillPace
from uplink.route import Route
from uplink.shape import ShapeConfig
from wire.bulk.column_batch import decode_batch
from wire.codec.packets import Publish
from wire.reasons import QUOTA_EXCEEDED

BACKLOG = 300
LIMITS: dict[str, dict[str, int]] = {"publish": {}, "batch": {"batch_max_messages": 10, "batch_max_age_ms": 100}}


def live_first(port: int, **keys: object) -> RouteConfig:
    return route_config(port, **{"order": "live_first", **keys})


async def left_behind(folder: Path, count: int = BACKLOG, qos: int = 1, **keys: object) -> None:
    """Stores messages for a route in a former life of the gateway."""
    async with opened(folder) as log:
        Route(route_config(1, **keys), "gateway-1", log)
        await fill(log, range(1, count + 1), qos)


def numbers(broker: ScriptedBroker) -> list[int]:
    return [int(publish.payload) for publishes in broker.publishes for publish in publishes]


def lanes_in(found: Iterable[int], backlog: int = BACKLOG) -> tuple[list[int], list[int]]:
    """The live messages, and the messages of the backfill, in the order in which they came."""
    found = list(found)
    return [one for one in found if one > backlog], [one for one in found if one <= backlog]


@pytest.mark.parametrize("qos", [1, 2])
async def test_fresh_messages_arrive_before_the_backfill_ends_and_each_lane_arrives_in_order(
    tmp_path: Path, qos: int
) -> None:
    await left_behind(tmp_path, qos=qos)
    async with scripted_broker() as broker, opened(tmp_path) as log:
        async with running(log, live_first(broker.port, backfill_rate=400)):
            await until(lambda: len(numbers(broker)) > 10)
            await fill(log, range(BACKLOG + 1, BACKLOG + 21), qos)
            await until(lambda: log.space.needed_from == BACKLOG + 20)
        found = numbers(broker)
        assert lanes_in(found) == ([*range(BACKLOG + 1, BACKLOG + 21)], [*range(1, BACKLOG + 1)])
        assert found.index(BACKLOG + 20) < found.index(BACKLOG)


@pytest.mark.parametrize("most", [1, 2, 3, 20])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_broker_that_takes_few_messages_at_once_gets_fresh_ones_before_the_backfill_ends(
    tmp_path: Path, qos: int, most: int
) -> None:
    await left_behind(tmp_path, qos=qos)
    async with scripted_broker(receive_maximum=most) as broker, opened(tmp_path) as log:
        async with running(log, live_first(broker.port)):
            await until(lambda: len(numbers(broker)) > 10)
            await fill(log, range(BACKLOG + 1, BACKLOG + 21), qos)
            await until(lambda: log.space.needed_from == BACKLOG + 20)
        found = numbers(broker)
        assert lanes_in(found) == ([*range(BACKLOG + 1, BACKLOG + 21)], [*range(1, BACKLOG + 1)])


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_full_window_of_backfill_leaves_room_for_a_fresh_message(tmp_path: Path, qos: int) -> None:
    await left_behind(tmp_path, qos=qos)
    async with (
        scripted_broker(receive_maximum=20, puback=silent) as broker,
        opened(tmp_path) as log,
        running(log, live_first(broker.port)),
    ):
        await until(lambda: len(numbers(broker)) == 15)
        await fill(log, range(BACKLOG + 1, BACKLOG + 4), qos)
        await until(lambda: lanes_in(numbers(broker))[0] == [*range(BACKLOG + 1, BACKLOG + 4)])
        assert len(numbers(broker)) == 18


@pytest.mark.parametrize("qos", [1, 2])
async def test_both_lanes_wait_and_go_again_in_order_where_the_broker_says_quota_exceeded(
    tmp_path: Path, qos: int
) -> None:
    taken: list[int] = []
    refused: set[int] = set()

    def answer(publish: Publish) -> int:
        number = int(publish.payload)
        if number % 50 == 0 and number not in refused:
            refused.add(number)
            return QUOTA_EXCEEDED
        taken.append(number)
        return 0

    await left_behind(tmp_path, qos=qos)
    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        async with running(log, live_first(broker.port)):
            await fill(log, range(BACKLOG + 1, BACKLOG + 21), qos)
            await until(lambda: log.space.needed_from == BACKLOG + 20)
        assert sorted(taken) == [*range(1, BACKLOG + 21)]
        assert len(broker.connects) == 1


async def test_what_is_not_acknowledged_goes_again_under_its_identifier_after_a_loss(tmp_path: Path) -> None:
    await left_behind(tmp_path, 30)
    async with scripted_broker(puback=silent, session_present=True) as broker, opened(tmp_path) as log:
        route = Route(live_first(broker.port), "gateway-1", log)
        await note_session(log, route, broker.port)
        async with serving(route):
            await until(lambda: len(numbers(broker)) == 30)
            await fill(log, range(31, 41))
            await until(lambda: len(numbers(broker)) == 40)
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 40)
        first, again = ({int(one.payload): one for one in publishes} for publishes in broker.publishes)
        assert first.keys() == again.keys()
        assert len({one.packet_identifier for one in first.values()}) == 40
        assert all(again[one].packet_identifier == first[one].packet_identifier and again[one].dup for one in first)
        assert lanes_in([int(one.payload) for one in broker.publishes[1]], 30) == ([*range(31, 41)], [*range(1, 31)])


async def test_batches_of_fresh_messages_do_not_wait_for_the_backfill_and_no_batch_has_both(tmp_path: Path) -> None:
    await left_behind(tmp_path, 2000)
    keys = {"framing": "batch", "batch_max_messages": 10, "batch_max_age_ms": 50, "backfill_rate": 1000}
    async with scripted_broker() as broker, opened(tmp_path) as log:
        async with running(log, live_first(broker.port, **keys)):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) > 2)
            await fill(log, range(2001, 2026))
            await until(lambda: log.space.needed_from == 2025)
        batches = [numbers_in(publish) for publish in broker.publishes[0]]
    assert all((batch[0] > 2000) == (batch[-1] > 2000) for batch in batches)
    assert lanes_in([number for batch in batches for number in batch], 2000) == (
        [*range(2001, 2026)],
        [*range(1, 2001)],
    )
    assert [number for batch in batches for number in batch].index(2025) < 2000


@pytest.mark.parametrize("framing", ["publish", "batch"])
async def test_at_qos_2_each_message_of_both_lanes_arrives_once_over_kills(
    tmp_path: Path, framing: str, seed: int
) -> None:
    count, fresh = 1500, 20
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        await left_behind(tmp_path, count, 2)
        found: list[int] = []
        wanted = set(range(1, count + 1))

        async def take() -> None:
            message = await get(received)
            found.extend(_numbers_of(message.topic, bytes(message.payload)))

        for life in range(3):
            argv = [sys.executable, "-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port)]
            keys = {"order": "live_first", "backfill_rate": 1000, "framing": framing, **LIMITS[framing]}
            encoded = msgspec.json.encode(keys).decode()
            process = await asyncio.create_subprocess_exec(*argv, encoded, str(life), cwd=ROOT)
            its_own = set(range(100_000 + life * fresh, 100_000 + (life + 1) * fresh))
            wanted |= its_own
            while not its_own <= set(found):
                await take()
            if life < 2:
                process.kill()
                await process.wait()
                while not received.empty():
                    await take()
        while not wanted <= set(found):
            await take()
        process.kill()
        await process.wait()
        assert sorted(found) == sorted(wanted)


def _numbers_of(topic: str, payload: bytes) -> list[int]:
    if not topic.startswith("holdfast/batch"):
        return [int(payload)]
    return [int(one.payload) for one in decode_batch(payload).messages()]


async def test_a_route_that_goes_over_to_live_first_and_back_loses_nothing_and_ends_in_order(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        strict = route_config(broker.port, inflight_window=5)
        async with steered(log, strict) as routes:
            await append(log, range(1, 51))
            await until(lambda: len(numbers(broker)) == 5)
            routes.reload([live_first(broker.port, inflight_window=5, backfill_rate=1)])
            await until(lambda: len(broker.connects) == 2)
            await until(lambda: routes.status()[0].backfill_messages == 45)
            await append(log, range(51, 61))
            broker.puback = lambda _: 0
            routes.reload([msgspec.structs.replace(strict, keep_alive_s=99)])
            await until(lambda: len(broker.connects) == 3 and log.space.needed_from == 60)
            await until(lambda: routes.status()[0].backlog_messages == 0)
        last = [int(publish.payload) for publish in broker.publishes[2]]
        assert lanes_in(last, 50)[0][-1] == 60 and {*last} >= {*range(6, 61)}
    async with opened(tmp_path) as log, running(log, strict):
        assert log.consumers.names() == ["route/central"]


async def test_batches_of_both_lanes_in_flight_while_the_route_changes_go_to_the_next_broker(tmp_path: Path) -> None:
    keys = {"framing": "batch", "batch_max_age_ms": 50}
    await left_behind(tmp_path, 20)
    async with (
        scripted_broker(puback=silent) as old,
        scripted_broker() as new,
        opened(tmp_path) as log,
        steered(log, live_first(old.port, batch_max_messages=5, **keys)) as routes,
    ):
        await until(lambda: bool(old.publishes and old.publishes[0]))
        await fill(log, range(21, 26))
        await until(lambda: any(25 in numbers_in(publish) for publish in old.publishes[0]))
        routes.reload([live_first(new.port, batch_max_messages=7, **keys)])
        await until(lambda: log.space.needed_from == 25)
    found = [number for publishes in new.publishes for publish in publishes for number in numbers_in(publish)]
    assert lanes_in(found, 20) == ([*range(21, 26)], [*range(1, 21)])


async def test_beyond_the_limits_of_the_route_the_oldest_of_the_backfill_are_dropped(tmp_path: Path) -> None:
    await left_behind(tmp_path, 20)
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = Route(live_first(broker.port, max_messages=15, inflight_window=4), "gateway-1", log)
        async with serving(route):
            await until(lambda: len(numbers(broker)) == 3)
            await fill(log, range(21, 25))
            await backlog_is(route, 15)
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 24)
        again = [int(publish.payload) for publish in broker.publishes[1]]
    assert sorted(again) == [1, 2, 3, *range(13, 25)]
    assert stored(tmp_path / "store", "SELECT reason, consumer, sum(messages) FROM dropped GROUP BY 1, 2") == [
        ("evicted", "route/central", 9)
    ]


async def test_status_shows_both_lanes(tmp_path: Path) -> None:
    await left_behind(tmp_path, 20)
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = Route(live_first(broker.port, backfill_rate=1), "gateway-1", log)
        async with serving(route):
            await until(lambda: bool(numbers(broker)))
            await fill(log, range(21, 26))
            await until(lambda: len(lanes_in(numbers(broker), 20)[0]) == 5)
            await backlog_is(route, 25)
            status = route.queue.status()
            assert (status.order, status.live_messages, status.backfill_messages) == ("live_first", 5, 20)
            assert (route.queue.state.live_messages, route.queue.state.backfill_messages) == (5, 20)


async def test_what_came_down_over_a_route_goes_up_in_neither_lane(tmp_path: Path) -> None:
    keys = {"direction": "both", "subscribe": ("commands/#",)}

    async def fill_both_ways(log: MessageLog, route: Route, numbers: range) -> None:
        below = route.queue.publisher.client_id
        await log.submit([Message("a", b"%d" % one, 1, publisher="" if one % 2 else below) for one in numbers])

    async with opened(tmp_path) as log:
        await fill_both_ways(log, Route(route_config(1, **keys), "gateway-1", log), range(1, 22))
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(live_first(broker.port, **keys), "gateway-1", log)
        async with serving(route):
            await until(lambda: bool(numbers(broker)))
            await fill_both_ways(log, route, range(22, 42))
            await until(lambda: log.space.needed_from == 41)
    assert lanes_in(numbers(broker), 21) == ([*range(23, 42, 2)], [*range(1, 22, 2)])


async def test_the_rules_of_a_route_shape_both_lanes_and_leave_out_each_message_once(tmp_path: Path) -> None:
    rules = [ShapeConfig("telemetry/#", topic="plant/{2-}", where="json.third")]
    async with opened(tmp_path) as log:
        Route(route_config(1, shape=rules), "gateway-1", log)
        await fill_json(log, range(1, 31))
    async with (
        scripted_broker() as broker,
        opened(tmp_path) as log,
        running(log, live_first(broker.port, shape=rules)),
    ):
        await until(lambda: bool(broker.publishes and broker.publishes[0]))
        await fill_json(log, range(31, 61))
        await until(lambda: log.space.needed_from == 60)
    found = [json.loads(publish.payload)["number"] for publish in broker.publishes[0]]
    assert lanes_in(found, 30) == ([*range(33, 61, 3)], [*range(3, 31, 3)])
    assert {publish.topic for publish in broker.publishes[0]} == {"plant/a"}
    assert stored(tmp_path / "store", SELECTED) == [(40,)]


async def test_the_backlog_of_both_lanes_is_carried_to_another_gateway_and_no_longer_waits(tmp_path: Path) -> None:
    await left_behind(tmp_path, 20)
    path = tmp_path / "backlog"
    async with (
        scripted_broker(puback=silent) as broker,
        opened(tmp_path) as log,
        steered(log, live_first(broker.port, inflight_window=4)) as routes,
    ):
        await until(lambda: bool(numbers(broker)))
        await fill(log, range(21, 26))
        assert await routes.export("central", path) == 25
        waiting = routes.status()[0]
        assert (waiting.live_messages, waiting.backfill_messages) == (0, 0)
        broker.puback = lambda _: 0
        sent = len(numbers(broker))
        await fill(log, range(26, 27))
        await until(lambda: log.space.needed_from == 26)
        assert numbers(broker)[sent:] == [26]
    async with opened(tmp_path / "to") as log, steered(log, route_config(1)):
        assert await imports(log).import_file(path) == 25
        assert sorted(int(message.payload) for message in await everything(log)) == [*range(1, 26)]


async def test_a_route_that_is_forgotten_leaves_a_range_for_each_message_of_both_lanes(tmp_path: Path) -> None:
    await left_behind(tmp_path, 20)
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        async with steered(log, live_first(broker.port, inflight_window=4)) as routes:
            await until(lambda: bool(numbers(broker)))
            await fill(log, range(21, 26))
            await until(lambda: len(numbers(broker)) >= 4)
            routes.reload([])
            await until(lambda: routes.status()[0].problem == "it is no longer configured")
            assert await routes.forget("central") == 25
        await log.submit([])
        assert log.consumers.names() == []
    assert stored(tmp_path / "store", "SELECT reason, sum(messages) FROM dropped GROUP BY 1") == [("ended", 25)]


async def test_messages_that_no_filter_matches_any_more_leave_both_lanes(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Route(route_config(1), "gateway-1", log)
        await append(log, range(1, 6), "keep")
        await append(log, range(6, 9), "leave")
    async with scripted_broker() as broker, opened(tmp_path) as log:
        endings = Endings(log)
        route = Route(live_first(broker.port, filters=("keep",)), "gateway-1", log)
        assert route.queue.lanes.keeper is not None
        await route.queue.lanes.keeper.look(is_connected=True)
        route.queue.change_filters(("keep",), endings)
        async with serving(route):
            await append(log, range(9, 11), "keep")
            await until(lambda: len(numbers(broker)) == 7)
        await endings.close()
    assert stored(tmp_path / "store", "SELECT reason, sum(messages) FROM dropped GROUP BY 1") == [("ended", 3)]


async def test_after_the_row_of_a_route_is_lost_nothing_of_its_backfill_is(tmp_path: Path) -> None:
    await left_behind(tmp_path, 20)
    async with (
        scripted_broker(puback=silent) as broker,
        opened(tmp_path) as log,
        running(log, live_first(broker.port, inflight_window=3)),
    ):
        await until(lambda: len(numbers(broker)) == 2)
    with sqlite3.connect(tmp_path / "store" / "messages.sqlite") as connection:
        connection.execute("DELETE FROM route")
    connection.close()
    async with scripted_broker() as broker, opened(tmp_path) as log, running(log, live_first(broker.port)):
        await until(lambda: log.space.needed_from == 20)
    assert numbers(broker) == [*range(1, 21)]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Line:
    """A broker that takes a number of messages at once, and acknowledges all of them after a while."""

    def __init__(self, pace: BackfillPace, clock: Clock, most: int = 1000) -> None:
        self.pace, self.clock, self.most, self.in_flight = pace, clock, most, 0
        pace.begin(lambda: most - self.in_flight, most)

    def turn(self, took_s: float) -> int:
        """Sends what the pace allows; returns how much that was, once it is acknowledged."""
        count = self.pace.allowed(1000, is_idle=True)
        self.pace.note_backfill(count, count)
        self.in_flight += count
        self.clock.now_s += took_s
        self.in_flight -= count
        self.pace.note_acknowledged(count)
        return count


def test_the_backfill_in_flight_doubles_while_the_broker_is_quick_and_halves_when_it_is_slow() -> None:
    clock = Clock()
    line = Line(BackfillPace(20, None, 1000, clock), clock)
    assert [line.turn(0.01) for _ in range(4)] == [BOUND_FIRST, 2 * BOUND_FIRST, 750, 750]
    assert [line.turn(0.5) for _ in range(4)] == [750, 375, 187, 93]
    assert line.turn(0.01) == 46
    assert 46 < line.turn(0.01) < 60
    for _ in range(20):
        line.turn(0.5)
    assert line.turn(0.5) == 1, "never less"


def test_a_line_that_is_always_slow_is_not_taken_for_a_broker_that_is() -> None:
    clock = Clock()
    line = Line(BackfillPace(20, None, 1000, clock), clock)
    assert [line.turn(1.5) for _ in range(3)] == [BOUND_FIRST, 2 * BOUND_FIRST, 750]


def test_the_rate_bounds_the_backfill() -> None:
    clock = Clock()
    line = Line(BackfillPace(20, 100, 1000, clock), clock)
    assert sum(line.turn(0.05) for _ in range(200)) in range(990, 1012)


@pytest.mark.parametrize("weight", [0, 20, 50, 90])
def test_while_live_messages_wait_the_backfill_has_its_share(weight: int) -> None:
    pace = BackfillPace(weight, None, 1000)
    pace.begin(lambda: 500, 1000)
    live = backfill = 0
    while live + backfill < 100_000:
        if pace.is_due and (count := pace.allowed(250, is_idle=False)):
            pace.note_backfill(count, count)
            backfill += count
        else:
            pace.note_live(10)
            live += 10
    assert abs(backfill / (live + backfill) - weight / 100) < 0.01
