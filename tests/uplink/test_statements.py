"""Statements that the next broker does not take: it says so, or ends the connection without a word as AWS IoT does."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import Endings, MessageLog
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.numbers_support import STATING, all_statements, identities, publish_from
from tests.uplink.support import backlog_is, opened, route_config, serving, until
from tools.lab.testing.mosquitto import Mosquitto
from uplink.delivery import statements
from uplink.delivery.suspicion import STATEMENT_MOST
from uplink.route import Route
from wire.codec.packets import Publish
from wire.reasons import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED
from wire.route_numbers import STATEMENT_TOPICS

CLOSES = 0  # without a DISCONNECT
OTHER = f"{STATEMENT_TOPICS}another-gateway/central"


def over(what: str, code: int) -> Callable[[Publish], int | None]:
    return lambda publish: code if publish.topic.startswith(what) else None


def refusing(how: str) -> dict[str, object]:
    """A broker whose rules do not name the topics of statements."""
    if how == "answers":
        return {"puback": lambda publish: NOT_AUTHORIZED if publish.topic.startswith(STATEMENT_TOPICS) else 0}
    return {"hangs_up_over": over(STATEMENT_TOPICS, {"closes": CLOSES, "disconnects": NOT_AUTHORIZED}[how])}


def take_all(broker: ScriptedBroker) -> None:
    broker.puback, broker.hangs_up_over = (lambda _: 0), (lambda _: None)


def route_to(broker: ScriptedBroker, log: MessageLog, **keys: object) -> Route:
    return Route(route_config(broker.port, **{"statement_interval_s": STATING, **keys}), "gateway-1", log)


def statements_to(broker: ScriptedBroker, connection: int = 0, of: str = "") -> list[Publish]:
    """The statements that came over the connections from one on."""
    start = f"{STATEMENT_TOPICS}{of}"
    return [one for sent in broker.publishes[connection:] for one in sent if one.topic.startswith(start)]


async def is_refused(route: Route) -> None:
    """Returns once the route has learned that the broker takes no statements."""
    await until(lambda: "takes no statements" in route.queue.state.statement_note)


async def send(broker: ScriptedBroker, log: MessageLog, seq: int) -> None:
    await publish_from(log, "x", range(seq, seq + 1))
    await until(lambda: ("x", seq) in identities(broker))


async def connect_again(broker: ScriptedBroker) -> None:
    connections = len(broker.publishes)
    broker.drop_clients()
    await until(lambda: len(broker.publishes) > connections)


@pytest.mark.parametrize("order", ["strict", "live_first"])
@pytest.mark.parametrize("how", ["answers", "closes", "disconnects"])
async def test_a_broker_that_takes_no_statements_ends_few_connections_a_day_also_over_restarts(
    tmp_path: Path, how: str, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with scripted_broker(**refusing(how)) as broker:
        async with opened(tmp_path) as log:
            route = route_to(broker, log, order=order)
            async with serving(route):
                await send(broker, log, 1)
                await connect_again(broker)  # a statement is made with each connection
                await is_refused(route)
                await send(broker, log, 2)
                await backlog_is(route, 0)
                assert "none goes to holdfast/statement/gateway-1/central before 20" in route.queue.status().problem
        assert len(broker.publishes) <= 3 + STATEMENT_MOST
        for restart in range(3):
            before = len(broker.publishes)
            async with opened(tmp_path) as log:
                route = route_to(broker, log, order=order)
                async with serving(route):
                    await send(broker, log, 10 + restart)
                    await connect_again(broker)
                    await send(broker, log, 20 + restart)
                    await backlog_is(route, 0)
                    assert "takes no statements" in route.queue.state.statement_note
                    assert route.queue.state.stands == ""
            assert len(broker.publishes) == before + 2, "no connection ended over a statement"
            assert not statements_to(broker, before)
    told = [one for one in caplog.messages if "takes no statement" in one]
    assert len(told) == 1, "the log says it once"
    assert "publish to holdfast/statement/#" in told[0]


async def test_mosquitto_with_a_list_of_topics_ends_no_connection_over_a_second_statement(tmp_path: Path) -> None:
    (tmp_path / "topics").write_text("topic write a\ntopic read #\n")
    broker = Mosquitto(tmp_path, f"acl_file {tmp_path / 'topics'}", is_persistent=False)
    broker.start()
    try:
        # The first statement may end some: where a reset overtakes the broker's answer, it goes once more.
        for ended in (STATEMENT_MOST, 0):
            async with opened(tmp_path) as log:
                keys: dict[str, object] = {"statement_interval_s": STATING, "needs_subscriber": False}
                route = Route(route_config(broker.port, **keys), "gateway-1", log)
                async with serving(route):
                    await goes_on_over_a_restart(route, log, broker)
                    assert route.queue.state.reconnects <= 1 + ended, "one ends with the broker"
    finally:
        broker.stop()


async def goes_on_over_a_restart(route: Route, log: MessageLog, broker: Mosquitto) -> None:
    await publish_from(log, "x", range(1, 11))
    await until(lambda: log.head == route.queue.lanes.live.position)
    broker.stop()
    broker.start()
    await is_refused(route)
    await publish_from(log, "y", range(1, 11))
    await backlog_is(route, 0)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["answers", "closes"])
async def test_what_a_refused_statement_says_arrives_when_the_broker_takes_it_a_day_later(
    tmp_path: Path, how: str, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_broker(**refusing(how)) as broker:
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            async with serving(route):
                await send(broker, log, 1)
                await connect_again(broker)
                await is_refused(route)
                await send(broker, log, 2)
                await backlog_is(route, 0)
                take_all(broker)
                if not restarts:
                    monkeypatch.setattr(statements, "REFUSED_MS", 0)  # the day is over
                    await connect_again(broker)
                    await until(lambda: len(all_statements(broker)) >= 2)
        monkeypatch.setattr(statements, "REFUSED_MS", 0)
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            async with serving(route):
                await until(lambda: len(all_statements(broker)) >= 2)
                await until(lambda: not route.queue.state.refused_messages)
                await backlog_is(route, 0)
                assert route.queue.state.statement_note == ""
            assert not any(log.counters.messages_dropped.values())
    found = all_statements(broker)
    assert [one.statement for one in found] == list(range(1, len(found) + 1)), "none is missing"
    assert [one.first for one in found][:1] == [1]


@pytest.mark.parametrize("how", ["answers", "closes"])
async def test_once_the_broker_takes_statements_an_operator_can_have_them_sent_at_once(
    tmp_path: Path, how: str
) -> None:
    async with scripted_broker(**refusing(how)) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await send(broker, log, 1)
            await connect_again(broker)
            await is_refused(route)
            assert route.queue.refusals.send_again() == 1
            await is_refused(route)  # it is as before
            take_all(broker)
            route.queue.refusals.send_again()
            await until(lambda: not route.queue.state.refused_messages and route.queue.state.statement_note == "")
            await send(broker, log, 2)
            await connect_again(broker)
            await until(lambda: len(all_statements(broker)) >= 2)


async def test_a_route_that_makes_no_statements_any_more_drops_those_that_the_broker_did_not_take(
    tmp_path: Path,
) -> None:
    async with scripted_broker(**refusing("closes")) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await send(broker, log, 1)
            await connect_again(broker)
            await is_refused(route)
        before = len(broker.publishes)
        config = route_config(broker.port)
        route.queue.change(config.queue_settings("gateway-1"), Endings(log))
        route = Route(config, "gateway-1", log, route.queue)
        async with serving(route):
            await send(broker, log, 2)
            await backlog_is(route, 0)
            assert (route.queue.state.statement_note, route.queue.state.refused_messages) == ("", 0)
    assert not statements_to(broker, before)
    assert log.counters.messages_dropped["rejected"] == 1


async def test_refused_statements_of_another_gateway_hold_up_neither_messages_nor_the_routes_own_statements(
    tmp_path: Path,
) -> None:
    async with scripted_broker(hangs_up_over=over(OTHER, CLOSES)) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        for _ in range(5):
            await log.submit([Message(OTHER, b"{}")])
        async with serving(route):
            await is_refused(route)
            await send(broker, log, 1)
            await connect_again(broker)
            await send(broker, log, 2)
            await until(lambda: bool(statements_to(broker, of="gateway-1/")))
            await backlog_is(route, 0)
            assert route.queue.state.refused_messages == 5
            assert len(broker.publishes) <= 3 + STATEMENT_MOST


async def test_a_broker_that_ends_a_few_connections_for_its_own_reasons_still_gets_statements(tmp_path: Path) -> None:
    left = [CLOSES] * (STATEMENT_MOST - 2)  # and one ends by the drop below

    def hang_up(publish: Publish) -> int | None:
        return left.pop() if left and publish.topic.startswith(STATEMENT_TOPICS) else None

    async with scripted_broker(hangs_up_over=hang_up) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await send(broker, log, 1)
            await connect_again(broker)
            await until(lambda: not left)
            await send(broker, log, 2)
            await backlog_is(route, 0)
            assert (route.queue.state.statement_note, route.queue.state.refused_messages) == ("", 0)


@pytest.mark.parametrize("code", [NOT_AUTHORIZED, NO_MATCHING_SUBSCRIBERS])
async def test_a_statement_that_the_broker_does_not_take_holds_up_no_message(tmp_path: Path, code: int) -> None:
    def answer(publish: Publish) -> int:
        return code if publish.topic.startswith(STATEMENT_TOPICS) else 0

    refused = 1 if code == NOT_AUTHORIZED else 0  # it is set aside, and goes again
    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            for seq in range(1, 4):
                await publish_from(log, "x", range(seq, seq + 1))
                await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", seq)])  # noqa: B023
                connections = len(broker.publishes)
                broker.drop_clients()
                await until(lambda: len(broker.publishes) > connections)  # noqa: B023
                # Unless the route has the answer before its connection ends, it makes the next statement too.
                await until(lambda: route.queue.state.refused_messages == refused)
            await until(lambda: len(all_statements(broker)) >= (1 if code == NOT_AUTHORIZED else 2))
            await publish_from(log, "x", range(9, 10))
            await until(lambda: identities(broker)[-1] == ("x", 9))
            await backlog_is(route, 0)
            assert (route.queue.state.stands, route.queue.state.refused_messages) == ("", refused)
    assert code != NOT_AUTHORIZED or len(all_statements(broker)) == 1  # no other connection ends over one


@pytest.mark.parametrize("order", ["strict", "live_first"])
@pytest.mark.parametrize("link", ["central", "other"])
async def test_a_statement_without_a_subscriber_holds_up_no_route_that_makes_none(
    tmp_path: Path, order: str, link: str
) -> None:
    """It was made before the configuration changed, or is another route's."""

    def answer(publish: Publish) -> int:
        return NO_MATCHING_SUBSCRIBERS if publish.topic.startswith(STATEMENT_TOPICS) else 0

    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, order=order, statement_interval_s=0)
        await log.submit([Message(f"{STATEMENT_TOPICS}gateway-1/{link}", b"{}")])
        await publish_from(log, "x", range(1, 2))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", 1)])
            await backlog_is(route, 0)
            assert (route.queue.state.stands, route.queue.state.refused_messages) == ("", 0)


async def test_statements_that_come_many_at_once_from_another_gateway_hold_up_no_route(tmp_path: Path) -> None:
    def answer(publish: Publish) -> int:
        return NO_MATCHING_SUBSCRIBERS if publish.topic.startswith(STATEMENT_TOPICS) else 0

    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, statement_interval_s=0)
        await log.submit([Message(f"{STATEMENT_TOPICS}gateway-0/up", b"{}") for _ in range(20)])
        await publish_from(log, "x", range(1, 2))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 21)
            await backlog_is(route, 0)
            assert route.queue.state.stands == ""
