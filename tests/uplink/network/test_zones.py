"""Zones: over which links a message goes on, and what each neighbour is asked for."""

from contextlib import AsyncExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.gateway.support import until
from tests.uplink.network.sites import Site, all_to, message_to

CITY = {"zone": "city", "hops": "one"}


def link(dialler: Site, dialled: Site, **about: Any) -> None:
    dialler.dial(dialled.port, dialled.name, **about)
    dialled.expect(name=dialler.name, **about)


async def started(stack: AsyncExitStack, *sites: Site) -> None:
    for site in sites:
        await stack.enter_async_context(site)
    for site in sites:
        await site.linked()


def stored(*sites: Site) -> list[int]:
    return [site.broker.counters.messages_stored for site in sites]


async def test_a_mesh_of_cities_in_a_one_hop_zone_stores_each_message_once_everywhere(tmp_path: Path) -> None:
    cities = [Site(tmp_path, name) for name in ("bonn", "cork", "graz", "oslo")]
    for one, other in combinations(cities, 2):
        link(one, other, **CITY)
    async with AsyncExitStack() as stack:
        await started(stack, *cities)
        readers = [await city.client("reader", "news/#") for city in cities]
        await until(
            lambda: all(city.times_wanted("news/#") == 3 for city in cities), "each city wants it of all others"
        )
        for city in cities:
            await city.wants("news/#")
        for city in cities:
            device = await city.client("device")
            for qos in (0, 1, 2):
                device.send(f"news/{city.name}", b"%d" % qos, qos=qos)
            for reader in readers:
                got = [await message_to(reader) for _ in range(3)]
                assert [(packet.topic, packet.payload) for packet in got] == [
                    (f"news/{city.name}", b"%d" % qos) for qos in (0, 1, 2)
                ]
        assert stored(*cities) == [8] * 4
        assert [city.broker.counters.messages_duplicate for city in cities] == [0] * 4
        assert [city.broker.network.links.aside for city in cities] == [frozenset()] * 4
        for reader in readers:
            assert await all_to(reader) == []
            await reader.unsubscribe("news/#")
        for city in cities:
            await city.wants()


async def test_what_comes_over_one_link_of_a_one_hop_zone_leaves_over_none_of_them(tmp_path: Path) -> None:
    bonn, cork, graz = cities = [Site(tmp_path, name) for name in ("bonn", "cork", "graz")]
    link(bonn, cork, **CITY)
    link(cork, graz, **CITY)  # the link between bonn and graz is missing
    async with AsyncExitStack() as stack:
        await started(stack, *cities)
        reader = await graz.client("reader", "news")
        await cork.wants("news")
        there = await cork.client("reader", "marker", "news")
        await bonn.wants("marker", "news")
        device = await bonn.client("device")
        await device.publish("news", b"from bonn")
        assert (await message_to(there)).payload == b"from bonn"
        here = await cork.client("device")
        await here.publish("news", b"from cork")
        assert (await message_to(reader)).payload == b"from cork"
        assert stored(*cities) == [1, 2, 1]


async def test_a_hub_of_a_one_hop_zone_asks_no_neighbour_for_what_another_one_wants(tmp_path: Path) -> None:
    hub, *spokes = (Site(tmp_path, name) for name in ("hub", "bonn", "cork", "graz"))
    for spoke in spokes:
        link(spoke, hub, **CITY)
    async with AsyncExitStack() as stack:
        await started(stack, hub, *spokes)
        for spoke in spokes:
            await spoke.client("reader", f"to/{spoke.name}")
        await hub.wants("to/bonn", "to/cork", "to/graz")
        await hub.client("reader", "to/hub")
        for spoke in spokes:
            await spoke.wants("to/hub")


async def test_a_gateway_that_joins_two_zones_carries_from_one_into_the_other(tmp_path: Path) -> None:
    """Cities of two countries, whose capitals also have a link of a multi-hop zone."""
    bonn, cork, dublin, berlin = sites = [Site(tmp_path, name) for name in ("bonn", "cork", "dublin", "berlin")]
    link(bonn, berlin, zone="germany", hops="one")
    link(cork, dublin, zone="ireland", hops="one")
    link(berlin, dublin, zone="europe")
    async with AsyncExitStack() as stack:
        await started(stack, *sites)
        readers = {site: await site.client("reader", "news/#") for site in (bonn, cork, dublin)}
        await until(lambda: [site.times_wanted("news/#") for site in sites] == [1, 1, 2, 2], "all links want it")
        for site in sites:
            await site.wants("news/#")
        for source in (bonn, cork):
            device = await source.client("device")
            await device.publish_once("news/1", source.name.encode())
            for reader in readers.values():
                packet = await message_to(reader)
                assert (packet.payload, packet.qos) == (source.name.encode(), 2)
        assert stored(*sites) == [2] * 4


async def test_a_gateway_in_two_overlapping_one_hop_zones_carries_between_them(tmp_path: Path) -> None:
    bonn, cork, graz = sites = [Site(tmp_path, name) for name in ("bonn", "cork", "graz")]
    link(bonn, cork, zone="north", hops="one")
    link(graz, cork, zone="south", hops="one")
    async with AsyncExitStack() as stack:
        await started(stack, *sites)
        reader = await graz.client("reader", "news")
        await bonn.wants("news")
        device = await bonn.client("device")
        await device.publish("news", b"1")
        assert (await message_to(reader)).payload == b"1"
