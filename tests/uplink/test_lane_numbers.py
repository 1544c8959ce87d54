"""Route numbers of a route that sends fresh messages first: each lane has its own, and statements of them."""

import asyncio
import random
import sys
from pathlib import Path

import msgspec
import pytest

from gateway.store import MessageLog
from tests.house.repository import ROOT
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.support.subscriber import subscriber
from tests.uplink.link_receiver import Receiver, received_from
from tests.uplink.support import append, get, opened, route_config, running, until
from tests.uplink.test_reload import steered
from tools.lab.testing.mosquitto import mosquitto
from uplink.config.route import RouteConfig
from uplink.route import Route
from uplink.routes import Routes
from wire.codec.packets import Publish
from wire.reasons import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED
from wire.route_numbers import STATEMENT_TOPICS

BACKLOG = 60
STATING = 3600  # seconds: a statement at each connection, and none between
LIMITS: dict[str, dict[str, int]] = {"publish": {}, "batch": {"batch_max_messages": 10, "batch_max_age_ms": 50}}


def live_first(port: int, **keys: object) -> RouteConfig:
    return route_config(port, **{"order": "live_first", **keys})


async def left_behind(folder: Path, **keys: object) -> None:
    """Stores messages for a route in a former life of the gateway."""
    async with opened(folder) as log:
        Route(route_config(1, **keys), "gateway-1", log)
        await append(log, range(1, BACKLOG + 1))


def received_by(broker: ScriptedBroker) -> Receiver:
    return received_from(broker.publishes)


def came(broker: ScriptedBroker) -> set[int]:
    """The numbers that are the payloads of what came."""
    return {int(payload) for payload in received_by(broker).payloads}


async def drop(broker: ScriptedBroker) -> None:
    connections = len(broker.connects)
    broker.drop_clients()
    await until(lambda: len(broker.connects) > connections)


@pytest.mark.parametrize("framing", ["publish", "batch"])
async def test_each_lane_numbers_its_messages_without_holes_under_an_epoch_of_its_own(
    tmp_path: Path, framing: str
) -> None:
    await left_behind(tmp_path)
    async with (
        scripted_broker() as broker,
        opened(tmp_path) as log,
        running(log, live_first(broker.port, framing=framing, **LIMITS[framing])),
    ):
        await until(lambda: bool(broker.publishes and broker.publishes[0]))
        await append(log, range(BACKLOG + 1, BACKLOG + 21))
        await until(lambda: log.space.needed_from == BACKLOG + 20)
    lanes = [{seq for _, _, seq in numbers.values()} for numbers in received_by(broker).numbers.values()]
    assert lanes == [{*range(1, BACKLOG + 1)}, {*range(BACKLOG + 1, BACKLOG + 21)}]
    assert received_by(broker).epochs == [{*range(1, BACKLOG + 1)}, {*range(1, 21)}]


@pytest.mark.parametrize("framing", ["publish", "batch"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_of_either_lane_that_goes_again_over_another_connection_has_the_same_number(
    tmp_path: Path, qos: int, framing: str
) -> None:
    await left_behind(tmp_path)
    async with (
        scripted_broker(puback=silent) as broker,
        opened(tmp_path) as log,
        running(log, live_first(broker.port, framing=framing, **LIMITS[framing])),
    ):
        await until(lambda: bool(broker.publishes) and len(came(broker)) == BACKLOG)
        await append(log, range(BACKLOG + 1, BACKLOG + 21))
        await until(lambda: len(came(broker)) == BACKLOG + 20)
        broker.puback = lambda _: 0
        await drop(broker)
        await until(lambda: log.space.needed_from == BACKLOG + 20)
    assert sorted(map(len, received_by(broker).epochs)) == [20, BACKLOG]


@pytest.mark.parametrize("framing", ["publish", "batch"])
async def test_statements_of_both_lanes_cover_all_messages_and_say_when_the_backfill_is_over(
    tmp_path: Path, framing: str
) -> None:
    keys = {"statement_interval_s": 1, "framing": framing, **LIMITS[framing]}
    await left_behind(tmp_path, **keys)
    async with (
        scripted_broker() as broker,
        opened(tmp_path) as log,
        running(log, live_first(broker.port, backfill_rate=30, **keys)),
    ):
        await until(lambda: bool(broker.publishes and broker.publishes[0]))
        await append(log, range(BACKLOG + 1, BACKLOG + 21))
        await until(lambda: len({one for one in received_by(broker).covered() if one[0] == "a"}) == BACKLOG + 20)
    receiver = received_by(broker)
    assert receiver.lost() == []
    assert len({one.epoch for one in receiver.statements.values()}) == 2
    flags = [receiver.statements[one].backfill for one in sorted(receiver.statements)]
    assert flags[0] and not flags[-1]


@pytest.mark.parametrize("framing", ["publish", "batch"])
@pytest.mark.parametrize("order", ["strict", "live_first"])
async def test_what_went_live_before_a_restart_and_goes_again_as_backfill_is_not_taken_for_lost(
    tmp_path: Path, framing: str, order: str
) -> None:
    keys = {"statement_interval_s": STATING, "framing": framing, **LIMITS[framing]}
    async with scripted_broker() as broker:
        async with opened(tmp_path) as log, running(log, route_config(broker.port, order=order, **keys)):
            await until(lambda: len(broker.connects) == 1)
            await append(log, range(1, 11))
            await until(lambda: log.space.needed_from >= 10)
            broker.puback = silent
            await append(log, range(11, 31))
            await until(lambda: len(came(broker)) == 30)
            await drop(broker)
            await until(lambda: sum(map(len, broker.publishes)) > 0 and len(broker.publishes) == 2)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log, running(log, live_first(broker.port, **keys)):
            await append(log, range(31, 41))
            await until(lambda: log.space.needed_from == log.head >= 40)
            await drop(broker)
            await until(lambda: {("a", 7, seq) for seq in range(11, 41)} <= received_by(broker).covered())
    assert received_by(broker).lost() == []


@pytest.mark.parametrize("framing", ["publish", "batch"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_over_kills_no_number_has_two_messages_and_no_statement_tells_of_others_than_came(
    tmp_path: Path, framing: str, qos: int, seed: int
) -> None:
    dice = random.Random(seed)
    keys = {"order": "live_first", "backfill_rate": 500, "statement_interval_s": 1, "framing": framing}
    encoded = msgspec.json.encode({**keys, **LIMITS[framing]}).decode()
    receiver, wanted = Receiver(), set(range(1, 1001))
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log:
            Route(route_config(port), "gateway-1", log)
            await append(log, range(1, 1001))
        for life in range(3):
            its_own = set(range(100_000 + life * 20, 100_000 + (life + 1) * 20))
            wanted |= its_own
            command = [sys.executable, "-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port)]
            process = await asyncio.create_subprocess_exec(*command, encoded, str(life), str(qos), cwd=ROOT)
            goal = min(len(wanted), len({*receiver.payloads}) + dice.randrange(100, 300))
            while not its_own <= {*map(int, receiver.payloads)} or len({*receiver.payloads}) < goal:
                receiver.take_from_paho(await get(received))
            if life < 2:
                process.kill()
                await process.wait()
        while not wanted <= {*map(int, receiver.payloads)} or receiver.newest.backfill:
            receiver.take_from_paho(await get(received))
        process.kill()
        await process.wait()
    assert receiver.lost() == []
    assert {("a", 7, seq) for seq in range(1, 1001)} <= receiver.covered()


@pytest.mark.parametrize("code", [NOT_AUTHORIZED, NO_MATCHING_SUBSCRIBERS])
@pytest.mark.parametrize("change", [{"order": "live_first"}, {"statement_interval_s": 0}])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_statements_that_wait_while_the_route_changes_hold_up_no_message_where_the_broker_refuses_them(
    tmp_path: Path, code: int, change: dict[str, object], is_restarted: bool
) -> None:
    def answer(publish: Publish) -> int:
        return code if publish.topic.startswith(STATEMENT_TOPICS) else 0

    def keep_statements(publish: Publish) -> int | None:
        return None if publish.topic.startswith(STATEMENT_TOPICS) else 0

    def is_through(routes: Routes, log: MessageLog) -> bool:
        return all(cursor.position == log.head for cursor in routes.queues()[0].lanes.cursors)

    async with scripted_broker(puback=keep_statements) as broker:
        keys = {"statement_interval_s": STATING, "needs_subscriber": True}
        before, after = route_config(broker.port, **keys), route_config(broker.port, **{**keys, **change})
        async with opened(tmp_path) as log, steered(log, before) as routes:
            await append(log, range(1, 3))
            await until(lambda: log.space.needed_from >= 2)
            await drop(broker)
            await until(lambda: bool(received_by(broker).statements))
            if not is_restarted:
                broker.puback = answer
                routes.reload([after])
                await until(lambda: len(broker.connects) == 3 and is_through(routes, log))
        broker.puback = answer
        async with opened(tmp_path) as log, steered(log, after) as routes:
            await append(log, range(3, 5))
            await until(lambda: is_through(routes, log))
            assert not routes.status()[0].stands
            aside = await routes.refused()  # statements, which are to go again
            assert all(one.topic.startswith(STATEMENT_TOPICS) for one in aside)
            assert code == NOT_AUTHORIZED or not aside
