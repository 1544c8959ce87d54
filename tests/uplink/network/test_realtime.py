"""Real-time messages: QoS 0, nothing stored, and sent to all neighbours whether they want it or not."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.config.network import SelectConfig
from gateway.message import REALTIME_PROPERTY
from tests.gateway.support import user_property
from tests.uplink.network.sites import Site, message_to
from tools.lab.testing.client import Client
from wire.codec.packets import Connack, Disconnect
from wire.properties import MAXIMUM_QOS, RETAIN_AVAILABLE, SESSION_EXPIRY_INTERVAL, USER_PROPERTY
from wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, QOS_NOT_SUPPORTED, RETAIN_NOT_SUPPORTED

DIALLING = pytest.mark.parametrize("dialling", ["upstream", "downstream"])


def row(folder: Path, names: str) -> list[Site]:
    """Gateways with real-time listeners."""
    return [Site(folder, name, realtime=True) for name in names]


async def linked(stack: AsyncExitStack, sites: list[Site], dialling: str = "upstream", **about: Any) -> None:
    """Starts gateways of which each has a link to the next one; returns when these are up."""
    pairs = list(pairwise(sites if dialling == "upstream" else sites[::-1]))
    for dialler, dialled in pairs:
        dialler.dial(dialled.port, dialled.name, **about)
        dialled.expect(name=dialler.name, **about)
    for site in sites:
        await stack.enter_async_context(site)
    for dialler, dialled in pairs:
        await dialler.linked()
        await dialled.linked(dialler)


def stored(sites: list[Site]) -> list[int]:
    return [site.broker.counters.messages_stored for site in sites]


@DIALLING
async def test_a_message_reaches_clients_of_gateways_that_have_told_no_interest(tmp_path: Path, dialling: str) -> None:
    sites = a, m, b = row(tmp_path, "amb")
    async with AsyncExitStack() as stack:
        await linked(stack, sites, dialling)
        readers = [await site.realtime_client(f"reader-{site.name}", "telemetry/#") for site in sites]
        ordinary = await m.client("ordinary", "telemetry/+", session_expiry_s=0)
        await a.wants("telemetry/+")
        await b.wants("telemetry/+")
        sender = await a.realtime_client("sender")
        sender.send("telemetry/1", b"live", qos=0)
        for reader in (*readers, ordinary):
            packet = await message_to(reader)
            assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("telemetry/1", b"live", 0, False)
            assert user_property(packet, REALTIME_PROPERTY) is None
        await (await a.client("device")).publish("telemetry/2")
        assert (await message_to(ordinary)).topic == "telemetry/2"  # so the other one came once
        sender.send("telemetry/3", qos=0)
        assert [(await message_to(reader)).topic for reader in readers] == ["telemetry/2", "telemetry/2", "telemetry/3"]
        assert stored(sites) == [1, 1, 0]
        assert [site.broker.counters.messages_flooded for site in sites] == [2, 2, 0]


async def test_what_comes_over_a_one_hop_zone_goes_to_no_other_gateway_of_the_zone(tmp_path: Path) -> None:
    a, m, _ = sites = row(tmp_path, "amb")
    async with AsyncExitStack() as stack:
        await linked(stack, sites, zone="city", hops="one")
        readers = [await site.realtime_client(f"reader-{site.name}", "#") for site in sites]
        (await a.realtime_client("sender")).send("x", b"from a", qos=0)
        assert [(await message_to(reader)).payload for reader in readers[:2]] == [b"from a"] * 2
        (await m.realtime_client("sender")).send("x", b"from m", qos=0)
        assert [(await message_to(reader)).payload for reader in readers] == [b"from m"] * 3


@DIALLING
async def test_conditions_of_a_link_hold_real_time_messages_back(tmp_path: Path, dialling: str) -> None:
    a, b = sites = row(tmp_path, "ab")
    condition = (SelectConfig("#", "topic.2 <> 'secret'"),)
    async with AsyncExitStack() as stack:
        one, other = (a, b) if dialling == "upstream" else (b, a)
        one.dial(other.port, other.name, incoming=condition, outgoing=condition)
        for site in sites:
            await stack.enter_async_context(site)
        await one.linked()
        await other.linked(one)
        reader = await b.realtime_client("reader", "#")
        sender = await a.realtime_client("sender")
        sender.send("x/secret", qos=0)
        sender.send("x/open", qos=0)
        assert (await message_to(reader)).topic == "x/open"


async def test_an_ordinary_client_cannot_have_a_message_sent_to_all_neighbours(tmp_path: Path) -> None:
    sites = a, b = row(tmp_path, "ab")
    async with AsyncExitStack() as stack:
        await linked(stack, sites)
        wanted = await b.client("wanted", "wanted")
        await a.wants("wanted")
        device = await a.client("device")
        for topic in ("unwanted", "wanted"):
            device.send(topic, qos=0, properties={USER_PROPERTY: [(REALTIME_PROPERTY, "1")]})
        packet = await message_to(wanted)
        assert packet.topic == "wanted"
        assert user_property(packet, f"{REALTIME_PROPERTY}-rejected") == "1"
        assert [site.broker.counters.messages_flooded for site in sites] == [0, 0]
        assert a.received(0) == 2
        assert b.received(0) == 1


@pytest.mark.parametrize("options", [{"qos": 1}, {"qos": 2}, {"qos": 0, "retain": True}])
async def test_a_real_time_listener_takes_qos_0_without_retain_alone(tmp_path: Path, options: dict[str, int]) -> None:
    async with Site(tmp_path, "a", realtime=True) as site:
        client = await Client("client", session_expiry_s=600).connect(site.realtime_port)
        said = client.connack.properties
        assert [said[one] for one in (MAXIMUM_QOS, RETAIN_AVAILABLE, SESSION_EXPIRY_INTERVAL)] == [0, 0, 0]
        assert await client.subscribe("x", options=2) == [0]
        packet = next(packets(options))
        client.write(packet)
        expected = QOS_NOT_SUPPORTED if options["qos"] else RETAIN_NOT_SUPPORTED
        assert (await client.expect(Disconnect)).reason_code == expected


def packets(options: dict[str, int]) -> Iterator[bytes]:
    identifier = b"\0\7" if options["qos"] else b""
    first = 0x30 | options["qos"] << 1 | options.get("retain", 0)
    body = b"\0\1x" + identifier + b"\0"
    yield bytes((first, len(body))) + body


async def test_a_stored_session_is_refused_at_a_real_time_listener_and_stays(tmp_path: Path) -> None:
    async with Site(tmp_path, "a", realtime=True) as site:
        stored_one = await site.client("reader", "x", session_expiry_s=600)
        await stored_one.disconnect()
        late = Client("reader", clean_start=False, session_expiry_s=600)
        await late.open(site.realtime_port)
        assert (await late.expect(Connack)).reason_code == CLIENT_IDENTIFIER_NOT_VALID
        await (await site.client("device")).publish("x", b"for it")
        again = await Client("reader", clean_start=False, session_expiry_s=600).connect(site.port)
        assert (await message_to(again)).payload == b"for it"


async def test_a_neighbour_is_refused_at_a_real_time_listener(tmp_path: Path) -> None:
    a, b = row(tmp_path, "ab")
    async with b:
        a.dial(b.realtime_port, "b")
        async with a:
            while "real-time listener" not in a.problem:
                await b.realtime_client("look")
