"""Routes with neighbours whose settings change while the gateway runs."""

from pathlib import Path

from gateway.config.network import SelectConfig
from tests.gateway.support import until
from tests.uplink.network.sites import Site, all_to, message_to


async def test_a_link_that_is_added_and_removed_moves_interest_and_loses_nothing(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    async with a, m:
        reader = await m.client("reader", "orders")
        here = await a.client("reader", "commands")
        a.dial(m.port, "m")
        a.reload()
        await a.wants("orders")
        await m.wants("commands")
        device = await a.client("device")
        await device.publish("orders", b"0")
        assert (await message_to(reader)).payload == b"0"
        a.dial_none()
        a.reload()
        await until(lambda: not a.routes.states, "the route is gone")
        for number in range(1, 10):
            await device.publish("orders", b"%d" % number)
        there = await m.client("device")
        await there.publish("commands", b"down")
        a.dial(m.port, "m")
        a.reload()
        await a.wants("orders")
        assert [int((await message_to(reader)).payload) for _ in range(1, 10)] == list(range(1, 10))
        assert (await message_to(here)).payload == b"down"


async def test_a_link_that_changes_its_zone_on_both_sides_goes_on(tmp_path: Path) -> None:
    a, m, b = (Site(tmp_path, name) for name in "amb")
    m.dial(a.port, "a")
    m.dial(b.port, "b")
    async with a, m, b:
        reader = await b.client("reader", "orders")
        await a.wants("orders")
        for one in (a, b):
            one.expect(name="m", zone="city", hops="one")
            await one.stop()
            await one.start()
        await until(lambda: all("zone is" in status.problem for status in m.routes.status()), "the zones differ")
        device = await a.client("device")
        await device.publish("orders", b"in between")
        m.dial_none()
        for one in (a, b):
            m.dial(one.port, one.name, zone="city", hops="one")
        m.reload()
        await a.linked(m)
        await m.wants("orders")
        await a.wants()
        reader = await b.client("reader", "orders")
        assert await all_to(reader) == []
        m.dial_none()
        m.dial(a.port, "a", zone="city", hops="one")
        m.dial(b.port, "b")
        m.reload()
        b.expect_none()
        await b.stop()
        await b.start()
        reader = await b.client("reader2", "orders")
        await a.wants("orders")
        await device.publish("orders", b"after")
        assert (await message_to(reader)).payload == b"after"


async def test_conditions_and_modes_that_change_hold_from_then_on(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "m")
    async with a, m:
        reader = await m.client("reader", "orders/#")
        await a.wants("orders/#")
        device = await a.client("device")
        await device.publish("orders/1", b'{"n": 1}')
        assert (await message_to(reader)).payload == b'{"n": 1}'
        a.dial_none()
        a.dial(m.port, "m", outgoing=[SelectConfig("orders/#", "json.n > 5")])
        a.reload()
        await until(lambda: a.routes.states[0].reconnects == 0 and a.routes.states[0].connected, "it is up again")
        await a.wants("orders/#")
        for number in range(10):
            await device.publish("orders/1", b'{"n": %d}' % number)
        assert [(await message_to(reader)).payload for _ in range(4)] == [b'{"n": %d}' % n for n in (6, 7, 8, 9)]
