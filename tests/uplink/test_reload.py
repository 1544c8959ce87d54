"""Routes change while the gateway runs, and none loses its place."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.message import Message
from gateway.store import Endings, MessageLog, qos2
from gateway.store.qos2_out import Outgoing
from tests.gateway.store.support import stored
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.uplink.support import append, opened, raw_broker, route_config, until
from uplink.config.route import RouteConfig
from uplink.connect.remote import Remote
from uplink.queue.status import RouteStatus
from uplink.routes import Routes
from wire.bulk.column_batch import decode_batch


@asynccontextmanager
async def steered(log: MessageLog, *configs: RouteConfig) -> AsyncIterator[Routes]:
    endings = Endings(log)
    routes = Routes(list(configs), "gateway-1", log, endings)
    endings.open()
    task = asyncio.create_task(routes.run())
    try:
        yield routes
    finally:
        task.cancel()
        await asyncio.wait({task})
        await endings.close()


def status(routes: Routes, name: str = "central") -> RouteStatus:
    return next(one for one in routes.status() if one.name == name)


def numbers(broker: ScriptedBroker) -> list[int]:
    return [int(publish.payload) for publishes in broker.publishes for publish in publishes]


def named(name: str, broker: ScriptedBroker, **keys: object) -> RouteConfig:
    return route_config(broker.port, **{"name": name, **keys})


async def test_a_route_that_is_added_begins_and_the_others_stay_connected(tmp_path: Path) -> None:
    async with (
        scripted_broker() as first,
        scripted_broker() as second,
        opened(tmp_path) as log,
        steered(log, named("first", first)) as routes,
    ):
        await append(log, range(1, 3))
        await until(lambda: len(numbers(first)) == 2)
        routes.reload([named("second", second), named("first", first)])
        await until(lambda: len(second.connects) == 1)
        assert [state.name for state in routes.states] == ["second", "first"]
        await append(log, range(3, 5))
        await until(lambda: numbers(first) == [1, 2, 3, 4] and numbers(second) == [3, 4])
        assert len(first.connects) == 1


async def test_a_route_whose_broker_changes_goes_on_at_its_place(tmp_path: Path) -> None:
    async with (
        scripted_broker(puback=lambda publish: 0 if int(publish.payload) <= 3 else None) as old,
        scripted_broker(session_present=True) as new,
        opened(tmp_path) as log,
        steered(log, named("central", old)) as routes,
    ):
        await append(log, range(1, 7))
        await until(lambda: len(numbers(old)) == 6 and status(routes).backlog_messages == 3)
        routes.reload([named("central", new, inflight_window=2)])
        await until(lambda: status(routes).backlog_messages == 0)
        assert (numbers(new), len(old.disconnects)) == ([4, 5, 6], 1)
        assert [connect.clean_start for connect in new.connects] == [False, True, False], "it is another server"
        assert status(routes).broker == f"mqtt://127.0.0.1:{new.port}"


async def test_a_qos_2_message_in_flight_while_the_route_changes_goes_exactly_once(tmp_path: Path) -> None:
    async with (
        scripted_broker(pubcomp=False) as broker,
        opened(tmp_path) as log,
        steered(log, named("central", broker)) as routes,
    ):
        await log.submit([Message("a", b"1", 2)])
        await until(lambda: bool(broker.pubrels) and len(broker.pubrels[-1]) == 1)
        broker.pubcomp = broker.session_present = True
        routes.reload([named("central", broker, keep_alive_s=60)])
        await until(lambda: status(routes).backlog_messages == 0 and len(broker.connects) == 2)
        await log.submit([Message("a", b"2", 2)])
        await until(lambda: numbers(broker) == [1, 2])
        assert broker.pubrels[1][0] == broker.pubrels[0][0]


async def test_a_removed_route_keeps_its_queue_and_goes_on_when_it_is_there_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with scripted_broker() as broker, opened(tmp_path) as log:
        config = named("central", broker)
        async with steered(log, config) as routes:
            await append(log, range(1, 3))
            await until(lambda: status(routes).backlog_messages == 0)
            routes.reload([])
            await until(lambda: "route central is no longer configured" in caplog.text)
            await append(log, range(3, 6))
            assert (status(routes).problem, status(routes).backlog_messages) == ("it is no longer configured", 3)
            assert (routes.states, len(broker.disconnects)) == ([], 1)
            routes.reload([config])
            await until(lambda: numbers(broker) == [1, 2, 3, 4, 5])
            routes.reload([])
            await until(lambda: status(routes).problem == "it is no longer configured")
            assert await routes.forget("central") == 0
            assert routes.status() == []


@pytest.mark.parametrize("at", ["reload", "start"])
async def test_what_new_filters_do_not_take_leaves_a_range_and_the_rest_goes(tmp_path: Path, at: str) -> None:
    async with scripted_broker(puback=lambda _: None) as broker:
        old = named("central", broker, filters=("a/#", "b/#"), inflight_window=1)
        new = named("central", broker, filters=("b/#", "c/#"))
        async with opened(tmp_path) as log, steered(log, old) as routes:
            await until(lambda: len(broker.connects) == 1)
            for seq, topic in enumerate(("b/x", "a/x", "a/x", "b/x", "a/x", "b/x"), 1):
                await log.submit([Message(topic, b"%d" % seq, origin="o", epoch=7, seq=seq)])
            await until(lambda: numbers(broker) == [1])
            if at == "reload":
                broker.puback = lambda _: 0
                routes.reload([new])
                await until(lambda: status(routes).backlog_messages == 0)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log, steered(log, new) as routes:
            await log.submit([Message("c/x", b"7", origin="o", epoch=7, seq=7)])
            await log.submit([Message("a/x", b"8", origin="o", epoch=7, seq=8)])
            await until(lambda: numbers(broker)[-1] == 7 and status(routes).backlog_messages == 0)
            assert numbers(broker) == [1, 1, 4, 6, 7]
    ranges = stored(tmp_path / "store", "SELECT reason, consumer, origin, epoch, first, last, messages FROM dropped")
    assert ranges == [("ended", "route/central", "o", 7, 2, 5, 3)]


async def test_new_limits_hold_for_what_waits(tmp_path: Path) -> None:
    async with scripted_broker(puback=lambda _: None) as broker, opened(tmp_path) as log:
        async with steered(log, named("central", broker, inflight_window=1)) as routes:
            await append(log, range(1, 8))
            await until(lambda: numbers(broker) == [1])
            broker.puback = lambda _: 0
            routes.reload([named("central", broker, max_messages=3)])
            await until(lambda: status(routes).backlog_messages == 0)
        assert numbers(broker)[-2:] == [6, 7]


async def test_changes_that_follow_each_other_end_with_the_last_one(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log, steered(log) as routes:
        for keep_alive_s in range(10, 20):
            routes.reload([named("central", broker, keep_alive_s=keep_alive_s)])
            await asyncio.sleep(0)
        await until(lambda: bool(broker.connects) and broker.connects[-1].keep_alive_s == 19)
        await append(log, range(1, 3))
        await until(lambda: numbers(broker) == [1, 2])


async def test_a_change_takes_effect_also_if_the_end_of_the_old_connection_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers no CONNECT."""

    def fail(self: Remote, reason: str) -> None:
        monkeypatch.undo()
        self.close(reason)
        raise RuntimeError("the handler is closed")

    async with (
        raw_broker(talk) as old,
        scripted_broker() as new,
        opened(tmp_path) as log,
        steered(log, route_config(old)) as routes,
    ):
        await append(log, range(1, 3))
        monkeypatch.setattr(Remote, "close", fail)
        routes.reload([named("central", new)])
        await until(lambda: numbers(new) == [1, 2])
        await until(lambda: status(routes).backlog_messages == 0)


async def test_a_batch_in_flight_while_the_route_changes_goes_to_the_next_broker(tmp_path: Path) -> None:
    async with (
        scripted_broker(puback=silent) as old,
        scripted_broker() as new,
        opened(tmp_path) as log,
        steered(log, named("central", old, framing="batch", batch_max_messages=3)) as routes,
    ):
        await append(log, range(1, 6))
        await until(lambda: any(old.publishes) and len(old.publishes[0]) == 1)
        routes.reload([named("central", new, framing="batch", batch_max_messages=5)])
        await until(lambda: status(routes).backlog_messages == 0)
        batches = [decode_batch(publish.payload) for publishes in new.publishes for publish in publishes]
        assert [int(one.payload) for batch in batches for one in batch.messages()] == [1, 2, 3, 4, 5]


async def test_a_qos_2_batch_that_begins_while_the_route_changes_goes_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes while the batch is being stored, so it is in flight before it has been sent."""
    begin = Outgoing.begin

    async def begin_while_it_changes(self: Outgoing, *args: Any) -> dict[int, qos2.Flow]:
        routes.reload([named("central", broker)])
        return await begin(self, *args)

    monkeypatch.setattr(Outgoing, "begin", begin_while_it_changes)
    async with (
        scripted_broker(session_present=True) as broker,
        opened(tmp_path, commit_interval_ms=200) as log,
        steered(log, named("central", broker, framing="batch", batch_max_messages=5)) as routes,
    ):
        await asyncio.gather(*(log.submit([Message("a", b"%d" % number, 2)]) for number in range(1, 6)))
        await until(lambda: status(routes).acknowledged_ms > 0 and status(routes).backlog_messages == 0)
        await log.submit([Message("a", b"6", 2)])
        await until(lambda: b"6" in [publish.payload for publishes in broker.publishes for publish in publishes])
        batch, *others = (publish.payload for publishes in broker.publishes for publish in publishes)
        assert [one.payload for one in decode_batch(batch).messages()] == [b"1", b"2", b"3", b"4", b"5"]
        assert others == [b"6"]


async def test_a_route_that_was_gone_over_a_restart_numbers_and_sends_what_waited(tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        config = named("central", broker, statement_interval_s=1)
        async with opened(tmp_path) as log, steered(log, config):
            await append(log, range(1, 3))
            await until(lambda: len(broker.publishes) > 0 and len(broker.publishes[0]) >= 2)
        async with opened(tmp_path) as log, steered(log) as routes:
            await append(log, range(3, 5))
            assert status(routes).broker == ""
            routes.reload([config])
            await until(lambda: {b"3", b"4"} <= {one.payload for one in broker.publishes[-1]})
            assert routes.states[0].fault == ""
