"""Three gateways in a chain, of which the outer ones dial the middle one, and the other way round."""

from pathlib import Path

import pytest

from tests.gateway.support import until
from tests.uplink.network.sites import Site, message_to, next_of
from tools.lab.testing.network_link import NetworkLink
from wire.codec.packets import Suback
from wire.properties import RESPONSE_TOPIC


def chain(folder: Path, dialling: str) -> tuple[Site, Site, Site]:
    """Gateways a, m and b. ``dialling`` says which one dials at each link."""
    a, m, b = (Site(folder, name) for name in "amb")
    for one in (a, b):
        if dialling == "outer":
            one.dial(m.port, "m")
        else:
            m.dial(one.port, one.name)
    return a, m, b


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_a_message_reaches_a_subscriber_two_links_away_and_nothing_else_does(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "orders/+")
        await a.wants("orders/+")
        device = await a.client("device")
        for qos in (1, 2):
            device.send("other/1", b"unwanted", qos=qos)
            device.send("orders/1", b"%d" % qos, qos=qos)
        for qos in (1, 2):
            packet = await reader.receive()
            assert (packet.topic, packet.payload, packet.qos) == ("orders/1", b"%d" % qos, qos)
        assert m.broker.counters.messages_stored == b.broker.counters.messages_stored == 2


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_a_request_right_behind_the_suback_of_its_response_topic_is_answered(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        responder = await a.client("responder", "requests")
        requester = await b.client("requester")
        await b.wants("requests")
        for number in range(20):
            response = f"responses/{number}"
            requester.protocol.subscribe([(response, 2)])
            requester.flush()
            await next_of(requester, Suback)
            requester.send("requests", b"", qos=number % 3, properties={RESPONSE_TOPIC: response})
            asked = await message_to(responder)
            responder.send(asked.properties[RESPONSE_TOPIC], b"%d" % number, qos=asked.qos)
            answer = await message_to(requester)
            assert (answer.topic, answer.payload) == (response, b"%d" % number)


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_interest_is_registered_once_covered_not_at_all_and_withdrawn_with_the_last_client(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        one = await b.client("one", "a/1", "a/2", "$share/g/c/1")
        other = await b.client("other", "a/1", session_expiry_s=0)
        await a.wants("a/1", "a/2", "c/1")
        wide = await b.client("wide", "a/+")
        await a.wants("a/+", "c/1")
        await wide.unsubscribe("a/+")
        await a.wants("a/1", "a/2", "c/1")
        await one.unsubscribe("a/1")
        await one.unsubscribe("a/2", "$share/g/c/1")
        await a.wants("a/1")
        await other.disconnect()
        await a.wants()
        await m.wants()


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_messages_of_qos_0_go_to_neighbours_that_want_them_and_are_stored_nowhere(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "a", "marker")
        await a.wants("a", "marker")
        device = await a.client("device")
        device.send("unwanted", b"", qos=0)
        device.send("a", b"0", qos=0)
        assert (await reader.receive()).payload == b"0"
        device.send("marker", b"", qos=1)
        assert (await reader.receive()).topic == "marker"
        assert [site.broker.counters.messages_stored for site in (a, m, b)] == [1, 1, 1]


@pytest.mark.parametrize("dialling", ["outer", "middle"])
@pytest.mark.parametrize("away", ["m", "b"])
async def test_what_is_published_while_a_gateway_of_the_chain_is_down_arrives_when_it_is_back(
    tmp_path: Path, dialling: str, away: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    sites = {"m": m, "b": b}
    async with a, m, b:
        options = {"session_expiry_s": 1000, "clean_start": False}
        reader = await b.client("reader", "a", **options)
        await a.wants("a")
        await reader.disconnect()
        await sites[away].stop()
        device = await a.client("device")
        for number in range(50):
            await device.publish("a", b"%d" % number)
        await sites[away].start()
        reader = await b.client("reader", **options)
        assert [int((await reader.receive()).payload) for _ in range(50)] == list(range(50))
        await a.wants("a")


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_a_gateway_that_starts_again_goes_on_with_what_its_neighbours_want(tmp_path: Path, dialling: str) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "a", "b", session_expiry_s=1000)
        await a.wants("a", "b")
        await m.stop()
        await b.wants()
        await reader.unsubscribe("b")
        await reader.subscribe("c")
        await a.stop()
        await a.start()
        device = await a.client("device")
        await device.publish("a", b"while m is down")
        await m.start()
        await a.wants("a", "c")
        assert (await reader.receive()).payload == b"while m is down"
        await device.publish("c", b"new")
        assert (await reader.receive()).payload == b"new"


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_a_reconnect_with_unchanged_interest_takes_few_bytes(tmp_path: Path, dialling: str) -> None:
    sizes: list[int] = []
    m = Site(tmp_path, "m")
    a = Site(tmp_path, "a")
    dialler, dialled = (a, m) if dialling == "outer" else (m, a)
    link = NetworkLink("127.0.0.1", dialled.port, tap=lambda _, __, data: sizes.append(len(data)))
    await link.open()
    dialler.dial(link.port, dialled.name)
    async with dialler, dialled:
        for site in (a, m):
            await site.client("reader", *(f"{site.name}/topic/number/{number}" for number in range(2000)))
        await until(lambda: len(a.wanted_by_neighbours()) == len(m.wanted_by_neighbours()) == 2000, "all is told")
        for number, (site, neighbour) in enumerate(((a, m), (m, a), (a, m))):  # a link keeps the order: all is answered
            marker = f"marker/{number}"
            await site.client(f"marker-{number}", marker)
            await until(lambda: marker in neighbour.wanted_by_neighbours(), "the marker is told")  # noqa: B023
        await link.cut()
        sizes.clear()
        await link.open()
        await until(lambda: dialler.routes.states[0].reconnects > 0, "the link is up again")
        reader = await a.client("last", "last")
        await until(lambda: "last" in m.wanted_by_neighbours(), "what follows is told")
        await reader.disconnect()
        assert sum(sizes) < 1500  # with CONNECT, CONNACK and what the last client wants
    await link.cut()


async def test_a_neighbour_whose_session_was_lost_is_asked_again_and_ends_what_it_no_longer_has_a_use_for(
    tmp_path: Path,
) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "m")
    async with a, m:
        reader = await a.client("reader", "a", "b", session_expiry_s=0)
        await m.wants("a", "b")
        await a.stop()
        await m.stop()
        await m.start()
        assert m.wanted_by_neighbours() == {"a", "b"}
        await a.start()
        await m.wants()  # the reader's session has ended with its connection
        reader = await a.client("reader", "b", "c", session_expiry_s=0)
        await m.wants("b", "c")
        await reader.disconnect()


async def test_many_filters_that_come_at_once_are_followed_before_what_comes_behind_them(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "m")
    async with m:
        reader = await m.client("reader", *(f"filter/{number}" for number in range(5000)))
        async with a:
            await until(lambda: len(a.wanted_by_neighbours()) == 5000, "all filters are told")
            device = await a.client("device")
            for number in range(0, 5000, 500):
                await device.publish(f"filter/{number}", b"%d" % number)
            assert [int((await message_to(reader)).payload) for _ in range(10)] == list(range(0, 5000, 500))
            await a.linked()
