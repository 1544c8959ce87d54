"""What a statement says: how many messages of each origin a route has sent, which it dropped, which are set aside."""

import asyncio
import itertools
import json
import random
import shutil
import sys
from pathlib import Path

import pytest

from gateway.message import Message
from tests.house.repository import ROOT
from tests.support.scripted_broker import scripted_broker
from tests.support.subscriber import subscriber
from tests.uplink.numbers_support import (
    STATING,
    all_statements,
    handed_on,
    identities,
    identity,
    joined,
    number_of,
    publish_from,
    route_to,
    via_of,
)
from tests.uplink.support import get, identity_of, opened, route_config, serving, until
from tools.lab.testing.mosquitto import mosquitto
from uplink.route import Route
from wire.bulk.column_batch import decode_batch
from wire.codec.packets import Publish
from wire.properties import CONTENT_TYPE
from wire.reasons import NOT_AUTHORIZED
from wire.route_numbers import (
    STATEMENT_TOPICS,
    VIA_PROPERTY,
    DroppedRange,
    HandedOn,
    Statement,
    decode_statement,
    decode_via,
)

BATCH_TOPICS = "holdfast/batch/"


async def test_statements_say_how_many_messages_of_each_origin_went_over_the_route(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, filters=("a",), statement_interval_s=STATING)
        async with serving(route):
            for lowest in (1, 101):
                await publish_from(log, "x", range(lowest, lowest + 10))
                await publish_from(log, "x", range(lowest + 10, lowest + 20), topic="another")
                await publish_from(log, "x", range(lowest + 20, lowest + 30))
                await publish_from(log, "y", range(lowest, lowest + 1))
                await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("y", lowest)])  # noqa: B023
                connections = len(broker.publishes)
                broker.drop_clients()
                await until(lambda: len(broker.publishes) > connections)  # noqa: B023
            await until(lambda: sum(one.messages for one in joined(all_statements(broker)).values()) == 42)
    found = all_statements(broker)
    assert joined(found) == {"x": HandedOn("x", 7, 130, 40, 1, 130), "y": HandedOn("y", 7, 101, 2, 1, 101)}
    assert {one[:3] for one in found} == {("gateway-1", "central", via_of(broker.publishes[0][0])[0])}
    assert [statement.dropped for statement in found] == [[] for _ in found]


async def test_a_statement_names_the_messages_that_the_route_dropped(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, statement_interval_s=STATING)
        await publish_from(log, "x", range(1, 4))
        await publish_from(log, "x", range(4, 7), expires_ms=1)
        await publish_from(log, "x", range(7, 8))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", 7)])
            broker.drop_clients()
            await until(lambda: sum(one.messages for one in joined(all_statements(broker)).values()) == 4)
    found = all_statements(broker)
    assert joined(found) == {"x": HandedOn("x", 7, 7, 4, 1, 7)}
    ranges = [one for statement in found for one in statement.dropped]
    assert set(ranges) == {DroppedRange("expired", "route/central", "x", 7, 4, 6, 3)}
    devices = [one for one in broker.publishes[0] if one.properties.get(CONTENT_TYPE) is None]
    assert [number_of(publish) for publish in devices] == [1, 2, 3, 7]


async def test_a_copied_store_states_no_range_whose_messages_were_never_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as log:
        await log.submit([Message("a", b"of the original", 1)])
    shutil.copytree(tmp_path / "store", tmp_path / "copy" / "store")
    async with scripted_broker() as broker, opened(tmp_path / "copy") as log:
        route = route_to(broker, log, statement_interval_s=STATING)
        await publish_from(log, "x", range(1, 4))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and bool(all_statements(broker)))
    assert "failure" not in caplog.text
    assert joined(all_statements(broker)) == {"x": HandedOn("x", 7, 3, 3, 1, 3)}
    assert [one.dropped for one in all_statements(broker)] == [[]]


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_statement_names_the_messages_that_are_set_aside(tmp_path: Path, qos: int) -> None:
    def answer(publish: Publish) -> int:
        return NOT_AUTHORIZED if publish.topic == "secret" else 0

    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, statement_interval_s=STATING)
        for seq, topic in enumerate(("a", "secret", "a", "secret", "secret", "a"), 1):
            await publish_from(log, "x", range(seq, seq + 1), topic=topic, qos=qos)
        async with serving(route):
            await until(lambda: route.queue.state.refused_messages == 3)
            for seq, refused in ((7, [(2, 2), (4, 5)]), (8, [])):
                await publish_from(log, "x", range(seq, seq + 1), qos=qos)
                await until(lambda seq=seq: identities(broker)[-1:] == [("x", seq)])  # type: ignore[misc]
                broker.drop_clients()
                await until(lambda refused=refused: [one.refused for one in all_statements(broker)][-1:] == [refused])  # type: ignore[misc]
                broker.puback = lambda _: 0
                route.queue.refusals.send_again()
                await until(lambda: route.queue.state.refused_messages == 0)


async def test_statements_of_very_many_ranges_have_some_each_and_repeat_no_message(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log, statement_interval_s=STATING)
        for number in range(450):
            await publish_from(log, f"device {number}", range(1, 2), expires_ms=1)
        await publish_from(log, "x", range(1, 2))
        async with serving(route):
            await until(lambda: identities(broker)[-1:] == [("x", 1)])
            broker.drop_clients()
            await until(lambda: sum(len(one.dropped) for one in all_statements(broker)) >= 450)
    found = all_statements(broker)
    assert joined(found)["x"] == HandedOn("x", 7, 1, 1, 1, 1)
    ranges = [one.origin for statement in found for one in statement.dropped]
    assert sorted(set(ranges)) == sorted(f"device {number}" for number in range(450))
    assert max(len(one.dropped) for one in found) <= 200


async def test_a_route_without_news_makes_no_statement(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        async with serving(route_to(broker, log, statement_interval_s=STATING)):
            await publish_from(log, "x", range(1, 2))
            await until(lambda: bool(broker.publishes) and identities(broker) == [("x", 1)])
            for connections in (2, 3):  # the statement of the second one is all that is new at the third one
                broker.drop_clients()
                await until(lambda: len(broker.publishes) == connections)  # noqa: B023
                await until(lambda: "x" in joined(all_statements(broker)))
            await publish_from(log, "x", range(2, 3))
            await until(lambda: identities(broker)[-1] == ("x", 2))
        before = list(itertools.takewhile(lambda one: not identity(one).endswith("/2/x"), broker.publishes[2]))
        again = {one.payload for sent in broker.publishes[:2] for one in sent}
        assert all(one.payload in again for one in before)


async def test_a_route_with_many_origins_makes_statements_between(tmp_path: Path) -> None:
    async with (
        scripted_broker() as broker,
        opened(tmp_path) as log,
        serving(route_to(broker, log, statement_interval_s=STATING)),
    ):
        for number in range(450):
            await publish_from(log, f"device {number}", range(1, 2))
        await until(lambda: len(set(identities(broker))) == 450)
        broker.drop_clients()
        await until(lambda: len(joined(all_statements(broker))) == 450)
    found = all_statements(broker)
    assert len(found) >= 2
    assert max(len(statement.origins) for statement in found) < 450
    assert {one.messages for one in joined(found).values()} == {1}


@pytest.mark.parametrize("is_batch", [False, True])
async def test_statements_count_each_message_once_over_kills_of_the_gateway(
    tmp_path: Path, seed: int, is_batch: bool
) -> None:
    dice = random.Random(seed)
    count = 600
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log:
            Route(route_config(port), "gateway-1", log)
            for qos, seqs in ((1, range(1, count // 2 + 1)), (2, range(count // 2 + 1, count + 1))):
                messages = [Message("a", b"0", qos, origin="x", epoch=7, seq=seq) for seq in seqs]
                await asyncio.gather(*(log.submit([message]) for message in messages))
        found: dict[int, Statement] = {}
        numbers: dict[int, set[int]] = {}  # of the link, by seq

        async def get_one() -> None:
            message = await get(received)
            runs = decode_via(dict(message.properties.UserProperty)[VIA_PROPERTY]).runs  # type: ignore[union-attr]
            given = [number for first, last in runs for number in range(first, last + 1)]
            if message.topic.startswith(BATCH_TOPICS):
                got = [(one.topic, one.payload, one.seq) for one in decode_batch(bytes(message.payload)).messages()]
            else:
                got = [(message.topic, bytes(message.payload), identity_of(message)[2])]
            for (topic, payload, seq), number in zip(got, given, strict=True):
                if topic.startswith(STATEMENT_TOPICS):
                    statement = decode_statement(payload)
                    assert found.setdefault(statement.statement, statement) == statement
                else:
                    numbers.setdefault(seq, set()).add(number)

        command = [sys.executable, "-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port)]
        in_batches = {"framing": "batch", "batch_max_messages": 10, "batch_max_age_ms": 100}
        command.append(json.dumps({"statement_interval_s": 1, **(in_batches if is_batch else {})}))
        while len(numbers) < count:
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            goal = min(count, len(numbers) + dice.randrange(50, 200))
            while len(numbers) < goal:
                await get_one()
            process.kill()
            await process.wait()
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        while sum(one.messages for said in found.values() for one in handed_on(said)) < count:
            await get_one()
        process.kill()
        await process.wait()
    assert {len(of_one) for of_one in numbers.values()} == {1}
    assert len(set.union(*numbers.values())) == count
    assert joined([found[number] for number in sorted(found)])["x"] == HandedOn("x", 7, count, count, 1, count)
