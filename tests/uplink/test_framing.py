"""A route that sends its messages in column batches."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog, PublishBatch
from tests.house.repository import ROOT
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.support.subscriber import subscriber
from tests.uplink.support import get, note_session, opened, route_config, running, serving, until
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.route import Route
from wire.bulk.column_batch import CONTENT_TYPE, BatchMessage, decode_batch
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connack, Publish
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.properties import USER_PROPERTY
from wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    TOPIC_NAME_INVALID,
    UNSUPPORTED_PROTOCOL_VERSION,
)

TOPIC = "holdfast/batch/gateway-1/central"


def in_batches(port: int, **keys: object) -> dict[str, object]:
    """The keys of a route that sends ten messages in a batch, and waits long for the tenth."""
    return {"port": port, "framing": "batch", "batch_max_messages": 10, "batch_max_age_ms": 100, **keys}


def route_to(broker: ScriptedBroker, log: MessageLog, **keys: object) -> Route:
    return Route(route_config(**in_batches(broker.port, **keys)), "gateway-1", log)  # type: ignore[arg-type]


@pytest.fixture(params=["one by one", "together"], autouse=True)
def how_they_come(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the gateway has read messages one by one, or many PUBLISHes at once, which then leave as runs."""
    monkeypatch.setattr(sys.modules[__name__], "AT_ONCE", 1 if request.param == "one by one" else 70)


AT_ONCE = 1


async def fill(log: MessageLog, numbers: range, qos: int = 1, **fields: object) -> None:
    """Stores messages with their numbers as payload, in this order."""
    if AT_ONCE > 1 and not fields.keys() & {"retain", "expires_ms"}:
        pieces = [numbers[at : at + AT_ONCE] for at in range(0, len(numbers), AT_ONCE)]
        await asyncio.gather(*(log.submit([together(piece, qos, **fields)]) for piece in pieces))  # type: ignore[arg-type]
        return
    messages = [Message("a", b"%d" % one, qos, origin="a", epoch=7, seq=one, **fields) for one in numbers]  # type: ignore[arg-type]
    await asyncio.gather(*(log.submit([message]) for message in messages))


def together(numbers: range, qos: int, received_ms: int = 0, received_by: str = "") -> PublishBatch:
    """The same messages as one read from a publisher's connection brings them."""
    packets = [
        Publish("a", b"%d" % one, qos, packet_identifier=9, properties=identified("a", 7, one)).encode(MQTT_5)
        for one in numbers
    ]
    batch = PublishBatch(b"".join(packets), {"a": None}, len(packets), MQTT_5, "c", received_ms, received_by)
    batch.bring_identities = True
    return batch


def identified(origin: str, epoch: int, seq: int) -> dict[int, object]:
    return {USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity(origin, epoch, seq))]}


def messages_in(publish: Publish) -> list[BatchMessage]:
    assert (publish.topic, publish.properties[CONTENT_TYPE_PROPERTY], publish.retain) == (TOPIC, CONTENT_TYPE, False)
    return list(decode_batch(publish.payload).messages())


def numbers_in(publish: Publish) -> list[int]:
    return [int(one.payload) for one in messages_in(publish)]


def taking(taken: list[int], refuses: Callable[[Publish], int]) -> Callable[[Publish], int]:
    """A script that notes the messages of the batches that it does not refuse."""

    def answer(publish: Publish) -> int:
        code = refuses(publish)
        if not code:
            taken.extend(numbers_in(publish) if publish.topic == TOPIC else [int(publish.payload)])
        return code

    return answer


@pytest.mark.parametrize("qos", [1, 2])
async def test_messages_go_in_batches_with_their_identities_and_an_acknowledgement_is_for_all(
    tmp_path: Path, qos: int
) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        await_ack = route_to(broker, log)
        await fill(log, range(1, 26), qos, received_ms=5000, received_by="gw")
        async with serving(await_ack):
            await until(lambda: log.space.needed_from == 25)
        assert [numbers_in(publish) for publish in broker.publishes[0]] == [
            [*range(1, 11)],
            [*range(11, 21)],
            [*range(21, 26)],
        ]
        assert {publish.qos for publish in broker.publishes[0]} == {qos}
        assert messages_in(broker.publishes[0][0])[0] == BatchMessage("a", b"1", qos, False, b"", "a", 7, 1, 5000, "gw")


@pytest.mark.parametrize("qos", [1, 2])
async def test_messages_stay_in_the_log_until_their_batch_is_acknowledged(tmp_path: Path, qos: int) -> None:
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 11), qos)
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 1)
            assert log.space.needed_from == 0
            assert route.queue.state.backlog_messages == (10 if qos == 1 else 0)


async def test_a_batch_of_messages_of_both_qualities_goes_at_the_higher_one(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        for number in range(1, 11):
            await fill(log, range(number, number + 1), 2 if number == 7 else 1)
        async with serving(route):
            await until(lambda: log.space.needed_from == 10)
        (publish,) = broker.publishes[0]
        assert (publish.qos, [one.qos for one in messages_in(publish)]) == (2, [1] * 6 + [2] + [1] * 3)


async def test_a_message_that_waits_for_others_leaves_when_it_is_old_enough(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        async with serving(route_to(broker, log)):
            await until(lambda: bool(broker.connects))
            for number in (1, 2):
                await fill(log, range(number, number + 1))
                await until(lambda number=number: log.space.needed_from == number)  # type: ignore[misc]
        assert [numbers_in(publish) for publish in broker.publishes[0]] == [[1], [2]]


async def test_retained_messages_go_by_themselves_in_their_order_with_their_identities(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        for number in range(1, 6):
            await fill(log, range(number, number + 1), retain=number == 3)
        async with serving(route):
            await until(lambda: log.space.needed_from == 5)
        first, second, third = broker.publishes[0]
        assert (numbers_in(first), numbers_in(third)) == ([1, 2], [4, 5])
        assert (second.topic, second.payload, second.retain) == ("a", b"3", True)
        assert any(name == "hf-id" for name, _ in second.properties[38])


async def test_an_expired_message_is_in_no_batch_and_leaves_a_range(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        for number in range(1, 4):
            await fill(log, range(number, number + 1), expires_ms=int(time.time() * 1000) - 1 if number == 2 else 0)
        async with serving(route):
            await until(lambda: log.space.needed_from == 3)
        assert [numbers_in(publish) for publish in broker.publishes[0]] == [[1, 3]]
        assert log.counters.messages_dropped["expired"] == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_after_a_loss_a_batch_goes_again_with_the_same_messages_under_its_identifier(
    tmp_path: Path, qos: int
) -> None:
    async with scripted_broker(puback=silent, session_present=True) as broker, opened(tmp_path) as log:
        await fill(log, range(0))
        route = route_to(broker, log)
        await note_session(log, route, broker.port)
        async with serving(route):
            await fill(log, range(1, 26), qos)
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 3)
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 25)
        before, after = broker.publishes
        assert [(publish.packet_identifier, publish.payload, publish.dup) for publish in after] == [
            (publish.packet_identifier, publish.payload, True) for publish in before
        ]


async def test_a_broker_that_has_forgotten_the_session_gets_the_batches_without_dup(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        async with serving(route_to(broker, log)):
            await fill(log, range(1, 26))
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 3)
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 25)
        assert [numbers_in(publish) for publish in broker.publishes[1]] == [
            numbers_in(publish) for publish in broker.publishes[0]
        ]
        assert not any(publish.dup for publish in broker.publishes[1])


@pytest.mark.parametrize("qos", [1, 2])
async def test_one_refused_message_of_a_batch_is_set_aside_and_the_others_go_on(tmp_path: Path, qos: int) -> None:
    taken: list[int] = []

    def refuses(publish: Publish) -> int:
        return IMPLEMENTATION_SPECIFIC_ERROR if 15 in numbers_in(publish) else 0

    async with scripted_broker(puback=taking(taken, refuses)) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 31), qos)
        async with serving(route):
            await until(lambda: route.queue.state.refused_messages == 1 and len(taken) == 29)
        assert sorted(taken) == [number for number in range(1, 31) if number != 15]
        assert len(broker.connects) == 1
        (refused,) = route.queue.refusals.all()
        assert (await log.read_one(refused.position)).payload == b"15"  # type: ignore[union-attr]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("code", [NOT_AUTHORIZED, TOPIC_NAME_INVALID])
async def test_a_route_whose_batches_may_not_have_their_topic_stands_and_sets_nothing_aside(
    tmp_path: Path, qos: int, code: int
) -> None:
    may_have = False
    taken: list[int] = []
    answer = taking(taken, lambda _: 0 if may_have else code)
    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 21), qos)
        async with serving(route):
            await until(lambda: "the broker refuses the topic of the batches" in route.queue.state.stands)
            may_have = True
            await until(lambda: len(taken) == 20 and not route.queue.state.stands)
        assert taken == [*range(1, 21)]
        assert (route.queue.state.refused_messages, len(broker.connects)) == (0, 1)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("code", [QUOTA_EXCEEDED, NO_MATCHING_SUBSCRIBERS])
async def test_a_batch_that_the_broker_cannot_take_yet_waits_with_all_behind_it(
    tmp_path: Path, qos: int, code: int
) -> None:
    is_ready = False
    taken: list[int] = []
    answer = taking(taken, lambda _: 0 if is_ready else code)
    async with scripted_broker(puback=answer) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 31), qos)
        async with serving(route):
            await until(lambda: bool(route.queue.state.stands))
            is_ready = True
            await until(lambda: len(taken) == 30 and log.space.needed_from == 30)
        assert taken == [*range(1, 31)]
        assert (route.queue.state.refused_messages, len(broker.connects)) == (0, 1)


@pytest.mark.parametrize("qos", [1, 2])
async def test_batches_are_as_large_as_the_broker_takes_them(tmp_path: Path, qos: int, seed: int) -> None:
    async with scripted_broker(maximum_packet_size=700) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, batch_max_messages=100)
        for number in range(1, 41):
            payload = hex(hash((seed, number)))[3:].encode() * 3 + (bytes(2000) if number == 20 else b"")
            await log.submit([Message("a", payload, qos, retain=number == 20, origin="a", epoch=7, seq=number)])
        async with serving(route):
            await until(lambda: log.space.needed_from == 19)  # it keeps the message that is set aside
            await fill(log, range(41, 42), qos)
            await until(lambda: messages_in(broker.publishes[0][-1])[-1].seq == 41)
        taken = [one.seq for publish in broker.publishes[0] for one in messages_in(publish)]
        assert taken == [number for number in range(1, 42) if number != 20]
        (refused,) = route.queue.refusals.all()
        assert (refused.position, refused.row.reason[:8]) == (20, "oversize")
        assert len(broker.connects) == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_batch_that_has_become_too_large_for_the_broker_goes_in_parts(tmp_path: Path, qos: int) -> None:
    taken: list[int] = []
    async with scripted_broker(puback=silent) as broker, opened(tmp_path) as log:
        route = route_to(broker, log, batch_max_messages=100)
        await fill(log, range(1, 101), qos)
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 1)
            (publish,) = broker.publishes[0]
            broker.maximum_packet_size = len(publish.payload) + 40  # and there are topic name and properties
            broker.puback = taking(taken, lambda _: 0)
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 100)
        assert (taken if qos == 1 else sorted(taken)) == [*range(1, 101)]
        assert route.queue.state.refused_messages == 0


async def test_a_route_in_batches_to_a_broker_of_mqtt_3_1_1_stands_and_says_so(tmp_path: Path) -> None:
    refusal = Connack(False, UNSUPPORTED_PROTOCOL_VERSION).encode(MQTT_3_1_1)
    async with scripted_broker(mqtt_5_refusal=refusal) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await fill(log, range(1, 11))
        async with serving(route):
            await until(lambda: "batches need MQTT 5" in route.queue.state.stands)
        assert log.space.needed_from == 0 and not any(broker.publishes)


async def test_batches_of_qos_2_that_were_begun_go_on_after_the_framing_has_changed(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent, session_present=True) as broker:
        async with opened(tmp_path) as log:
            route = route_to(broker, log)
            await note_session(log, route, broker.port)
            await fill(log, range(1, 11), 2)
            async with serving(route):
                await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 1)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log, running(log, route_config(broker.port)):
            await fill(log, range(11, 12), 2)
            await until(lambda: log.space.needed_from == 11)
        (first,), (again, alone) = broker.publishes
        assert (numbers_in(again), again.packet_identifier) == (numbers_in(first), first.packet_identifier)
        assert (again.dup, alone.payload) == (True, b"11")


async def test_what_a_full_store_evicts_of_a_batch_in_flight_leaves_a_range_and_the_others_go_again(
    tmp_path: Path,
) -> None:
    async with scripted_broker(puback=silent, session_present=True) as broker, opened(tmp_path) as log:
        route = route_to(broker, log)
        await note_session(log, route, broker.port)
        await fill(log, range(1, 11), 2)
        async with serving(route):
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 1)
            await log.eviction.evict(4, 0)
            assert log.counters.messages_dropped["evicted"] == 0  # they may arrive
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 10)
        first, again = (publishes[0] for publishes in broker.publishes)
        gone = 10 - len(numbers_in(again))
        assert (again.packet_identifier, again.dup) == (first.packet_identifier, True)
        assert numbers_in(again) == [*range(gone + 1, 11)] and gone >= 4
        assert log.counters.messages_dropped["evicted"] == gone


async def test_in_batches_of_qos_2_every_message_arrives_once_over_a_link_that_is_cut_again_and_again(
    tmp_path: Path, seed: int
) -> None:
    count = 3000
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        config = route_config(**in_batches(link.port))  # type: ignore[arg-type]
        async with opened(tmp_path) as log, running(log, config):
            await fill(log, range(1, count + 1), 2)
            numbers: list[int] = []
            cuts = 0
            while len(numbers) < count:
                numbers += [int(one.payload) for one in decode_batch(bytes((await get(received)).payload)).messages()]
                if len(numbers) // 300 > cuts:
                    cuts += 1
                    await link.cut()
                    await link.open()
            await fill(log, range(count + 1, count + 2), 2)  # behind it nothing of the others comes
            while numbers[-1] != count + 1:
                numbers += [int(one.payload) for one in decode_batch(bytes((await get(received)).payload)).messages()]
        await link.cut()
        assert sorted(numbers) == [*range(1, count + 2)]


@pytest.mark.parametrize("qos", [1, 2])
async def test_in_batches_no_message_is_lost_by_kills_and_at_qos_2_none_comes_twice(
    tmp_path: Path, qos: int, seed: int
) -> None:
    count = 3000
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log:
            Route(route_config(port), "gateway-1", log)
            await fill(log, range(1, count + 1), qos)
        numbers: list[int] = []
        while len(set(numbers)) < count:
            command = [sys.executable, "-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port), "batch"]
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            goal = min(count, len(set(numbers)) + 1000)
            while len(set(numbers)) < goal:
                numbers += [int(one.payload) for one in decode_batch(bytes((await get(received)).payload)).messages()]
            process.kill()
            await process.wait()
            while not received.empty():
                numbers += [int(one.payload) for one in decode_batch(bytes(received.get().payload)).messages()]
        assert sorted(set(numbers)) == [*range(1, count + 1)]
        if qos == 2:
            assert sorted(numbers) == [*range(1, count + 1)]
