"""Gateways whose links form a circle: one link is set aside, and nothing is stored twice."""

from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path

import pytest

from tests.gateway.support import until
from tests.uplink.network.sites import Site, message_to


def ring(folder: Path, names: str) -> list[Site]:
    """Gateways of which each dials the next one, and the last one the first."""
    sites = [Site(folder, name) for name in names]
    for site, following in zip(sites, [*sites[1:], sites[0]], strict=True):
        site.dial(following.port, following.name)
    return sites


def aside(*sites: Site) -> list[frozenset[str]]:
    """The links that each gateway sets aside."""
    return [site.broker.network.links.aside for site in sites]


async def test_a_circle_is_cut_at_one_link_which_carries_again_when_another_one_breaks(tmp_path: Path) -> None:
    a, b, c = sites = ring(tmp_path, "abc")
    async with AsyncExitStack() as stack:
        for site in sites:
            await stack.enter_async_context(site)
        await until(lambda: aside(*sites) == [{"c-to-a"}, set(), {"c-to-a"}], "cut")
        (circle,) = a.broker.network.links.circles()
        assert circle == "c-to-a is set aside, as it closes the circle a -(a-to-b)- b -(b-to-c)- c -(c-to-a)- a"
        reader = await a.client("reader", "orders")
        await c.wants("orders")
        device = await c.client("device")
        for number in range(50):
            await device.publish("orders", b"%d" % number)
        assert [int((await message_to(reader)).payload) for _ in range(50)] == list(range(50))
        assert [site.broker.counters.messages_stored for site in sites] == [50] * 3
        await reader.unsubscribe("orders")
        for site in sites:
            await site.wants()
        reader = await a.client("reader2", "orders", session_expiry_s=0)
        await c.wants("orders")
        await b.stop()
        await until(lambda: not any(aside(a, c)), "the link carries again")
        await device.publish("orders", b"around")
        assert (await message_to(reader)).payload == b"around"
        await b.start()
        await until(lambda: aside(*sites) == [{"c-to-a"}, set(), {"c-to-a"}], "cut")
        await device.publish("orders", b"back")
        assert (await message_to(reader)).payload == b"back"


@pytest.mark.parametrize("order", list(permutations("abc")))
async def test_a_ring_is_cut_at_the_same_link_whatever_starts_first(tmp_path: Path, order: tuple[str, ...]) -> None:
    sites = {site.name: site for site in ring(tmp_path, "abc")}
    async with AsyncExitStack() as stack:
        for name in order:
            await stack.enter_async_context(sites[name])
        a, b, c = sites.values()
        reader = await a.client("reader", "orders")
        for site in (a, b, c):
            await site.linked()
        await until(lambda: aside(a, c) == [{"c-to-a"}] * 2, "it is cut")
        assert aside(b) == [frozenset()]
        device = await b.client("device")
        await b.wants("orders")
        await device.publish("orders", b"1")
        assert (await message_to(reader)).payload == b"1"
        await reader.unsubscribe("orders")
        for site in (a, b, c):
            await site.wants()


@pytest.mark.parametrize("opposed", [False, True])
async def test_of_two_links_between_two_gateways_one_is_set_aside(tmp_path: Path, opposed: bool) -> None:
    a, b = Site(tmp_path, "a"), Site(tmp_path, "b")
    a.dial(b.port, "b", "first")
    if opposed:
        b.dial(a.port, "a", "second")
    else:
        a.dial(b.port, "b", "second")
    link = "b-second" if opposed else "a-second"
    async with a, b:
        reader = await b.client("reader", "orders")
        await until(lambda: aside(a, b) == [{link}] * 2, "one is set aside")
        (circle,) = a.broker.network.links.circles()
        assert circle.startswith(f"{link} is set aside, as it closes the circle a -(a-first)- b")
        await a.wants("orders")
        device = await a.client("device")
        for number in range(20):
            await device.publish("orders", b"%d" % number)
        assert [int((await message_to(reader)).payload) for _ in range(20)] == list(range(20))
        assert [site.broker.counters.messages_stored for site in (a, b)] == [20, 20]
        await reader.unsubscribe("orders")
        await a.wants()
