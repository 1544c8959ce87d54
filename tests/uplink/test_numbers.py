"""Route numbers: each message that a route hands on has one, and the same whenever it is sent again."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import Endings, MessageLog
from tests.house.repository import ROOT
from tests.support.scripted_broker import scripted_broker, silent
from tests.uplink.numbers_support import number_of, route_to, via_of
from tests.uplink.support import opened, serving, until
from wire.codec.packets import MQTT_3_1_1, Connack, Publish
from wire.properties import USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED, UNSUPPORTED_PROTOCOL_VERSION
from wire.route_numbers import (
    VIA_PROPERTY,
    Via,
    decode_via,
)


async def fill(log: MessageLog, payloads: range, *, qos: int | None = None, topic: str = "a") -> None:
    """Stores messages, at QoS 1 and 2 by turns unless one is given."""
    for number in payloads:
        await log.submit([Message(topic, b"%d" % number, 1 + number % 2 if qos is None else qos)])


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
