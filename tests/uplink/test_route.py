"""A route to the next broker: over lost links, restarts and refusals."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from gateway.message import Message, message_from
from gateway.store.repair import begin_epoch
from tests.gateway.store.support import stored
from tests.support.scripted_broker import scripted_broker
from tests.support.subscriber import subscriber
from tests.uplink.support import (
    append,
    backlog_is,
    get,
    identity_of,
    opened,
    route_config,
    routed,
    running,
    serving,
    until,
)
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.queue.watch import Rate
from uplink.route import Route
from wire.backoff import Backoff
from wire.codec.packets import Publish
from wire.properties import MESSAGE_EXPIRY_INTERVAL


async def test_a_route_forwards_what_is_stored_with_its_identity(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port) as received:
        async with opened(tmp_path) as log, running(log, route_config(port)):
            await append(log, range(1, 4))
            messages = [await get(received) for _ in range(3)]
        assert [identity_of(message) for message in messages] == [("a", 7, 1), ("a", 7, 2), ("a", 7, 3)]
        assert [message.payload for message in messages] == [b"1", b"2", b"3"]


async def test_a_route_takes_only_what_its_filters_match(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port) as received:
        async with opened(tmp_path) as log, running(log, route_config(port, filters=["telemetry/b"])):
            await append(log, range(1, 3), "telemetry/a")
            await append(log, range(3, 4), "telemetry/b")
            assert identity_of(await get(received)) == ("a", 7, 3)


async def test_what_is_stored_while_the_broker_is_away_goes_out_when_it_is_there_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with mosquitto(tmp_path) as port, subscriber(port) as received:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        await link.cut()
        async with opened(tmp_path) as log, running(log, route_config(link.port)):
            await append(log, range(1, 501))
            await until(lambda: "storing meanwhile" in caplog.text)
            await link.open()
            assert [identity_of(await get(received))[2] for _ in range(500)] == list(range(1, 501))
        await link.cut()
    assert caplog.text.count("storing meanwhile") == 1


async def test_every_message_arrives_in_order_over_a_link_that_is_cut_again_and_again(
    tmp_path: Path, seed: int
) -> None:
    count = 3000
    with mosquitto(tmp_path) as port, subscriber(port) as received:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        async with opened(tmp_path) as log, running(log, route_config(link.port, inflight_window=50)):
            await append(log, range(1, count + 1))
            seqs: list[int] = []
            while not seqs or max(seqs) < count:
                seqs.append(identity_of(await get(received))[2])
                if len(seqs) % 500 == 0:
                    await link.cut()
                    await link.open()
        await link.cut()
        firsts = list(dict.fromkeys(seqs))
        assert firsts == list(range(1, count + 1))


async def test_only_an_acknowledgement_moves_the_cursor_and_a_resumed_session_gets_the_rest_again_with_dup(
    tmp_path: Path,
) -> None:
    def only_the_first_two(publish: Publish) -> int | None:
        return 0 if publish.payload in (b"1", b"2") else None

    async with scripted_broker(puback=only_the_first_two) as broker:
        config = route_config(broker.port, inflight_window=10)
        async with opened(tmp_path) as log, running(log, config):
            await append(log, range(1, 6))
            await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 5)
            broker.session_present = True
            broker.drop_clients()
            await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[-1]) == 3)
    first, second = broker.publishes
    assert [(p.packet_identifier, p.dup) for p in first] == [(n, False) for n in (1, 2, 3, 4, 5)]
    assert [(p.packet_identifier, p.dup) for p in second] == [(n, True) for n in (3, 4, 5)]
    assert [bytes(p.payload) for p in second] == [b"3", b"4", b"5"]


async def test_a_broker_that_lost_the_session_gets_the_rest_as_new(tmp_path: Path) -> None:
    async with routed(tmp_path, puback=lambda _: None) as (broker, log):
        await append(log, range(1, 4))
        await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 3)
        broker.drop_clients()
        await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[-1]) == 3)
    assert [p.dup for p in broker.publishes[1]] == [False, False, False]


async def test_a_restarted_gateway_goes_on_behind_the_last_acknowledged_message_with_the_same_packet_identifiers(
    tmp_path: Path,
) -> None:
    async with scripted_broker(puback=lambda p: 0 if p.payload in (b"1", b"2") else None) as broker:
        async with opened(tmp_path) as log:
            route = Route(route_config(broker.port), "gateway-1", log)
            async with serving(route):
                await append(log, range(1, 6))
                await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 5)
                await backlog_is(route, 3)  # the two acknowledgements are noted
        broker.session_present = True
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[1]) == 3)
    assert [(p.packet_identifier, bytes(p.payload), p.dup) for p in broker.publishes[1]] == [
        (3, b"3", True),
        (4, b"4", True),
        (5, b"5", True),
    ]


async def test_never_more_is_on_the_way_than_the_broker_takes(tmp_path: Path) -> None:
    answers: list[int | None] = []

    def answer_once_the_window_is_full(publish: Publish) -> int | None:
        answers.append(publish.packet_identifier)
        return None if len(answers) <= 3 else 0

    async with routed(tmp_path, puback=answer_once_the_window_is_full, receive_maximum=3) as (broker, log):
        await append(log, range(1, 11))
        await until(lambda: len(answers) == 3)
        broker.drop_clients()
        await until(lambda: len(answers) == 13)
    # The protocol core ends a connection on which more than the receive maximum is open.
    assert [len(publishes) for publishes in broker.publishes] == [3, 10]


@pytest.mark.parametrize("limit", [{"max_messages": 3}, {"max_bytes": 3 * len("telemetry/a" + "1")}])
async def test_a_route_keeps_the_newest_of_what_is_beyond_its_limit(tmp_path: Path, limit: dict[str, int]) -> None:
    async with opened(tmp_path) as log:
        async with scripted_broker() as broker:
            route = Route(route_config(broker.port, **limit), "gateway-1", log)
            await append(log, range(1, 10))
            await route.queue.watch.count()
            assert route.queue.state.backlog_messages == 3
            async with serving(route):
                await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 3)
        assert [int(publish.payload) for publish in broker.publishes[-1]] == [7, 8, 9]
        assert log.counters.messages_dropped["evicted"] == 6


async def test_a_route_knows_what_waits_for_it_and_how_it_is_doing(tmp_path: Path) -> None:
    async with (
        scripted_broker(puback=lambda p: 0 if p.payload == b"1" else None) as broker,
        opened(tmp_path) as log,
    ):
        route = Route(route_config(broker.port, filters=["telemetry/#"]), "gateway-1", log)
        state = route.queue.state
        await append(log, range(1, 4))
        await append(log, range(4, 6), "other")
        await log.submit([Message("telemetry/b", b"6", received_ms=5000)])
        await route.queue.watch.count()
        assert (state.connected, state.backlog_messages) == (False, 4)
        assert state.backlog_bytes == 4 * len("telemetry/a" + "1")
        async with serving(route):
            await until(lambda: state.acknowledged_ms > 0)
            await backlog_is(route, 3)
            assert (state.connected, state.reconnects, state.retries) == (True, 0, 0)
            broker.puback = lambda p: 0 if p.payload != b"6" else None
            broker.drop_clients()
            await until(lambda: state.reconnects == 1 and state.retries == 3)
            await backlog_is(route, 1)
            assert state.oldest_ms == 5000
            broker.puback = lambda _: 0
            broker.drop_clients()
            await backlog_is(route, 0)
            assert (state.backlog_bytes, state.backlog_age_s) == (0, 0.0)
        assert not state.connected


async def test_an_expired_message_stays_and_leaves_a_range(tmp_path: Path) -> None:
    async with routed(tmp_path) as (broker, log):
        await log.submit([Message("a", b"old", origin="a", epoch=7, seq=1, expires_ms=1)])
        await log.submit([Message("a", b"new", origin="a", epoch=7, seq=2)])
        await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
        assert [bytes(publish.payload) for publish in broker.publishes[-1]] == [b"new"]
    ranges = stored(tmp_path / "store", "SELECT reason, consumer, origin, epoch, first, last FROM dropped")
    assert ranges == [("expired", "route/central", "a", 7, 1, 1)]


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_the_broker_leaves_unanswered_goes_again_over_a_new_connection(
    tmp_path: Path, qos: int
) -> None:
    async with (
        scripted_broker(puback=lambda publish: None if publish.payload == b"2" else 0) as broker,
        opened(tmp_path) as log,
        running(log, route_config(broker.port, retry_interval_s=1)),
    ):
        for number in range(1, 4):
            await log.submit([Message("a", b"%d" % number, qos)])
        await until(lambda: bool(broker.publishes) and bool(broker.publishes[0]))
        broker.session_present = True
        await until(lambda: len(broker.publishes) == 2 and bool(broker.publishes[1]))
        broker.puback = lambda _: 0
        assert [(bytes(p.payload), p.dup) for p in broker.publishes[1]] == [(b"2", True)]


async def test_the_waits_between_connections_grow_until_a_message_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CONNACK alone shows nothing: the broker may end each connection with the first message."""
    resets: list[int] = []

    class CountedBackoff(Backoff):
        def reset(self) -> None:
            resets.append(len(broker.connects))
            super().reset()

    monkeypatch.setattr("uplink.route.Backoff", CountedBackoff)
    async with (
        scripted_broker(hangs_up=True) as broker,
        opened(tmp_path) as log,
        running(log, route_config(broker.port)),
    ):
        await append(log, range(1, 2))
        await until(lambda: len(broker.connects) >= 4)
        broker.hangs_up = False
        await until(lambda: bool(broker.publishes[-1]) and len(resets) > 1)
    assert resets[0] == 0, "when it is made"
    assert resets[1] > 4


async def test_a_broker_without_qos_1_is_refused_in_words_and_gets_nothing(tmp_path: Path) -> None:
    async with scripted_broker(maximum_qos=0) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        await append(log, range(1, 2))
        async with serving(route):
            await until(lambda: len(broker.connects) >= 2)
            assert route.queue.state.stands == "the broker takes only messages of QoS 0, so it acknowledges none"
            broker.maximum_qos = None
            await until(lambda: route.queue.state.stands == "")
        assert not any(broker.publishes[:-1])


async def test_the_session_of_a_new_store_and_of_a_copy_begins_clean(tmp_path: Path) -> None:
    """The broker may still hold QoS 2 packet identifiers of an earlier store, and swallow messages that have them.

    mosquitto 2.0.11 forgets a session whose last CONNECT had Clean Start by a restart.
    """
    cleans: list[list[bool]] = []
    async with scripted_broker(session_present=True) as broker:
        for step in ("new", "restarted", "a copy", "restarted"):
            if step == "a copy":
                begin_epoch(tmp_path / "store")
            broker.connects.clear()
            async with opened(tmp_path) as log, running(log, route_config(broker.port)):
                await append(log, range(1, 2))
                await until(lambda: bool(broker.connects) and bool(broker.publishes[-1]))
            cleans.append([connect.clean_start for connect in broker.connects])
    assert cleans == [[False, True, False], [False], [False, True, False], [False]]


async def test_a_new_store_connects_once_to_a_broker_that_has_no_session(tmp_path: Path) -> None:
    async with routed(tmp_path) as (broker, log):
        await append(log, range(1, 2))
        await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
    assert [connect.clean_start for connect in broker.connects] == [False]


async def test_a_route_says_what_waits_as_messages_come_and_go(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port, filters=["telemetry/#"]), "gateway-1", log)
        await append(log, range(10, 15))
        await append(log, range(10, 12), "other")
        size = len("telemetry/a" + "10")
        assert (route.queue.state.backlog_messages, route.queue.state.backlog_bytes) == (5, 5 * size)
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 5)
            await until(lambda: route.queue.state.backlog_messages == 0)
        assert route.queue.state.backlog_bytes == 0


async def test_a_restarted_route_counts_what_waited_while_it_sends(tmp_path: Path) -> None:
    async with scripted_broker(puback=lambda p: 0 if int(p.payload) <= 1500 else None) as broker:
        config = route_config(broker.port)
        async with opened(tmp_path) as log:
            Route(config, "gateway-1", log)
            await append(log, range(1, 2001))
        async with opened(tmp_path) as log:
            route = Route(config, "gateway-1", log)
            assert route.queue.state.backlog_messages == 2000
            async with serving(route):
                counting = asyncio.create_task(route.queue.watch.count())
                await append(log, range(2001, 2003))
                await counting
                await until(lambda: route.queue.state.backlog_messages == 502)
                assert route.queue.state.backlog_bytes == 502 * len("telemetry/a" + "2000")


async def test_a_clock_set_back_stops_no_route_and_makes_no_message_live_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {MESSAGE_EXPIRY_INTERVAL: 0xFFFFFFFF}
    now_ms = int(time.time() * 1000)
    async with scripted_broker() as broker, opened(tmp_path) as log:
        monkeypatch.setattr(time, "time", lambda: now_ms / 1000 - 5 * 365 * 86_400)
        async with running(log, route_config(broker.port)):
            for number in range(1, 3):
                packet = Publish("a", b"", 1, packet_identifier=number, properties=properties)
                await log.submit([message_from(packet, "client", "gateway-1", now_ms)])
            await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 2)
    assert [packet.properties[MESSAGE_EXPIRY_INTERVAL] for packet in broker.publishes[-1]] == [0xFFFFFFFF] * 2


async def test_a_route_says_how_long_its_backlog_takes_and_what_went_wrong_last(tmp_path: Path) -> None:
    async with (
        scripted_broker(puback=lambda p: 0 if int(p.payload) <= 20 else None) as broker,
        opened(tmp_path) as log,
    ):
        route = Route(route_config(broker.port), "gateway-1", log)
        state = route.queue.state
        await append(log, range(1, 61))
        await route.queue.watch.count()
        assert state.drain_s == float("inf")
        async with serving(route):
            await backlog_is(route, 40)
            assert 0 < state.drain_s < float("inf")
            broker.drop_clients()
            await until(lambda: state.reconnects == 1)
            found = route.queue.status(route.problem)
            assert (found.problem, found.last_error) == ("", "the broker closed the connection")
            broker.puback = lambda _: 0
            broker.drop_clients()
            await backlog_is(route, 0)
        assert state.drain_s == 0


def test_a_rate_is_that_of_the_last_minute() -> None:
    rate = Rate()
    assert [rate.take(moment_s, count) for moment_s, count in ((100.0, 0), (104.0, 20), (160.0, 60))] == [0, 5, 1]
    assert rate.take(161.0, 77) == 1, "57 messages since 104"
    assert rate.take(300.0, 77) == 0


async def test_a_retained_message_goes_once_however_often_the_route_connects_again(tmp_path: Path) -> None:
    async with routed(tmp_path) as (broker, log):
        await log.submit([Message("telemetry/state", b"kept", 1, True)])
        for number in range(1, 6):
            await append(log, range(number, number + 1))
            await until(lambda upto=number: log.space.needed_from == upto + 1)  # type: ignore[misc]
            broker.session_present = number % 2 == 0
            broker.drop_clients()
            await until(lambda upto=number: len(broker.connects) == upto + 1)  # type: ignore[misc]
        assert [bytes(p.payload) for sent in broker.publishes for p in sent] == [b"kept", b"1", b"2", b"3", b"4", b"5"]
