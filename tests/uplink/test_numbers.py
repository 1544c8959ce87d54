"""Route numbers: each message that a route hands on has one, and the same whenever it is sent again."""

import asyncio
import itertools
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.message import Message
from gateway.store import Cursor, Endings, MessageLog
from tests.house.repository import ROOT
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.support.subscriber import subscriber
from tests.uplink.support import backlog_is, get, identity_of, opened, route_config, serving, until
from tools.lab.testing.mosquitto import mosquitto
from uplink.route import Route
from wire.bulk.column_batch import decode_batch
from wire.codec.packets import MQTT_3_1_1, Connack, Publish
from wire.identity import IDENTITY_PROPERTY, decode_identity, find_user_property
from wire.properties import CONTENT_TYPE, USER_PROPERTY
from wire.reasons import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED, UNSUPPORTED_PROTOCOL_VERSION
from wire.route_numbers import (
    STATEMENT_TOPICS,
    STATEMENT_TYPE,
    VIA_PROPERTY,
    DroppedRange,
    HandedOn,
    Statement,
    Via,
    decode_statement,
    decode_via,
    join_runs,
)


def route_to(broker: ScriptedBroker, log: MessageLog, **keys: object) -> Route:
    return Route(route_config(broker.port, **keys), "gateway-1", log)


async def fill(log: MessageLog, payloads: range, *, qos: int | None = None, topic: str = "a") -> None:
    """Stores messages, at QoS 1 and 2 by turns unless one is given."""
    for number in payloads:
        await log.submit([Message(topic, b"%d" % number, 1 + number % 2 if qos is None else qos)])


def via_of(publish: Publish) -> Via:
    text = find_user_property(publish.properties, VIA_PROPERTY)
    assert text is not None
    return decode_via(text)


def number_of(publish: Publish) -> int:
    """The route number of a message that goes by itself."""
    ((first, last),) = via_of(publish).runs
    assert first == last
    return first


def numbers(publishes: list[Publish]) -> list[tuple[int, int]]:
    """Payload and route number of each message."""
    return [(int(publish.payload), number_of(publish)) for publish in publishes]


def numbered_alike(payloads: range) -> list[tuple[int, int]]:
    return [(payload, payload) for payload in payloads]


@pytest.mark.parametrize("qos", [1, 2, None])
async def test_a_route_numbers_the_messages_that_it_hands_on_and_not_those_that_its_filters_leave_out(
    tmp_path: Path, qos: int | None
) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log, serving(route_to(broker, log, filters=("a",))):
        for number in range(1, 301):
            await fill(log, range(number, number + 1), qos=qos)
            await fill(log, range(number, number + 1), topic="another")
        await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 300)
    assert numbers(broker.publishes[0]) == numbered_alike(range(1, 301))
    (link,) = {(epoch, gateway, route) for epoch, _, gateway, route in map(via_of, broker.publishes[0])}
    assert link[1:] == ("gateway-1", "central")


async def test_a_message_has_its_number_behind_its_identity_and_the_numbers_of_earlier_links(tmp_path: Path) -> None:
    earlier = (VIA_PROPERTY, "00000007/12/gateway-0/up")
    async with scripted_broker() as broker, opened(tmp_path) as log, serving(route_to(broker, log)):
        for retain in (False, True):  # many at once, and one by itself
            await log.submit([Message("a", b"", 1, retain, properties={USER_PROPERTY: [earlier]})])
        await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 2)
    for number, publish in enumerate(broker.publishes[0], 1):
        names = [name for name, _ in publish.properties[USER_PROPERTY]]
        assert names == [VIA_PROPERTY, "hf-hops", "hf-id", "hf-received", VIA_PROPERTY]
        assert publish.properties[USER_PROPERTY][0] == earlier
        assert decode_via(publish.properties[USER_PROPERTY][-1][1])[1:] == ([(number, number)], "gateway-1", "central")


@pytest.mark.parametrize("qos", [1, 2, None])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_message_that_is_sent_again_has_the_same_number(
    tmp_path: Path, qos: int | None, is_restarted: bool
) -> None:
    async with scripted_broker(puback=lambda p: 0 if int(p.payload) <= 20 else None) as broker:
        async with opened(tmp_path) as log, serving(route_to(broker, log)):
            await fill(log, range(1, 51), qos=qos)
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 50)
            await log.submit([])
            if not is_restarted:
                broker.drop_clients()
                await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[1]) == 30)
        async with opened(tmp_path) as log, serving(route_to(broker, log)):
            await fill(log, range(51, 61), qos=qos)
            await until(lambda: len(broker.publishes) >= 2 and len(broker.publishes[-1]) == 40)
    assert numbers(broker.publishes[0]) == numbered_alike(range(1, 51))
    for again in broker.publishes[1:]:
        assert sorted(numbers(again)) == numbered_alike(range(21, 21 + len(again)))
    assert len({via_of(publish)[0] for publishes in broker.publishes for publish in publishes}) == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_refused_message_keeps_its_number_until_it_goes_again(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(puback=lambda p: NOT_AUTHORIZED if p.payload == b"4" else 0) as broker:
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            async with serving(route):
                await fill(log, range(1, 11), qos=qos)
                await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 10)
                await until(lambda: route.queue.state.refused_messages == 1)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            async with serving(route):
                assert route.queue.refusals.send_again() == 1
                await until(lambda: any(p.payload == b"4" for p in broker.publishes[-1]) and len(broker.publishes) == 2)
    assert numbers(broker.publishes[0]) == numbered_alike(range(1, 11))
    assert set(numbers(broker.publishes[1])) <= set(numbered_alike(range(1, 11)))


async def test_messages_that_a_full_store_dropped_on_their_way_leave_the_numbers_of_the_others_as_they_were(
    tmp_path: Path,
) -> None:
    async with scripted_broker(puback=silent) as broker:
        async with opened(tmp_path) as log, serving(route_to(broker, log)):
            await fill(log, range(1, 11), qos=1)
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 10)
            await log.eviction.evict(4, 0)
        async with opened(tmp_path) as log, serving(route_to(broker, log)):
            await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[1]) == 6)
    assert numbers(broker.publishes[1]) == numbered_alike(range(5, 11))


async def test_after_a_kill_messages_behind_evicted_ones_have_the_numbers_that_they_had(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker:
        async with opened(tmp_path) as log:
            route_to(broker, log)
            await fill(log, range(1, 11), qos=1)
        command = [
            sys.executable,
            "-m",
            "tests.uplink.route_process",
            str(tmp_path / "store"),
            str(broker.port),
            "{}",
            "evicts",
        ]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None and await process.stdout.readline() == b"evicted\n"
        process.kill()
        await process.wait()
        async with opened(tmp_path) as log, serving(route_to(broker, log)):
            await until(lambda: len(broker.publishes) == 2 and len(broker.publishes[1]) == 6)
    assert numbers(broker.publishes[0]) == numbered_alike(range(1, 11))
    assert numbers(broker.publishes[1]) == numbered_alike(range(5, 11))


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_copied_store_and_other_filters_begin_an_epoch_of_numbers(tmp_path: Path, qos: int) -> None:
    epochs: list[int] = []
    async with scripted_broker(puback=silent) as broker:
        folder, filters, qos0 = tmp_path, ["#"], "store"
        for step in ("new", "restarted", "a copy", "restarted", "other filters", "without QoS 0", "restarted"):
            if step == "a copy":
                shutil.copytree(tmp_path / "store", tmp_path / "copy" / "store")
                folder = tmp_path / "copy"
            if step == "other filters":
                filters = ["a", "b"]
            if step == "without QoS 0":
                qos0 = "drop"
            async with opened(folder) as log:
                route = route_to(broker, log, filters=tuple(filters), qos0=qos0)
                route.queue.change_filters(tuple(filters), Endings(log))
                async with serving(route):
                    await fill(log, range(len(epochs), len(epochs) + 1), qos=qos)
                    await until(lambda: len(broker.publishes) == len(epochs) + 1)
                    await until(lambda: len(broker.publishes[-1]) == len(epochs) + 1)
            epochs.append(via_of(next(p for p in broker.publishes[-1] if int(p.payload) == len(epochs))).epoch)
    assert len(set(epochs)) == 4
    assert [epochs[0], epochs[2], epochs[5]] == [epochs[1], epochs[3], epochs[6]]
    again = {int(publish.payload): via_of(publish).epoch for publish in broker.publishes[-1]}
    # A flow keeps the number with which it began. The cursor counts the others anew.
    assert again == dict(enumerate(epochs if qos == 2 else [epochs[-1]] * len(epochs)))


@pytest.mark.parametrize("qos", [1, 2])
async def test_over_mqtt_3_1_1_messages_have_no_numbers_and_behind_it_an_epoch_begins(tmp_path: Path, qos: int) -> None:
    refuses = Connack(False, UNSUPPORTED_PROTOCOL_VERSION).encode(MQTT_3_1_1)
    vias: list[Via] = []
    for number, refusal in enumerate((None, None, refuses, None)):
        async with (
            scripted_broker(mqtt_5_refusal=refusal) as broker,
            opened(tmp_path) as log,
            serving(route_to(broker, log)),
        ):
            await fill(log, range(number, number + 1), qos=qos)
            await until(lambda: log.space.needed_from == number + 1)  # noqa: B023
        (publish,) = broker.publishes[-1]
        if refusal is None:
            vias.append(via_of(publish))
        else:
            assert publish.properties == {}
    assert [via.runs for via in vias] == [[(1, 1)], [(2, 2)], [(4, 4)]]
    assert vias[0].epoch == vias[1].epoch != vias[2].epoch


def statements(broker: ScriptedBroker, connection: int = -1) -> list[Statement]:
    """The statements that a connection brought, in their order."""
    return [
        decode_statement(publish.payload)
        for publish in broker.publishes[connection]
        if publish.properties.get(CONTENT_TYPE) == STATEMENT_TYPE
    ]


async def publish_from(log: MessageLog, origin: str, seqs: range, *, topic: str = "a", **fields: Any) -> None:
    for seq in seqs:
        await log.submit([Message(topic, b"0", origin=origin, epoch=7, seq=seq, **fields)])


BATCH_TOPICS = "holdfast/batch/"
STATING = 3600  # seconds: a statement at each connection, and none between


def all_statements(broker: ScriptedBroker) -> list[Statement]:
    """The statements of all connections, each once."""
    found = {one.statement: one for number in range(len(broker.publishes)) for one in statements(broker, number)}
    return [found[number] for number in sorted(found)]


def identity(publish: Publish) -> str:
    return find_user_property(publish.properties, IDENTITY_PROPERTY) or ""


def identities(broker: ScriptedBroker) -> list[tuple[str, int]]:
    """Origin and seq of the devices' messages that the broker got, in order."""
    texts = [identity(one) for sent in broker.publishes for one in sent]
    found = [(origin, seq) for origin, _, seq in map(decode_identity, texts)]
    return [one for one in found if one[0] != "gateway-1"]


def handed_on(statement: Statement) -> list[HandedOn]:
    """What a statement says of devices' messages, and not of the gateway's own."""
    return [one for one in statement.origins if one.origin != "gateway-1"]


def joined(found: list[Statement]) -> dict[str, HandedOn]:
    """All that statements say of each device, after a check that they cover all numbers from 1 on."""
    assert [statement.statement for statement in found] == list(range(1, len(found) + 1))
    assert [statement.first for statement in found[:1]] == [1][: len(found)]
    assert [one.first for one in found[1:]] == [one.last + 1 for one in found[:-1]]
    handed: dict[str, HandedOn] = {}
    for one in (one for statement in found for one in handed_on(statement)):
        had = handed.get(one.origin, one._replace(messages=0))
        highest, last = max(had.highest, one.highest), max(had.last, one.last)
        first, messages = min(had.first, one.first), had.messages + one.messages
        handed[one.origin] = HandedOn(one.origin, one.epoch, highest, messages, first, last)
    return handed


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


@pytest.mark.parametrize("code", [NOT_AUTHORIZED, NO_MATCHING_SUBSCRIBERS])
async def test_a_statement_that_the_broker_does_not_take_holds_up_no_message(tmp_path: Path, code: int) -> None:
    def answer(publish: Publish) -> int:
        return code if publish.topic.startswith(STATEMENT_TOPICS) else 0

    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, statement_interval_s=STATING)
        async with serving(route):
            for seq in range(1, 4):
                await publish_from(log, "x", range(seq, seq + 1))
                await until(lambda: bool(broker.publishes) and identities(broker)[-1:] == [("x", seq)])  # noqa: B023
                connections = len(broker.publishes)
                broker.drop_clients()
                await until(lambda: len(broker.publishes) > connections)  # noqa: B023
            await until(lambda: len(all_statements(broker)) >= (1 if code == NOT_AUTHORIZED else 2))
            await publish_from(log, "x", range(9, 10))
            await until(lambda: identities(broker)[-1] == ("x", 9))
            await backlog_is(route, 0)
            refused = 1 if code == NOT_AUTHORIZED else 0  # it is set aside, and goes again
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
        route = route_to(broker, log, order=order)
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
        route = route_to(broker, log)
        await log.submit([Message(f"{STATEMENT_TOPICS}gateway-0/up", b"{}") for _ in range(20)])
        await publish_from(log, "x", range(1, 2))
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 21)
            await backlog_is(route, 0)
            assert route.queue.state.stands == ""


def left_out(found: list[Statement]) -> dict[str, list[tuple[int, int]]]:
    """The runs of seqs that statements name as left out, by origin."""
    runs: dict[str, list[tuple[int, int]]] = {}
    for one in (one for statement in found for one in statement.left_out):
        runs.setdefault(one.origin, []).extend(one.runs)
    return {origin: join_runs(sorted(some)) for origin, some in runs.items()}


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
