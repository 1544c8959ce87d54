"""Gateways whose links form a circle: one link is set aside, and nothing is stored twice."""

from contextlib import AsyncExitStack
from pathlib import Path

from tests.gateway.support import until
from tests.uplink.network.sites import Site, message_to


def ring(folder: Path, names: str) -> list[Site]:
    """Gateways of which each dials the next one, and the last one the first."""
    sites = [Site(folder, name) for name in names]
    for site, following in zip(sites, [*sites[1:], sites[0]], strict=True):
        site.dial(following.port, following.name)
    return sites


async def test_a_circle_is_cut_at_one_link_which_carries_again_when_another_one_breaks(tmp_path: Path) -> None:
    a, b, c = sites = ring(tmp_path, "abc")
    async with AsyncExitStack() as stack:
        for site in sites:
            await stack.enter_async_context(site)
        await until(lambda: [site.broker.network.aside for site in sites] == [{"c-to-a"}, set(), {"c-to-a"}], "cut")
        (circle,) = a.broker.network.circles()
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
        await until(lambda: not a.broker.network.aside and not c.broker.network.aside, "the link carries again")
        await device.publish("orders", b"around")
        assert (await message_to(reader)).payload == b"around"
        await b.start()
        await until(lambda: [site.broker.network.aside for site in sites] == [{"c-to-a"}, set(), {"c-to-a"}], "cut")
        await device.publish("orders", b"back")
        assert (await message_to(reader)).payload == b"back"
