"""Retained messages over links: a gateway has copies of the ones that it wants, and no others."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.support import until
from tests.support.scripted_broker import scripted_broker
from tests.uplink.network.sites import Kind, Site, all_to, message_to, next_of
from tests.uplink.network.test_chain import chain
from tests.uplink.network.test_modes import PASSIVE, pair, state_of
from tools.lab.testing.client import Client
from tools.lab.testing.mosquitto import mosquitto
from wire.codec.packets import Puback, Publish, Suback, Unsuback
from wire.identity import IDENTITY_PROPERTY
from wire.properties import USER_PROPERTY
from wire.reasons import SUCCESS

RETAIN_HANDLING_2 = 0x20
IDENTIFIED = {USER_PROPERTY: [(IDENTITY_PROPERTY, "00000007/1/device")]}
DURABLE = {"session_expiry_s": 1000, "clean_start": False}


async def retain(client: Client, topic: str, payload: bytes, qos: int = 1) -> None:
    """Publishes a retained message; one of QoS 1 or 2 is stored then."""
    if qos == 2:
        await client.publish_once(topic, payload, retain=True)
    elif qos:
        await client.publish(topic, payload, retain=True)
    else:
        client.send(topic, payload, qos=0, retain=True)


async def reading(site: Site, name: str, *filters: str, **keys: Any) -> Client:
    """A client that subscribes: retained messages of other gateways may come before its SUBACK."""
    client = await site.client(name, **keys)
    client.protocol.subscribe([(one, 2) for one in filters])
    client.flush()
    return client


@pytest.mark.parametrize("dialling", ["outer", "middle"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_new_subscriber_two_links_away_gets_the_retained_message_and_each_hop_a_copy(
    tmp_path: Path, dialling: str, qos: int
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        for site in (a, m, b):
            await site.linked()
        device = await a.client("device")
        await retain(device, "t", b"1", qos)
        await retain(device, "other", b"2")
        await a.keeps({"t": b"1", "other": b"2"})
        reader = await reading(b, "reader", "t", session_expiry_s=0)
        packet = await message_to(reader)
        assert (packet.topic, packet.payload, packet.qos) == ("t", b"1", qos)
        for site in (m, b):
            await site.keeps({"t": b"1"})
        late = await reading(b, "late", "t", session_expiry_s=0)
        packet = await message_to(late)
        assert (packet.payload, packet.retain) == (b"1", True)
        await device.publish("t", b"live", retain=True)
        assert [(await message_to(one)).payload for one in (reader, late)] == [b"live", b"live"]


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_copies_go_with_the_interest_that_brought_them_and_come_again_with_it(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        device = await a.client("device")
        for topic in ("t/1", "t/2"):
            await retain(device, topic, b"old")
        reader = await reading(b, "reader", "t/+", session_expiry_s=0)
        one = await reading(b, "one", "t/1", session_expiry_s=0)
        for site in (m, b):
            await site.keeps({"t/1": b"old", "t/2": b"old"})
        reader.cut()
        for site in (m, b):
            await site.keeps({"t/1": b"old"})
        await retain(device, "t/2", b"new")
        one.cut()
        for site in (m, b):
            await site.keeps({})
        await a.keeps({"t/1": b"old", "t/2": b"new"})
        reader = await reading(b, "reader", "t/2", session_expiry_s=0)
        assert (await message_to(reader)).payload == b"new"
        await b.keeps({"t/2": b"new"})


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_an_empty_payload_clears_the_copies_over_all_hops(tmp_path: Path, dialling: str) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        device = await a.client("device")
        await retain(device, "t", b"1")
        reader = await reading(b, "reader", "t", session_expiry_s=0)
        assert (await message_to(reader)).payload == b"1"
        await retain(device, "t", b"")
        assert (await message_to(reader)).payload == b""
        for site in (a, m, b):
            await site.keeps({})


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_a_filter_that_is_withdrawn_and_wanted_again_at_once_ends_with_the_newest_copy(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        device = await a.client("device")
        other = await reading(b, "other", "other")
        await a.wants("other")
        for number in range(30):
            await retain(device, "t", b"%d" % number)
            other.protocol.subscribe([("t", 2)])
            other.flush()
            packet = await message_to(other)
            while packet.payload != b"%d" % number:  # that of the round before was on its way when its filter went
                assert packet.payload == b"%d" % (number - 1)
                packet = await message_to(other)
            if number < 29:
                other.protocol.unsubscribe(["t"])
                other.flush()
        for site in (m, b):
            await site.keeps({"t": b"29"})


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_a_message_that_a_client_of_this_gateway_has_retained_stays(tmp_path: Path, dialling: str) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        device, own = await a.client("device"), await m.client("own")
        await retain(device, "t", b"far")
        reader = await reading(m, "reader", "t", session_expiry_s=0)
        assert (await message_to(reader)).payload == b"far"
        await retain(own, "t", b"near")
        assert (await message_to(reader)).payload == b"near"
        reader.cut()
        await a.wants()
        await m.broker.services.copies.settle()
        assert await m.kept() == {"t": b"near"}
        reader = await reading(m, "reader", "t", "marker", session_expiry_s=0)
        assert (await message_to(reader)).payload == b"near"
        await a.wants("t", "marker")
        await device.publish("marker")
        assert (await message_to(reader)).topic == "marker"
        assert await m.kept() == {"t": b"near"}
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_in_active_passive_the_copies_go_with_the_connection_and_come_again_with_the_next(
    tmp_path: Path, dialling: str
) -> None:
    a, m, link = await pair(tmp_path, dialling, PASSIVE)
    async with a, m:
        device = await a.client("device")
        await retain(device, "t/1", b"1")
        await retain(device, "t/2", b"2")
        await reading(m, "reader", "t/+", session_expiry_s=0)
        await m.keeps({"t/1": b"1", "t/2": b"2"})
        await link.cut()
        await until(lambda: not state_of(a, m), "the link is down")
        await m.keeps({})
        await retain(device, "t/1", b"")
        await retain(device, "t/2", b"new")
        await link.open()
        await m.keeps({"t/2": b"new"})
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_in_active_passive_the_copies_come_again_after_a_restart_that_ended_other_interest(
    tmp_path: Path, dialling: str
) -> None:
    a, m, link = await pair(tmp_path, dialling, PASSIVE)
    async with a, m:
        device = await a.client("device")
        await retain(device, "t/1", b"1")
        await reading(m, "reader", "t/+", "other", session_expiry_s=0)
        await m.keeps({"t/1": b"1"})
        await a.wants("t/+", "other")
        await link.cut()
        await until(lambda: not state_of(a, m), "the link is down")
        await m.stop()
        await m.start()
        await m.client("reader", "t/+", session_expiry_s=0)
        await link.open()
        await m.keeps({"t/1": b"1"})
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_after_a_restart_the_copies_are_those_of_the_interest_that_is_left(tmp_path: Path, dialling: str) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        device = await a.client("device")
        for topic in ("t", "u", "v"):
            await retain(device, topic, b"1")
        await reading(m, "reader", "t", **DURABLE)
        other = await reading(m, "other", "u", **DURABLE)
        assert (await message_to(other)).topic == "u"
        await reading(m, "passing", "v", session_expiry_s=0)
        await m.keeps({"t": b"1", "u": b"1", "v": b"1"})
        await link.cut()
        await until(lambda: not state_of(a, m), "the link is down")
        other.protocol.unsubscribe(["u"])
        other.flush()
        await next_of(other, Unsuback)
        await m.stop()
        await device.publish("t", b"", retain=True)
        await m.start()
        assert await m.kept() == {"t": b"1", "u": b"1", "v": b"1"}  # what a keeps for m is on its way
        await link.open()
        await m.keeps({})
        await a.keeps({"u": b"1", "v": b"1"})
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
@pytest.mark.parametrize("restarted", ["a", "m"])
async def test_what_a_gateway_owes_survives_its_restart_and_that_of_its_neighbour(
    tmp_path: Path, dialling: str, restarted: str
) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        device = await a.client("device")
        for number in range(2000):
            device.send(f"t/{number}", b"x" * 100, qos=1 + number % 2, retain=True)
        await until(lambda: a.broker.log.space.retained.topics == 2000, "all are retained")
        await reading(m, "reader", "t/#", **DURABLE)
        site = {"a": a, "m": m}[restarted]
        await until(lambda: m.broker.log.space.retained.topics > 100, "some have come")
        await site.stop()
        await site.start()
        await until(lambda: m.broker.log.space.retained.topics == 2000, "all have come")
    await link.cut()


@pytest.mark.parametrize("qos", [1, 2])
async def test_copies_cross_a_mosquitto_in_the_middle(tmp_path: Path, qos: int) -> None:
    with mosquitto(tmp_path) as port:
        a, b = Site(tmp_path, "a"), Site(tmp_path, "b")
        a.dial(port, None, filters=("t/#",))
        b.dial(port, None)
        async with a, b:
            device = await a.client("device")
            for topic in ("t/1", "t/2", "u/1"):
                await retain(device, topic, b"1", qos)
            reader = await reading(b, "reader", "t/1", session_expiry_s=0)
            assert (await message_to(reader)).payload == b"1"
            await b.keeps({"t/1": b"1"})
            wide = await reading(b, "wide", "t/+", session_expiry_s=0)
            assert {(await message_to(wide)).topic for _ in range(2)} == {"t/1", "t/2"}
            await b.keeps({"t/1": b"1", "t/2": b"1"})
            await retain(device, "t/2", b"", qos)
            await b.keeps({"t/1": b"1"})
            reader.cut()
            wide.cut()
            await b.keeps({})
            await a.keeps({"t/1": b"1", "u/1": b"1"})


async def test_a_copy_whose_unsubscribe_was_lost_comes_again_after_a_restart_that_wants_it_again(
    tmp_path: Path,
) -> None:
    a, m, link = await pair(tmp_path, "m", "active-active")
    async with a, m:
        device = await a.client("device")
        await retain(device, "t", b"1")
        reader = await reading(m, "reader", "t", session_expiry_s=0)
        await m.keeps({"t": b"1"})
        link.hold()
        reader.protocol.unsubscribe(["t"])
        reader.flush()
        await m.keeps({})
        await link.cut()
        link.hold(())
        await until(lambda: not state_of(a, m), "the link is down")
        await m.stop()
        await m.start()
        await m.client("reader", "t", session_expiry_s=0)
        await link.open()
        await m.keeps({"t": b"1"})
    await link.cut()


async def answer(client: Client, kind: type[Kind]) -> Kind:
    """Returns the next answer of a kind; the messages before it are left unacknowledged."""
    while not isinstance(event := await client.event(), kind):
        pass
    return event


async def test_what_no_other_than_its_own_neighbour_wants_is_not_stored_and_comes_once_to_a_client_that_wants_it(
    tmp_path: Path,
) -> None:
    async with Site(tmp_path, "m") as m:
        link = await m.client("link", user_properties=[("hf-link", '{"name":"a"}')])
        link.protocol.subscribe([("#", 1)])
        link.flush()
        await answer(link, Suback)
        codes = []
        for subscribers in range(2):
            if subscribers:
                reader = await m.client("reader", "t")
            link.protocol.publish("t", b"1", qos=1, retain=True, properties=IDENTIFIED)
            link.flush()
            codes.append((await answer(link, Puback)).reason_code)
        assert codes == [SUCCESS, SUCCESS]
        assert m.broker.log.head == 1
        assert [packet.payload for packet in await all_to(reader)] == [b"1"]
        await m.keeps({"t": b"1"})


async def test_a_message_that_comes_down_and_that_no_consumer_here_wants_is_not_stored(tmp_path: Path) -> None:
    """A client that subscribes right then would get it, and once more with the retained messages."""
    command = Publish("t", b"1", 1, retain=True, properties=IDENTIFIED)
    async with scripted_broker(commands=[command]) as broker:
        b = Site(tmp_path, "b")
        b.dial(broker.port, None, subscribe=["t"])
        async with b:
            await until(lambda: broker.pubacks, "the message is acknowledged")
            assert b.broker.log.head == 0
            reader = await b.client("reader")
            reader.protocol.subscribe([("t", 1)])
            reader.flush()
            assert [(packet.payload, packet.retain) for packet in [await message_to(reader)]] == [(b"1", True)]


async def test_a_copy_is_published_once_however_often_other_filters_come_and_go_while_it_is_looked_for(
    tmp_path: Path,
) -> None:
    a, m, link = await pair(tmp_path, "a", "active-active")
    async with a, m:
        await retain(await a.client("device"), "t/1", b"1")
        reader = await m.client("reader", "t/1")
        assert (await message_to(reader)).payload == b"1"
        await m.keeps({"t/1": b"1"})
        other = await m.client("other", session_expiry_s=0)
        with commits_held_up(tmp_path / "m" / "store"):
            for _ in range(12):
                other.protocol.subscribe([("t/#", 2 | RETAIN_HANDLING_2)])
                other.flush()
                await next_of(other, Suback)
                await a.wants("t/#")
                other.protocol.unsubscribe(["t/#"])
                other.flush()
                await next_of(other, Unsuback)
                await a.wants("t/1")
        assert await all_to(reader) == []
    await link.cut()
