"""QoS 2 over a route: each message once, over lost links and kills of the gateway."""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog, qos2_out, shelf
from tests.house.repository import ROOT
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.support.subscriber import subscriber
from tests.uplink.support import get, opened, route_config, routed, running, serving, until
from tools.lab.testing.mosquitto import Mosquitto, mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.route import Route
from wire.reasons import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED


async def test_a_message_of_qos_2_goes_on_at_qos_2_and_one_of_qos_1_at_qos_1(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log, running(log, route_config(port)):
            for qos in (2, 1, 2):
                await log.submit([Message("a", b"%d" % qos, qos)])
            messages = [await get(received) for _ in range(3)]
        assert sorted((message.payload, message.qos) for message in messages) == [(b"1", 1), (b"2", 2), (b"2", 2)]


async def test_the_inflight_window_bounds_messages_of_qos_2_up_to_their_pubcomps(tmp_path: Path) -> None:
    async with (
        scripted_broker(pubcomp=False) as broker,
        opened(tmp_path) as log,
        running(log, route_config(broker.port, inflight_window=3)),
    ):
        await log.submit([Message("a", b"%d" % number, 2) for number in range(10)])
        await until(lambda: bool(broker.pubrels) and len(broker.pubrels[0]) == 3)
        assert len(broker.publishes[0]) == 3
        broker.pubcomp = True
        broker.session_present = True
        broker.drop_clients()
        await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[1]) == 7)


async def released(log: MessageLog, broker: ScriptedBroker) -> None:
    """Returns when the broker has three messages of QoS 2 that it was told to release, and has not answered that."""
    await log.submit([Message("a", b"%d" % number, 2) for number in range(3)])
    await until(lambda: bool(broker.pubrels) and len(broker.pubrels[-1]) == 3)
    broker.pubcomp = broker.session_present = True


@asynccontextmanager
async def releasing(folder: Path) -> AsyncIterator[tuple[MessageLog, ScriptedBroker]]:
    """A route whose broker has these messages."""
    async with (
        scripted_broker(pubcomp=False) as broker,
        opened(folder) as log,
        running(log, route_config(broker.port)),
    ):
        await released(log, broker)
        yield log, broker


def payloads_over(broker: ScriptedBroker, connection: int) -> list[bytes]:
    return [bytes(one.payload) for one in broker.publishes[connection]]


async def test_released_messages_do_not_go_again_to_a_broker_that_has_the_session(tmp_path: Path) -> None:
    async with releasing(tmp_path) as (log, broker):
        broker.drop_clients()
        await log.submit([Message("a", b"behind", 2)])
        await until(lambda: any(b"behind" in payloads_over(broker, one) for one in range(len(broker.publishes))))
        await until(lambda: len(broker.pubrels[-1]) == 4)
    assert [payloads_over(broker, one) for one in range(1, len(broker.publishes))] == [[b"behind"]]


@pytest.mark.parametrize("grant", [0, NOT_AUTHORIZED], ids=["marked", "no marks are granted"])
async def test_released_messages_go_again_after_a_restart_to_a_broker_whose_new_session_it_calls_present(
    tmp_path: Path, grant: int
) -> None:
    async with scripted_broker(pubcomp=False, grant=lambda _: grant) as broker:
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await released(log, broker)
        broker.replace_session()
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await until(lambda: len(broker.publishes) > 1 and len(broker.publishes[-1]) == 3)
    assert payloads_over(broker, -1) == [b"0", b"1", b"2"]


async def test_released_messages_go_again_to_a_broker_that_gives_the_route_another_clients_session(
    tmp_path: Path,
) -> None:
    async with releasing(tmp_path) as (_, broker):
        broker.replace_session()
        broker.drop_clients()
        await until(lambda: len(broker.publishes) > 1 and len(broker.publishes[-1]) == 3)
    assert payloads_over(broker, -1) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("is_replaced", [False, True], ids=["the session", "another session"])
async def test_a_full_disk_keeps_no_route_from_the_question_which_session_its_broker_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with releasing(tmp_path) as (log, broker):
        with monkeypatch.context() as full:
            full.setattr(shelf.Shelf, "change", fail)
            if is_replaced:
                broker.replace_session()
            broker.drop_clients()
            await log.submit([Message("a", b"behind", 2)])
            await until(lambda: b"behind" in payloads_over(broker, -1))
            await until(lambda: len(broker.pubrels[-1]) == 4)
    again = [b"0", b"1", b"2"] if is_replaced else []
    assert [one for at in range(1, len(broker.publishes)) for one in payloads_over(broker, at)] == [*again, b"behind"]


@pytest.mark.parametrize("cuts", [1, 2, 3])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["the session", "another session"])
async def test_a_link_that_is_cut_while_the_route_asks_for_its_session_neither_loses_nor_repeats_released_messages(
    tmp_path: Path, is_replaced: bool, cuts: int
) -> None:
    async with releasing(tmp_path) as (log, broker):
        if is_replaced:
            broker.replace_session()
        broker.silent_marks = cuts
        broker.drop_clients()
        await log.submit([Message("a", b"behind", 2)])
        await until(lambda: b"behind" in payloads_over(broker, -1))
        await until(lambda: len(broker.pubrels[-1]) == 4)
    again = [b"0", b"1", b"2"] if is_replaced else []
    assert [one for at in range(1, len(broker.publishes)) for one in payloads_over(broker, at)] == [*again, b"behind"]


async def test_messages_go_again_if_a_full_disk_keeps_the_store_from_noting_so_and_the_gateway_is_killed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with scripted_broker(pubcomp=False) as broker:
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await released(log, broker)
            broker.session_present, broker.puback = False, silent
            with monkeypatch.context() as full:
                full.setattr(qos2_out, "begin_again", lambda *_: fail)
                broker.drop_clients()
                await until(lambda: len(broker.publishes) > 2)
            broker.session_present = True
            await until(lambda: len(broker.publishes[-1]) == 3)
        connections = len(broker.connects)
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):  # as after a kill
            await until(lambda: len(broker.connects) > connections and len(broker.publishes[-1]) == 3)
    assert payloads_over(broker, -1) == [b"0", b"1", b"2"]


async def test_messages_go_again_if_the_gateway_ends_once_it_has_found_that_the_session_is_another_one(
    tmp_path: Path,
) -> None:
    """Also if it ends before it has noted that."""
    async with scripted_broker(pubcomp=False) as broker:
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await released(log, broker)
            broker.replace_session()
            broker.silent_marks = 1
            broker.drop_clients()
            await until(lambda: not broker.silent_marks)
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await until(lambda: len(broker.publishes[-1]) == 3)
    assert payloads_over(broker, -1) == [b"0", b"1", b"2"]


async def test_at_qos_2_every_message_arrives_once_over_a_link_that_is_cut_again_and_again(
    tmp_path: Path, seed: int
) -> None:
    count = 1200
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        async with opened(tmp_path) as log, running(log, route_config(link.port, inflight_window=50)):
            messages = [Message("a", b"%d" % number, 2) for number in range(count)]
            await asyncio.gather(*(log.submit([message]) for message in messages))
            payloads: list[int] = []
            while len(payloads) < count:
                payloads.append(int((await get(received)).payload))
                if len(payloads) % 150 == 0:
                    await link.cut()
                    await link.open()
            await log.submit([Message("a", b"%d" % count, 2)])  # behind it nothing of the others comes
            while payloads[-1] != count:
                payloads.append(int((await get(received)).payload))
        await link.cut()
        assert sorted(payloads) == list(range(count + 1))


async def test_at_qos_2_every_message_arrives_once_from_a_gateway_that_is_killed_again_and_again(
    tmp_path: Path, seed: int
) -> None:
    count = 1500
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log:
            Route(route_config(port), "gateway-1", log)
            messages = [Message("a", b"%d" % number, 2) for number in range(count)]
            await asyncio.gather(*(log.submit([message]) for message in messages))
        payloads: list[int] = []
        while len(payloads) < count:
            command = [sys.executable, "-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port)]
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            goal = min(count, len(payloads) + 300)
            while len(payloads) < goal:
                payloads.append(int((await get(received)).payload))
            process.kill()
            await process.wait()
            while not received.empty():
                payloads.append(int(received.get().payload))
        assert sorted(payloads) == list(range(count))


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_message_that_was_not_released_goes_again_to_a_broker_that_has_forgotten_the_session(
    tmp_path: Path, is_restarted: bool
) -> None:
    """The broker has forgotten the message with the session, perhaps: it delivers it when it is released."""
    async with routed(tmp_path, pubcomp=False) as (broker, log):
        for payload in (b"1", b"2"):
            await log.submit([Message("a", payload, 2)])
        await until(lambda: bool(broker.pubrels) and len(broker.pubrels[-1]) == 2)
        if not is_restarted:
            broker.pubcomp = True
            broker.drop_clients()
            await until(lambda: len(broker.pubrels) == 2 and len(broker.pubrels[-1]) == 2)
    if is_restarted:
        async with routed(tmp_path) as (broker, log):
            await until(lambda: bool(broker.pubrels) and len(broker.pubrels[-1]) == 2)
    assert [(bytes(publish.payload), publish.dup) for publish in broker.publishes[-1]] == [(b"1", False), (b"2", False)]


async def sent_behind_an_early_pubrec(folder: Path, *, session_present: bool) -> list[bytes]:
    """Returns what a route sends over its second connection, on which a PUBREC for its message comes at once."""
    async with scripted_broker(puback=silent) as broker, opened(folder) as log:
        async with running(log, route_config(broker.port)):
            await log.submit([Message("a", b"1", 2)])
            await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
            (lost,) = broker.publishes[-1]
            assert lost.packet_identifier is not None
            broker.session_present, broker.early_pubrecs = session_present, [lost.packet_identifier]
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: len(broker.publishes) == 2)
            await log.submit([Message("a", b"2", 2)])
            await until(lambda: bool(broker.publishes[-1]) and bytes(broker.publishes[-1][-1].payload) == b"2")
        return [bytes(publish.payload) for publish in broker.publishes[-1]]


async def test_a_message_whose_pubrec_comes_before_it_goes_again_does_not_go_again(tmp_path: Path) -> None:
    """mosquitto sends such PUBRECs when it goes on with a session; the PUBLISH behind them would be a new message."""
    assert await sent_behind_an_early_pubrec(tmp_path, session_present=True) == [b"2"]


async def test_a_pubrec_of_a_broker_that_has_no_session_acknowledges_no_message_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    assert await sent_behind_an_early_pubrec(tmp_path, session_present=False) == [b"1", b"2"]


async def test_a_broker_that_takes_qos_1_at_most_gets_a_message_of_qos_2_at_qos_1(tmp_path: Path) -> None:
    async with routed(tmp_path, maximum_qos=1) as (broker, log):
        for qos in (2, 1):
            await log.submit([Message("a", b"%d" % qos, qos)])
        await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 2)
    assert [(bytes(publish.payload), publish.qos) for publish in broker.publishes[-1]] == [(b"2", 1), (b"1", 1)]


async def test_a_message_goes_again_even_if_the_connection_without_a_session_ends_at_once(tmp_path: Path) -> None:
    """The next connection has the session of that one, where the message is unknown."""
    async with scripted_broker(pubcomp=False) as broker, opened(tmp_path, commit_interval_ms=200) as log:
        async with running(log, route_config(broker.port)):
            await log.submit([Message("a", b"1", 2)])
            await until(lambda: bool(broker.pubrels) and bool(broker.pubrels[-1]))
            broker.hangs_up = True
            broker.drop_clients()
            await until(lambda: len(broker.connects) >= 2)
            broker.hangs_up, broker.pubcomp, broker.session_present = False, True, True
            await until(lambda: bool(broker.publishes[-1]))
        assert [bytes(publish.payload) for publish in broker.publishes[-1]] == [b"1"]


async def test_a_message_without_a_subscriber_is_released_first_over_a_new_connection(tmp_path: Path) -> None:
    """The broker has dropped its copy, and would take the PUBLISH for the one that it knows."""
    async with (
        scripted_broker(puback=lambda _: NO_MATCHING_SUBSCRIBERS, pubcomp=False) as broker,
        opened(tmp_path) as log,
        running(log, route_config(broker.port)),
    ):
        await log.submit([Message("a", b"1", 2)])
        await until(lambda: bool(broker.pubrels) and bool(broker.pubrels[-1]))
        broker.session_present, broker.pubcomp, broker.puback = True, True, lambda _: 0
        broker.drop_clients()
        await until(lambda: len(broker.pubrels) == 2 and len(broker.pubrels[-1]) == 2)
        (again,) = broker.publishes[-1]
        assert broker.pubrels[-1] == [again.packet_identifier] * 2


async def test_a_message_that_became_too_large_for_the_broker_is_released_and_set_aside(tmp_path: Path) -> None:
    """The broker may have it from the earlier connection, under this packet identifier."""
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        async with serving(route):
            await log.submit([Message("a", b"1" * 1000, 2)])
            await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
            (lost,) = broker.publishes[-1]
            broker.session_present, broker.maximum_packet_size = True, 500
            broker.drop_clients()
            await log.submit([Message("a", b"2", 2)])
            await until(lambda: len(broker.publishes) == 2 and bool(broker.publishes[-1]))
            (other,) = broker.publishes[-1]
            assert (other.payload, other.packet_identifier != lost.packet_identifier) == (b"2", True)
        assert [one.row.reason.partition(":")[0] for one in route.queue.refusals.all()] == ["oversize"]


async def test_a_begun_message_goes_at_qos_1_to_a_server_that_takes_no_qos_2(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = Route(route_config(broker.port), "gateway-1", log)
        async with serving(route):
            await log.submit([Message("a", b"1", 2)])
            await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
            broker.maximum_qos, broker.puback = 1, lambda _: 0
            broker.drop_clients()
            await log.submit([Message("a", b"2", 1)])
            await until(lambda: len(broker.publishes[-1]) == 2 and not route.queue.outgoing.flows)
        assert [(bytes(publish.payload), publish.qos) for publish in broker.publishes[-1]] == [(b"1", 1), (b"2", 1)]


@pytest.mark.parametrize("is_new", [True, False], ids=["no session", "the session of a former store"])
async def test_mosquitto_keeps_the_first_session_of_a_store_over_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_new: bool
) -> None:
    """It forgets one whose last CONNECT had Clean Start (2.0.11), and then QoS 2 messages in flight come twice."""
    caplog.set_level(logging.INFO, "uplink.route")
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    await asyncio.to_thread(broker.start)
    try:
        for store in ("here",) if is_new else ("former", "here"):
            caplog.clear()
            async with opened(tmp_path / store) as log, running(log, route_config(broker.port)):
                await until(lambda: "connected, session present: False" in caplog.text)
                if store == "here":
                    await asyncio.to_thread(broker.stop)
                    await asyncio.to_thread(broker.start)
                    await until(lambda: caplog.text.count("connected, session present: ") == 2)
        assert "connected, session present: True" in caplog.text
    finally:
        await asyncio.to_thread(broker.stop)
