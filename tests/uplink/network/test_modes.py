"""What becomes of interest and messages while a neighbour is not connected, in each mode."""

from pathlib import Path

import pytest

from tests.gateway.store.support import stored
from tests.gateway.support import until
from tests.uplink.network.sites import Site, message_to
from tools.lab.testing.network_link import NetworkLink

RANGES = "SELECT reason, consumer, origin, first, last, messages FROM dropped ORDER BY rowid"
PASSIVE = "active-passive"


async def pair(folder: Path, dialling: str, mode: str) -> tuple[Site, Site, NetworkLink]:
    """Gateways a and m, of which one dials the other one over a link that can be cut."""
    a, m = Site(folder, "a"), Site(folder, "m")
    dialler, dialled = (a, m) if dialling == "a" else (m, a)
    link = NetworkLink("127.0.0.1", dialled.port)
    await link.open()
    dialler.dial(link.port, dialled.name, mode=mode)
    dialled.expect(name=dialler.name, mode=mode)
    return a, m, link


def state_of(a: Site, m: Site) -> bool:
    """Whether the route between both is connected."""
    return any(state.connected for state in [*a.routes.states, *m.routes.states])


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_active_passive_drops_what_is_published_meanwhile_and_each_message_is_in_a_range_unrouted(
    tmp_path: Path, dialling: str
) -> None:
    a, m, link = await pair(tmp_path, dialling, PASSIVE)
    async with a, m:
        reader = await m.client("reader", "readings")
        await a.wants("readings")
        device = await a.client("device")
        await device.publish("readings", b"before")
        assert (await message_to(reader)).payload == b"before"
        await link.cut()
        await until(lambda: not state_of(a, m), "the link is down")
        for number in range(10):
            await device.publish("readings", b"%d" % number)
            await device.publish("others", b"")
        await link.open()
        await until(lambda: state_of(a, m), "the link is up again")
        await device.publish("readings", b"after")
        assert (await message_to(reader)).payload == b"after"
        consumer = "route/to-m" if dialling == "a" else "session/m-to-a"
        assert a.broker.counters.messages_dropped["unrouted"] == 10
    dropped = stored(tmp_path / "a" / "store", RANGES)
    assert {row[:3] for row in dropped} == {("unrouted", consumer, "a")}
    assert sum(row[5] for row in dropped) == 10
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_active_active_keeps_what_is_published_meanwhile(tmp_path: Path, dialling: str) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        reader = await m.client("reader", "readings")
        await a.wants("readings")
        device = await a.client("device")
        await link.cut()
        for number in range(10):
            await device.publish("readings", b"%d" % number)
        await link.open()
        assert [int((await message_to(reader)).payload) for _ in range(10)] == list(range(10))
        assert a.broker.counters.messages_dropped["unrouted"] == 0
    await link.cut()


async def test_what_filters_always_carry_is_kept_in_active_passive_too(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    link = NetworkLink("127.0.0.1", m.port)
    await link.open()
    a.dial(link.port, "m", mode=PASSIVE, filters=("telemetry/#",))
    m.expect(name="a", mode=PASSIVE)
    async with a, m:
        reader = await m.client("reader", "readings", "telemetry/#")
        await a.wants("readings", "telemetry/#")
        device = await a.client("device")
        await link.cut()
        await until(lambda: not state_of(a, m), "the link is down")
        for number in range(6):
            await device.publish(("readings", "telemetry/1")[number % 2], b"%d" % number)
        await link.open()
        assert [(await message_to(reader)).payload for _ in range(3)] == [b"1", b"3", b"5"]
        await device.publish("readings", b"after")
        assert (await message_to(reader)).payload == b"after"
        assert a.broker.counters.messages_dropped["unrouted"] == 3
    await link.cut()
