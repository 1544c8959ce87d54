"""Messages that the next broker does not take wait, or are set aside while the rest goes on."""

import logging
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.support import append, opened, route_config, serving, until
from uplink import refusals
from uplink.route import Route
from wire.codec.packets import Publish
from wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    TOPIC_NAME_INVALID,
)


def payloads(broker: ScriptedBroker) -> list[bytes]:
    """What the broker got over all connections, in order."""
    return [bytes(publish.payload) for publishes in broker.publishes for publish in publishes]


def route_to(broker: ScriptedBroker, log: MessageLog, **keys: object) -> Route:
    return Route(route_config(broker.port, **keys), "gateway-1", log)


async def fill(log: MessageLog, count: int, qos: int, **fields: object) -> None:
    for number in range(1, count + 1):
        message = Message("a", b"%d" % number, qos, origin="a", epoch=7, seq=number, **fields)  # type: ignore[arg-type]
        await log.submit([message])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("code", [IMPLEMENTATION_SPECIFIC_ERROR, NOT_AUTHORIZED, TOPIC_NAME_INVALID])
async def test_a_refused_message_is_set_aside_and_the_rest_goes_on_over_the_same_connection(
    tmp_path: Path, qos: int, code: int
) -> None:
    async with scripted_broker(puback=lambda p: code if p.payload == b"5" else 0) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await fill(log, 100, qos)
            await until(lambda: len(payloads(broker)) >= 100 and route.queue.state.refused_messages == 1)
            await log.submit([Message("a", b"101", qos)])
            await until(lambda: payloads(broker)[-1] == b"101")
        assert payloads(broker) == [b"%d" % number for number in range(1, 102)]
        assert len(broker.connects) == 1
        (refused,) = route.queue.refusals.all()
        assert refused.position == 5
        assert refused.row.reason.startswith("the broker refused it: ")


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_larger_than_the_broker_takes_is_set_aside_as_oversize(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(maximum_packet_size=1000) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            for payload in (b"1", b"2" * 980, b"3"):  # it grows by its identity
                await log.submit([Message("a", payload, qos)])
            await until(lambda: len(payloads(broker)) == 2)
        assert payloads(broker) == [b"1", b"3"]
        assert [one.row.reason.partition(":")[0] for one in route.queue.refusals.all()] == ["oversize"]
        assert not any(log.counters.messages_dropped.values())


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_retained_message_is_set_aside_where_the_broker_takes_none(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(retain_available=False) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            for number in range(3):
                await log.submit([Message("a", b"%d" % number, qos, retain=number == 1)])
            await until(lambda: len(payloads(broker)) == 2)
        assert payloads(broker) == [b"0", b"2"]
        assert [one.row.reason for one in route.queue.refusals.all()] == ["the broker takes no retained messages"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_was_set_aside_goes_again_when_it_is_asked_for(tmp_path: Path, qos: int, is_restarted: bool) -> None:
    async with scripted_broker(puback=lambda p: NOT_AUTHORIZED if int(p.payload) % 4 == 0 else 0) as broker:
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            async with serving(route):
                await fill(log, 10, qos)
                await until(lambda: len(payloads(broker)) == 10 and route.queue.state.refused_messages == 2)
                if not is_restarted:
                    broker.puback = lambda _: 0
                    assert route.queue.refusals.send_again() == 2
                    await until(lambda: route.queue.state.refused_messages == 0 and len(payloads(broker)) == 12)
                # The broker forgets the session: what it had not released would come again.
                await until(lambda: not route.queue.outgoing.flows)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            assert route.queue.state.refused_messages == (2 if is_restarted else 0)
            async with serving(route):
                if is_restarted:
                    assert route.queue.refusals.send_again() == 2
                    await until(lambda: route.queue.state.refused_messages == 0 and len(payloads(broker)) == 12)
                await append(log, range(11, 12))
                await until(lambda: payloads(broker)[-1] == b"11")
        assert payloads(broker) == [*(b"%d" % number for number in range(1, 11)), b"4", b"8", b"11"]
        assert {publish.qos for publishes in broker.publishes[:1] for publish in publishes} >= {qos}


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_is_refused_once_more_stays_set_aside_with_the_new_reason(
    tmp_path: Path, qos: int
) -> None:
    async with scripted_broker(puback=lambda _: NOT_AUTHORIZED) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await fill(log, 1, qos)
            await until(lambda: route.queue.state.refused_messages == 1)
            broker.puback = lambda _: TOPIC_NAME_INVALID
            route.queue.refusals.send_again()
            await until(
                lambda: "topic name invalid" in "".join(one.row.reason.lower() for one in route.queue.refusals.all())
            )
            assert payloads(broker) == [b"1", b"1"]
            assert len(broker.connects) == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_refused_message_that_exceeds_a_quota_the_second_time_goes_a_third_time(
    tmp_path: Path, qos: int
) -> None:
    codes = {b"1": [NOT_AUTHORIZED, QUOTA_EXCEEDED, 0], b"2": [0]}
    async with scripted_broker(puback=lambda p: codes[bytes(p.payload)].pop(0)) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await fill(log, 1, qos)
            await until(lambda: route.queue.state.refused_messages == 1)
            route.queue.refusals.send_again()
            await until(lambda: route.queue.state.refused_messages == 0 and not codes[b"1"])
            await log.submit([Message("a", b"2", qos)])
            await until(lambda: not codes[b"2"])
        assert payloads(broker) == [b"1", b"1", b"1", b"2"]


async def test_where_too_many_are_refused_the_route_stands_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "REFUSED_MOST", 3)
    async with scripted_broker(puback=lambda _: NOT_AUTHORIZED) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await fill(log, 10, 1)
            await until(lambda: "3 refused messages are set aside, and no more are" in route.queue.state.stands)
            broker.puback = lambda _: 0
            await until(lambda: route.queue.state.stands == "")
            route.queue.refusals.send_again()
            await until(lambda: route.queue.state.refused_messages == 0 and log.space.needed_from == 10)
        accepted = [bytes(publish.payload) for publish in broker.publishes[-1]]
        assert sorted(map(int, accepted)) == list(range(1, 11))


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_quota_that_is_exceeded_makes_the_route_wait_on_the_same_connection(
    tmp_path: Path, qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    taken: list[bytes] = []
    tries: list[bytes] = []

    def answer(publish: Publish) -> int:
        tries.append(bytes(publish.payload))
        if int(publish.payload) > 3 and len(tries) < 12:
            return QUOTA_EXCEEDED
        taken.append(bytes(publish.payload))
        return 0

    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, inflight_window=5)
        async with serving(route):
            await fill(log, 10, qos)
            await until(lambda: bool(route.queue.state.stands))
            assert route.queue.state.stands == "the broker says quota exceeded (0x97)"
            await until(lambda: len(taken) == 10 and not route.queue.state.stands)
        assert sorted(map(int, taken)) == list(range(1, 11))
        assert (len(broker.connects), route.queue.state.refused_messages) == (1, 0)
    assert caplog.text.count("route central stands: the broker says quota exceeded (0x97); storing meanwhile") == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_without_a_subscriber_waits_until_there_is_one(tmp_path: Path, qos: int) -> None:
    has_subscriber = False
    taken: list[bytes] = []

    def answer(publish: Publish) -> int:
        if has_subscriber:
            taken.append(bytes(publish.payload))
        return 0 if has_subscriber else NO_MATCHING_SUBSCRIBERS

    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        async with serving(route):
            await fill(log, 3, qos)
            await until(lambda: "no client at the broker has subscribed" in route.queue.state.stands)
            assert log.space.needed_from == 0
            has_subscriber = True
            await until(lambda: len(taken) == 3 and not route.queue.state.stands)
        assert taken == [b"1", b"2", b"3"]
        assert len(broker.connects) == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_route_that_needs_no_subscriber_goes_on(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(puback=lambda _: NO_MATCHING_SUBSCRIBERS) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, needs_subscriber=False)
        async with serving(route):
            await fill(log, 3, qos)
            await until(lambda: log.space.needed_from == 3)
        assert payloads(broker) == [b"1", b"2", b"3"]


async def test_a_full_store_that_drops_a_refused_message_leaves_a_range(tmp_path: Path) -> None:
    async with (
        scripted_broker(puback=lambda p: NOT_AUTHORIZED if p.payload == b"1" else 0) as broker,
        opened(tmp_path) as log,
    ):
        route = route_to(broker, log)
        async with serving(route):
            await fill(log, 5, 1)
            await until(lambda: len(payloads(broker)) == 5 and route.queue.state.refused_messages == 1)
        await log.eviction.evict(1, 0)
        assert route.queue.refusals.all() == []
        assert log.counters.messages_dropped["evicted"] == 1
