"""When a route may be connected: windows by cron, and the bytes of a day."""

import logging
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.support import append, opened, route_config, running, serving, until
from uplink.config.route import RouteConfig
from uplink.config.schedule import Schedule, check_window
from uplink.connect import connector
from uplink.connect.notes import RouteNotes
from uplink.route import Route

NIGHT = ("* 1-4 * * *",)
SIZE = 1000  # bytes of a payload
BUDGET = 3 * SIZE


class Clock:
    """Stands for the machine's clock."""

    def __init__(self, text: str) -> None:
        self.time = datetime.fromisoformat(text)

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands at half past midnight, and a route that looks at it often."""
    clock = Clock("2026-11-23 00:30:30")
    monkeypatch.setattr(connector, "datetime", clock)
    monkeypatch.setattr(connector, "TICK_S", 0.01)
    return clock


def to(broker: ScriptedBroker, **keys: object) -> RouteConfig:
    return route_config(broker.port, **keys)


def payloads(broker: ScriptedBroker) -> int:
    """How many different messages have come."""
    return len({bytes(publish.payload) for publishes in broker.publishes for publish in publishes})


async def append_large(log: MessageLog, *numbers: int) -> None:
    for number in numbers:
        await log.submit([Message("a", (b"%d" % number).ljust(SIZE))])


async def test_a_route_is_connected_while_a_window_is_open_and_only_then(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with scripted_broker() as broker, opened(tmp_path) as log, running(log, to(broker, windows=NIGHT)):
        await append(log, range(1, 2))
        await until(lambda: "no window is open before 2026-11-23 01:00; storing meanwhile" in caplog.text)
        assert broker.connects == []
        clock.time += timedelta(minutes=30)
        await until(lambda: payloads(broker) == 1)
        clock.time += timedelta(hours=4)
        await until(lambda: len(broker.disconnects) == 1)
        await append(log, range(2, 3))
        clock.time += timedelta(hours=20)
        await until(lambda: payloads(broker) == 2)
    assert len(broker.connects) == 2


async def test_while_a_route_waits_its_status_says_for_what(tmp_path: Path, clock: Clock) -> None:
    async with scripted_broker() as broker:
        config = to(broker, windows=NIGHT, bytes_per_day=BUDGET)
        async with opened(tmp_path) as log:
            route = Route(config, "gateway-1", log)
            async with serving(route):
                await until(lambda: route.problem == "no window is open before 2026-11-23 01:00")
                assert route.waits_for == route.problem
                clock.time += timedelta(minutes=30)
                await append_large(log, 1, 2, 3)
                await until(lambda: route.problem == "the bytes of the day are spent")
        async with opened(tmp_path) as log:
            route = Route(config, "gateway-1", log)
            async with serving(route):
                await until(lambda: route.problem == "the bytes of the day are spent")


async def test_a_route_whose_bytes_of_the_day_are_spent_goes_on_the_next_day(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with scripted_broker() as broker:
        config = to(broker, bytes_per_day=BUDGET)
        async with opened(tmp_path) as log, running(log, config):
            await append_large(log, 1, 2, 3)
            await until(lambda: "the bytes of the day are spent; storing meanwhile" in caplog.text)
            connects = len(broker.connects)
            await append_large(log, 4)
        caplog.clear()
        async with opened(tmp_path) as log, running(log, config):  # a restart gives no new bytes
            await until(lambda: "the bytes of the day are spent; storing meanwhile" in caplog.text)
            assert (len(broker.connects), payloads(broker)) == (connects, 3)
            clock.time += timedelta(days=1)
            await until(lambda: payloads(broker) == 4)


async def test_a_full_disk_on_which_the_bytes_of_the_day_cannot_be_noted_keeps_no_backlog_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages' own file still has room that it has taken before."""

    async def fail(_: RouteNotes) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with (
        scripted_broker() as broker,
        opened(tmp_path) as log,
        running(log, to(broker, bytes_per_day=10**9)),
    ):
        await append_large(log, 1)
        await until(lambda: payloads(broker) == 1)
        monkeypatch.setattr(RouteNotes, "save", fail)
        broker.drop_clients()
        await append_large(log, 2)
        await until(lambda: payloads(broker) == 2)


async def test_a_route_that_goes_on_says_once_that_its_bytes_are_spent(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"bytes_per_day": BUDGET, "when_spent": "go_on"}
    async with scripted_broker() as broker, opened(tmp_path) as log, running(log, to(broker, **keys)):
        await append_large(log, 1, 2, 3)
        await until(lambda: "bytes of the day are spent, and it goes on" in caplog.text)
        await append_large(log, 4, 5, 6)
        await until(lambda: payloads(broker) == 6)
    assert (len(broker.connects), caplog.text.count("and it goes on")) == (1, 1)


async def test_connections_that_the_broker_refuses_cost_bytes_too(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        scripted_broker(mqtt_5_refusal=b"\x20\3\0\x88\0") as broker,
        opened(tmp_path) as log,
        running(log, to(broker, bytes_per_day=200)),
    ):
        await until(lambda: "the bytes of the day are spent; storing meanwhile" in caplog.text)
    assert 2 <= broker.refused <= 4


@pytest.mark.parametrize(
    ("expressions", "moment", "is_open"),
    [
        ((), "2026-11-23 12:00:00", True),
        (NIGHT, "2026-11-23 00:59:59", False),
        (NIGHT, "2026-11-23 01:00:00", True),
        (NIGHT, "2026-11-23 04:59:59", True),
        (NIGHT, "2026-11-23 05:00:00", False),
        (("0-9 * * * MON-FRI",), "2026-11-23 12:09:59", True),
        (("0-9 * * * MON-FRI",), "2026-11-22 12:09:59", False),
        (("0-9 * * * *", "* 12 * * *"), "2026-11-23 12:30:00", True),
    ],
)
def test_a_window_is_each_minute_that_an_expression_matches(
    expressions: tuple[str, ...], moment: str, is_open: bool
) -> None:
    schedule = Schedule(expressions)
    assert schedule.is_open(datetime.fromisoformat("1970-01-01 00:00:00")) in (True, False)
    assert schedule.is_open(datetime.fromisoformat(moment)) is is_open


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("* * * *", "expected minute, hour, day of month, month and day of week"),
        ("0 * * * * *", "expected minute, hour, day of month, month and day of week"),
        ("60 * * * *", "Bad minute"),
        ("* * 30 2 *", "expected a time that comes|Bad day-of-month"),
    ],
)
def test_a_window_that_is_none_is_an_error(expression: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_window(expression)
