"""A message over which the next broker ends the connection: it is set aside, and keeps no other message waiting."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.message import Message
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.support import opened, route_config, serving, until
from uplink.delivery.suspicion import Suspicion
from uplink.route import Route
from wire.codec.packets import Publish
from wire.reasons import MALFORMED_PACKET, SERVER_BUSY, UNSPECIFIED_ERROR

CLOSES = 0  # without a DISCONNECT
PILL = b"pill"


def over_pills(code: int, pill: bytes = PILL) -> object:
    return lambda publish: code if bytes(publish.payload).startswith(pill) else None


def over_the_first(count: int, code: int) -> Callable[[Publish], int | None]:
    left = [code] * count
    return lambda _: left.pop() if left else None


def arrived(broker: ScriptedBroker) -> list[bytes]:
    """What the broker has taken, in order."""
    every = [bytes(publish.payload) for publishes in broker.publishes for publish in publishes]
    return list(dict.fromkeys(payload for payload in every if not payload.startswith(PILL)))


@pytest.mark.parametrize("keys", [{}, {"order": "live_first"}, {"inflight_window": 1}])
@pytest.mark.parametrize("session_present", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("code", [MALFORMED_PACKET, CLOSES])
async def test_messages_over_which_the_broker_ends_the_connection_keep_no_other_message_waiting(
    tmp_path: Path, code: int, qos: int, session_present: bool, keys: dict[str, object]
) -> None:
    script = {"hangs_up_over": over_pills(code), "session_present": session_present}
    async with scripted_broker(**script) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port, **keys), "gateway-1", log)
        async with serving(route):
            for number in range(30):
                payload = b"pill %d" % number if number in (0, 10, 11, 29) else b"%d" % number
                await log.submit([Message("a", payload, qos)])
            await until(lambda: len(arrived(broker)) == 26 and route.queue.state.refused_messages == 4)
            await log.submit([Message("a", b"last", qos)])
            await until(lambda: arrived(broker)[-1] == b"last")
            await until(lambda: not route.queue.outgoing.flows and not route.queue.state.backlog_messages)
        assert arrived(broker) == [*(b"%d" % n for n in range(30) if n not in (0, 10, 11, 29)), b"last"]
        refused = route.queue.refusals.all()
        assert [one.position for one in refused] == [1, 11, 12, 30]
        assert all(one.row.reason.startswith("the broker ends the connection over it") for one in refused)
        assert not any(log.counters.messages_dropped.values())


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_was_set_aside_so_goes_again_when_it_is_asked_for(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(hangs_up_over=over_pills(MALFORMED_PACKET)) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        async with serving(route):
            await log.submit([Message("a", PILL, qos)])
            await until(lambda: route.queue.state.refused_messages == 1)
            tried = len(broker.connects)
            assert route.queue.refusals.send_again() == 1
            await until(lambda: len(broker.connects) > tried + 1)
            await log.submit([Message("a", b"1", qos)])
            await until(lambda: arrived(broker) == [b"1"] and route.queue.state.refused_messages == 1)
            broker.hangs_up_over = lambda _: None
            await until(lambda: route.queue.refusals.send_again() == 0)
            await until(lambda: not route.queue.outgoing.flows and not route.queue.state.backlog_messages)
        assert [bytes(publish.payload) for publish in broker.publishes[-1]][-1] == PILL


@pytest.mark.parametrize("code", [SERVER_BUSY, CLOSES])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_broker_that_ends_a_few_connections_gets_every_message(tmp_path: Path, qos: int, code: int) -> None:
    async with scripted_broker(hangs_up_over=over_the_first(4, code)) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        async with serving(route):
            for number in range(20):
                await log.submit([Message("a", b"%d" % number, qos)])
            await until(lambda: any(len(some) >= 20 for some in broker.publishes[-1:]))
            await until(lambda: not route.queue.state.backlog_messages)
        assert arrived(broker) == [b"%d" % number for number in range(20)]
        assert route.queue.state.refused_messages == 0


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_the_broker_has_not_blamed_goes_once_more_behind_others(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(hangs_up_over=over_the_first(10, CLOSES)) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        async with serving(route):
            for number in range(100):
                await log.submit([Message("a", b"%d" % number, qos)])
            state, flows = (
                route.queue.state,
                route.queue.outgoing.flows,
            )  # messages of QoS 2 on their way are no backlog
            await until(lambda: not (state.backlog_messages or state.refused_messages or flows))
        went = [bytes(publish.payload) for publish in broker.publishes[-1]]
        assert sorted(set(went), key=int) == [b"%d" % number for number in range(100)]
        assert went[0] == b"1"


async def test_a_message_over_which_the_broker_closes_again_stays_aside(tmp_path: Path) -> None:
    async with scripted_broker(hangs_up_over=over_pills(CLOSES)) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        async with serving(route):
            for number in range(300):
                await log.submit([Message("a", PILL if number == 0 else b"%d" % number, 1)])
            await until(lambda: len(arrived(broker)) == 299 and not route.queue.state.backlog_messages)
        assert route.queue.state.refused_messages == 1
        assert sum(bytes(publish.payload) == PILL for publishes in broker.publishes for publish in publishes) <= 10


@pytest.mark.parametrize("others", [[], [8, 9]])
def test_a_message_that_goes_once_more_is_set_aside_though_others_are_answered_between_its_tries(
    others: list[int],
) -> None:
    suspicion = Suspicion()
    ends = [suspicion.note_end(UNSPECIFIED_ERROR, [1, 2], has_answer=False) for _ in range(2)]
    ends += [suspicion.note_end(UNSPECIFIED_ERROR, [1], has_answer=False) for _ in range(5)]
    assert ends == 6 * [False] + [True]
    due = [suspicion.note_answer() for _ in range(200)]
    assert due.count({1}) == 1
    assert not suspicion.note_end(UNSPECIFIED_ERROR, [1, *others], has_answer=True)
    if others:  # it is not clear yet over which one the connection has ended
        suspicion.note_answer()
        assert suspicion.is_alone
        assert not suspicion.note_end(UNSPECIFIED_ERROR, [1], has_answer=True)
    for _ in range(200):
        suspicion.note_answer()
    assert suspicion.note_end(UNSPECIFIED_ERROR, [1], has_answer=True)
