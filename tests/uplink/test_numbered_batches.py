"""Route numbers for messages in column batches: one property names the numbers of all messages in a PUBLISH."""

import time
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.uplink.link_receiver import received_from
from tests.uplink.support import opened, route_config, serving, until
from uplink.route import Route
from wire.bulk.column_batch import CONTENT_TYPE, decode_batch
from wire.codec.packets import Publish
from wire.identity import find_user_property
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.reasons import IMPLEMENTATION_SPECIFIC_ERROR
from wire.route_numbers import VIA_PROPERTY, decode_via

Numbered = list[tuple[int, int]]
"""Payload and route number of each message."""


def route_to(broker: ScriptedBroker, log: MessageLog, **keys: object) -> Route:
    in_batches = {"framing": "batch", "batch_max_messages": 10, "batch_max_age_ms": 100, **keys}
    return Route(route_config(broker.port, **in_batches), "gateway-1", log)


async def fill(log: MessageLog, payloads: range, qos: int, **fields: object) -> None:
    for one in payloads:
        await log.submit([Message("a", b"%d" % one, qos, origin="a", epoch=7, seq=one, **fields)])  # type: ignore[arg-type]


def numbered(publish: Publish) -> Numbered:
    text = find_user_property(publish.properties, VIA_PROPERTY)
    assert text is not None
    epoch, runs, gateway, route = decode_via(text)
    assert (gateway, route) == ("gateway-1", "central") and epoch
    numbers = [number for first, last in runs for number in range(first, last + 1)]
    is_batch = publish.properties.get(CONTENT_TYPE_PROPERTY) == CONTENT_TYPE
    payloads = [one.payload for one in decode_batch(publish.payload).messages()] if is_batch else [publish.payload]
    return list(zip(map(int, payloads), numbers, strict=True))


def in_all(publishes: list[Publish]) -> Numbered:
    return [one for publish in publishes for one in numbered(publish)]


def alike(payloads: range) -> Numbered:
    return [(payload, payload) for payload in payloads]


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_batch_names_the_numbers_of_its_messages_once(tmp_path: Path, qos: int) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 26), qos)
        async with serving(route):
            await until(lambda: log.space.needed_from == 25)
        first, second, third = broker.publishes[0]
    assert [*map(numbered, (first, second, third))] == [alike(range(1, 11)), alike(range(11, 21)), alike(range(21, 26))]
    texts = [
        value.split("/", 1)[1]
        for value in (find_user_property(one.properties, VIA_PROPERTY) or "" for one in (first, third))
    ]
    assert texts == ["1-10/gateway-1/central", "21-25/gateway-1/central"]


@pytest.mark.parametrize("qos", [1, 2])
async def test_an_expired_message_leaves_a_hole_in_the_numbers_of_its_batch(tmp_path: Path, qos: int) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        for number in range(1, 8):
            await fill(log, range(number, number + 1), qos, expires_ms=1 if number in (3, 4) else 0)
        async with serving(route):
            await until(lambda: log.space.needed_from == 7)
    assert in_all(broker.publishes[0]) == [*alike(range(1, 3)), *alike(range(5, 8))]


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_retained_message_that_goes_by_itself_has_its_number(tmp_path: Path, qos: int) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        for number in range(1, 6):
            await fill(log, range(number, number + 1), qos, retain=number == 3)
        async with serving(route):
            await until(lambda: log.space.needed_from == 5)
    assert len(broker.publishes[0]) == 3
    assert in_all(broker.publishes[0]) == alike(range(1, 6))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_messages_in_batches_that_go_again_have_the_same_numbers(
    tmp_path: Path, qos: int, is_restarted: bool
) -> None:
    async with scripted_broker(puback=silent) as broker:
        async with opened(tmp_path) as log, serving(route_to(broker, log)):
            await fill(log, range(1, 26), qos)
            await until(lambda: bool(broker.publishes) and len(in_all(broker.publishes[0])) == 25)
            await log.submit([])
            if not is_restarted:
                broker.drop_clients()
                await until(lambda: len(broker.publishes) == 2 and len(in_all(broker.publishes[1])) == 25)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log, serving(route_to(broker, log, batch_max_messages=7)):
            await fill(log, range(26, 31), qos)
            await until(lambda: log.space.needed_from == 30)
    for publishes in broker.publishes:
        assert sorted(in_all(publishes)) == alike(range(1, 1 + len(in_all(publishes))))
    assert len(in_all(broker.publishes[-1])) == 30


@pytest.mark.parametrize("qos", [1, 2])
async def test_halves_of_a_refused_batch_have_the_numbers_of_their_messages_and_so_has_what_is_set_aside(
    tmp_path: Path, qos: int
) -> None:
    def refuse(publish: Publish) -> int:
        return IMPLEMENTATION_SPECIFIC_ERROR if any(payload == 7 for payload, _ in numbered(publish)) else 0

    async with scripted_broker(puback=refuse) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 11), qos)
        async with serving(route):
            await until(lambda: route.queue.state.refused_messages == 1 and log.space.needed_from == 6)
            assert len(broker.publishes[0]) > 3
            assert set(in_all(broker.publishes[0])) == set(alike(range(1, 11)))
            broker.puback = lambda _: 0
            assert route.queue.refusals.send_again() == 1
            await until(lambda: log.space.needed_from == 10)
    assert set(in_all(broker.publishes[0])) == set(alike(range(1, 11)))
    assert numbered(broker.publishes[0][-1]) == [(7, 7)]


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_is_left_of_a_batch_of_which_a_full_store_has_evicted_messages_keeps_its_numbers(
    tmp_path: Path, qos: int
) -> None:
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 21), qos)
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(in_all(broker.publishes[0])) == 20)
            await log.eviction.evict(4, 0)
        broker.puback = lambda _: 0
    async with scripted_broker() as broker, opened(tmp_path) as log, serving(route_to(broker, log)):
        await until(lambda: log.space.needed_from == 20)
    assert sorted(in_all(broker.publishes[0])) == alike(range(5, 21))


async def test_a_statement_counts_a_retained_message_that_goes_by_itself_among_batches(tmp_path: Path) -> None:
    wanted = {("a", 7, seq) for seq in range(1, 6)}
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, statement_interval_s=3600)
        for number in range(1, 6):
            await fill(log, range(number, number + 1), 1, retain=number == 3)
        async with serving(route):
            await until(lambda: log.space.needed_from >= 5)
            broker.drop_clients()
            await until(lambda: wanted <= received_from(broker.publishes).covered())
    assert received_from(broker.publishes).lost() == []


async def test_a_batch_has_no_more_runs_of_numbers_than_a_property_may_name(tmp_path: Path) -> None:
    count, past_ms = 4400, int(time.time() * 1000) - 1
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, batch_max_messages=10_000, batch_max_age_ms=4000)  # no batch ends by its age
        messages = [Message("a", b"%d" % one, expires_ms=past_ms if one % 2 else 0) for one in range(1, count + 1)]
        for at in range(0, count, 400):
            await log.submit(messages[at : at + 400])
        async with serving(route):
            await until(lambda: log.space.needed_from == count)
    assert in_all(broker.publishes[0]) == [(number, number) for number in range(2, count + 1, 2)]
    assert len(broker.publishes[0]) == 3
