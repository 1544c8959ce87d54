"""What waits for a link while filters are replaced by others that cover them, or that they cover."""

from pathlib import Path

import pytest

from tests.gateway.support import until
from tests.uplink.network.sites import Site, message_to, next_of
from tests.uplink.network.test_modes import pair, state_of
from tools.lab.testing.client import Client
from tools.lab.testing.network_link import NetworkLink
from wire.codec.packets import Puback


async def publish_while_down(a: Site, m: Site, link: NetworkLink) -> Client:
    """Cuts the link, and returns the client that has published to readings/0 and readings/1 in turn meanwhile."""
    await link.cut()
    await until(lambda: not state_of(a, m), "the link is down")
    device = await a.client("device")
    for number in range(20):
        await device.publish(f"readings/{number % 2}", b"%d" % number)
    return device


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_what_waits_for_a_filter_goes_when_the_one_that_covered_it_is_wanted_no_more(
    tmp_path: Path, dialling: str
) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        wide = await m.client("wide", "readings/+")
        narrow = await m.client("narrow", "readings/1")
        await a.wants("readings/+")
        await publish_while_down(a, m, link)
        await wide.unsubscribe("readings/+")
        await link.open()
        assert [int((await message_to(narrow)).payload) for _ in range(10)] == list(range(1, 20, 2))
        await a.wants("readings/1")
        if dialling == "a":  # the interest comes before what waits goes; a session goes on at once
            assert m.broker.counters.messages_stored == 10
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_what_waits_for_a_filter_goes_when_a_wider_one_takes_its_place_and_nothing_older_for_that_one(
    tmp_path: Path, dialling: str
) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        narrow = await m.client("narrow", "readings/1")
        await a.wants("readings/1")
        device = await publish_while_down(a, m, link)
        wide = await m.client("wide", "readings/+")
        await link.open()
        assert [int((await message_to(narrow)).payload) for _ in range(10)] == list(range(1, 20, 2))
        await a.wants("readings/+")
        await device.publish("readings/0", b"20")
        assert [int((await message_to(wide)).payload) for _ in range(11)] == [*range(1, 20, 2), 20]
        assert m.broker.counters.messages_stored == 11
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_what_waits_for_a_filter_goes_when_another_one_covers_it_than_before(
    tmp_path: Path, dialling: str
) -> None:
    """The two that cover it, the former and the new one, do not cover each other."""
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        former = await m.client("former", "readings/+")
        narrow = await m.client("narrow", "readings/1")
        await a.wants("readings/+")
        await publish_while_down(a, m, link)
        await former.unsubscribe("readings/+")
        await m.client("new", "+/1")
        await link.open()
        assert [int((await message_to(narrow)).payload) for _ in range(10)] == list(range(1, 20, 2))
        await a.wants("+/1")
    await link.cut()


@pytest.mark.parametrize("dialling", ["a", "m"])
async def test_what_waits_for_a_filter_that_is_wanted_no_more_leaves_a_range(tmp_path: Path, dialling: str) -> None:
    a, m, link = await pair(tmp_path, dialling, "active-active")
    async with a, m:
        reader = await m.client("reader", "readings", "others", receive_maximum=1)
        await a.wants("readings", "others")
        await link.cut()
        await until(lambda: not state_of(a, m), "the link is down")
        device = await a.client("device")
        for number in range(3000):
            device.send(("readings", "others")[number % 2], b"%d" % number, qos=0 if number % 2 else 1)
        for _ in range(1500):
            await next_of(device, Puback)
        await reader.unsubscribe("readings")
        await m.broker.log.submit([])
        await link.open()
        await a.wants("others")
        await device.publish("others", b"marker")
        while (await message_to(reader)).payload != b"marker":
            pass
        came = m.broker.counters.messages_stored - 1
        await until(lambda: a.broker.counters.messages_dropped["ended"] == 1500 - came, "a range has the rest")
    await link.cut()
