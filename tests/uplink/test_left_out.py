"""What a route leaves out, over kills and changes of its filters: what it hands on later is named by no statement."""

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.store import Cursor, Endings
from gateway.store.sqlite import marks
from gateway.store.sqlite.folder import MESSAGES
from tests.gateway.store.support import leave_as_killed
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.numbers_support import (
    STATING,
    all_statements,
    identities,
    identity,
    left_out,
    publish_from,
    route_to,
    statements,
)
from tests.uplink.support import opened, route_config, serving, until
from uplink.route import Route
from wire.codec.packets import Publish
from wire.identity import decode_identity


def named_by(broker: ScriptedBroker) -> set[int]:
    """The seqs of x that any statement names as left out; those of both lives have the same numbers."""
    said = [one for number in range(len(broker.publishes)) for one in statements(broker, number)]
    return {seq for lo, hi in left_out(said).get("x", []) for seq in range(lo, hi + 1)}


STORED = (("a", range(1, 3)), ("b", range(3, 5)), ("a", range(5, 7)), ("c", range(7, 9)), ("a", range(9, 11)))
TAKEN = (1, 2, 5, 6, 9, 10)
"""The messages that the filter `a` takes."""
LAST = 13


@pytest.mark.parametrize("end", ["killed", "closed"])
@pytest.mark.parametrize("acknowledged", range(len(TAKEN) + 1))
async def test_what_goes_after_a_restart_with_other_filters_is_not_named_as_left_out(
    tmp_path: Path, acknowledged: int, end: str
) -> None:
    """The restart is behind each acknowledgement, with the last one also behind a statement."""

    def answer(publish: Publish) -> int | None:
        origin, _, seq = decode_identity(identity(publish))
        return 0 if origin != "x" or seq in TAKEN[:acknowledged] else None

    first, again = tmp_path / "first", tmp_path / "again"
    async with scripted_broker(puback=answer) as broker:
        async with opened(first) as log:
            route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
            Cursor(log, "keeper", ["#"])  # the messages stay until the route has looked through them
            for topic, seqs in STORED:
                await publish_from(log, "x", seqs, topic=topic)
            await publish_from(log, "x", range(11, LAST), topic="b")
            async with serving(route):
                await until(lambda: ("x", 10) in identities(broker))
                await until(lambda: route.queue.lanes.live.count >= acknowledged)  # a statement counts too
                if acknowledged == len(TAKEN):
                    broker.drop_clients()
                    await until(lambda: named_by(broker) >= {3, 4, 7, 8})
                again.mkdir()
                leave_as_killed(first / "store", again / "store")
        if end == "closed":
            again = first
        else:
            with contextlib.closing(sqlite3.connect(again / "store" / MESSAGES, isolation_level=None)) as connection:
                marks.save(connection, replace(marks.load(connection), file_id=0, wal_bytes=0))
        before = len(broker.publishes)
        broker.puback = lambda _: 0
        async with opened(again) as log:
            filters = route_config(broker.port, filters=("a", "b"), statement_interval_s=STATING)
            route = route_to(broker, log, filters=("a", "b"), statement_interval_s=STATING)
            route.queue.change(filters.queue_settings("gateway-1"), Endings(log))
            await publish_from(log, "x", range(LAST, LAST + 1), topic="c")
            await publish_from(log, "x", range(LAST + 1, LAST + 2))
            async with serving(route):
                await until(lambda: identities(broker)[-1:] == [("x", LAST + 1)])
                broker.drop_clients()
                await until(lambda: LAST in named_by(broker))
    sent = {decode_identity(identity(one)) for publishes in broker.publishes[before:] for one in publishes}
    handed = {seq for origin, _, seq in sent if origin == "x"}
    assert handed & named_by(broker) == set()
    assert named_by(broker) >= {7, 8, LAST}, "what no filter took is named"


async def test_statements_name_what_the_filters_leave_out_and_nothing_else(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
        await publish_from(log, "x", range(1, 4))
        await publish_from(log, "x", range(4, 6), topic="another")
        await publish_from(log, "x", range(6, 8), expires_ms=1)
        await publish_from(log, "x", range(8, 10), topic="another")
        await publish_from(log, "x", range(10, 11))
        await publish_from(log, "silent", range(1, 3), topic="another")
        async with serving(route):
            await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", 10)])
            broker.drop_clients()
            await until(lambda: "x" in left_out(all_statements(broker)))
    assert left_out(all_statements(broker)) == {"x": [(4, 5), (8, 9)], "silent": [(1, 2)]}


async def test_what_was_left_out_is_named_after_a_restart_and_once_the_route_has_come_past_it(tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        async with opened(tmp_path) as log:
            route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
            await publish_from(log, "x", range(1, 4), topic="another")
            await publish_from(log, "x", range(4, 5))
            await publish_from(log, "x", range(5, 7), topic="another")
        async with opened(tmp_path) as log:
            route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
            await publish_from(log, "x", range(7, 9), topic="another")
            await publish_from(log, "x", range(9, 10))
            async with serving(route):
                await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", 9)])
                broker.drop_clients()
                await until(lambda: "x" in left_out(all_statements(broker)))
    assert left_out(all_statements(broker)) == {"x": [(1, 3), (5, 8)]}


async def test_what_another_route_hands_on_to_the_same_broker_is_not_left_out(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
        other = Route(route_config(broker.port, name="other", filters=("another",)), "gateway-1", log)
        await publish_from(log, "x", range(1, 3))
        await publish_from(log, "x", range(3, 5), topic="another")
        await publish_from(log, "x", range(5, 7), topic="unrouted")
        await publish_from(log, "x", range(7, 8))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", 7)])
            broker.drop_clients()
            await until(lambda: "x" in left_out(all_statements(broker)))
    assert other.queue.name == "other"
    assert left_out(all_statements(broker)) == {"x": [(5, 6)]}


async def test_messages_that_other_filters_take_later_are_not_named_as_left_out(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
        keeper = Cursor(log, "keeper", ["#"])
        await publish_from(log, "x", range(1, 3))
        await publish_from(log, "x", range(3, 5), topic="b")
        await publish_from(log, "x", range(5, 7), topic="c")
        changed = route_config(broker.port, filters=("a", "b"), statement_interval_s=STATING)
        route.queue.change(changed.queue_settings("gateway-1"), Endings(log))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", 4)])
            broker.drop_clients()
            await until(lambda: "x" in left_out(all_statements(broker)))
        keeper.close()
    assert left_out(all_statements(broker)) == {"x": [(5, 6)]}
