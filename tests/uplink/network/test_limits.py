"""Limits of `[[topic]]` that are reached at each gateway of a chain."""

from pathlib import Path

import pytest

from gateway.config.kinds import WhenFull
from gateway.config.network import TopicConfig
from tests.gateway.store.support import stored
from tests.gateway.support import until
from tests.uplink.network.sites import Site, all_to, message_to, next_of
from wire.codec.packets import Puback
from wire.reasons import QUOTA_EXCEEDED

RANGES = "SELECT reason, sum(messages) FROM dropped GROUP BY reason"
KEPT = {"session_expiry_s": 100_000, "clean_start": False}


def limited(folder: Path, dialling: str, at: str, when_full: WhenFull) -> dict[str, Site]:
    """A chain of gateways, of which one has a limit of five messages."""
    topic = [TopicConfig("orders/#", max_messages=5, when_full=when_full)]
    sites = {name: Site(folder, name, **({"topic": topic} if name == at else {})) for name in "amb"}
    for name in "ab":
        if dialling == "outer":
            sites[name].dial(sites["m"].port, "m")
        else:
            sites["m"].dial(sites[name].port, name)
    return sites


async def fill(sites: dict[str, Site], at: str) -> None:
    """Has the subscriber's side of a gateway go away."""
    beyond = {"a": "m", "m": "b"}.get(at)
    if beyond is None:
        return
    await sites[beyond].stop()


@pytest.mark.parametrize("dialling", ["outer", "middle"])
@pytest.mark.parametrize("at", ["a", "m", "b"])
async def test_discard_old_keeps_the_newest_and_the_rest_is_in_ranges(tmp_path: Path, dialling: str, at: str) -> None:
    sites = limited(tmp_path, dialling, at, "discard_old")
    a, m, b = sites.values()
    async with a, m, b:
        reader = await b.client("reader", "orders/#", "others", **KEPT)
        await a.wants("orders/#", "others")
        await reader.disconnect()
        await fill(sites, at)
        device = await a.client("device")
        for number in range(20):
            await device.publish("orders/1", b"%d" % number)
        await device.publish("others", b"last")
        place = {"a": a, "m": m, "b": b}[at]
        await until(lambda: place.received(1) == 21, "all have come to the gateway with the limit")
        if at != "b":
            await {"a": m, "m": b}[at].start()
        reader = await b.client("reader", **KEPT)
        found = [await message_to(reader) for _ in range(6)]
        assert [packet.payload for packet in found] == [b"15", b"16", b"17", b"18", b"19", b"last"]
        assert await all_to(reader) == []
        assert place.broker.counters.messages_dropped["evicted"] == 15
    assert stored(tmp_path / at / "store", RANGES) == [("evicted", 15)]


@pytest.mark.parametrize("dialling", ["outer", "middle"])
@pytest.mark.parametrize("at", ["a", "m", "b"])
async def test_flow_control_stores_the_rest_at_the_gateway_before_and_loses_nothing(
    tmp_path: Path, dialling: str, at: str
) -> None:
    sites = limited(tmp_path, dialling, at, "flow_control")
    a, m, b = sites.values()
    async with a, m, b:
        reader = await b.client("reader", "orders/#", **KEPT)
        await a.wants("orders/#")
        await reader.disconnect()
        await fill(sites, at)
        device = await a.client("device")
        for number in range(20):
            device.send("orders/1", b"%d" % number, qos=1)
        if at == "a":
            for _ in range(5):
                await next_of(device, Puback)
        elif at == "m":
            await until(lambda: m.broker.counters.messages_stored >= 5, "they have come")
        else:
            await until(lambda: b.broker.counters.messages_stored >= 5, "they have come")
        if at != "b":
            await {"a": m, "m": b}[at].start()
        reader = await b.client("reader", **KEPT)
        assert [int((await message_to(reader)).payload) for _ in range(20)] == list(range(20))
        assert await all_to(reader) == []
    for name in "amb":
        assert stored(tmp_path / name / "store", RANGES) == []


@pytest.mark.parametrize("dialling", ["outer", "middle"])
@pytest.mark.parametrize("at", ["a", "m", "b"])
async def test_reject_incoming_refuses_the_publisher_and_never_a_gateway(
    tmp_path: Path, dialling: str, at: str
) -> None:
    sites = limited(tmp_path, dialling, at, "reject_incoming")
    a, m, b = sites.values()
    async with a, m, b:
        reader = await b.client("reader", "orders/#", **KEPT)
        await a.wants("orders/#")
        await reader.disconnect()
        await fill(sites, at)
        device = await a.client("device")
        answers: list[int] = []
        for number in range(20):
            device.send("orders/1", b"%d" % number, qos=1)
            answers.append((await next_of(device, Puback)).reason_code)
        refused = answers.count(QUOTA_EXCEEDED)
        assert refused == (15 if at == "a" else 0)
        if at != "b":
            await {"a": m, "m": b}[at].start()
        reader = await b.client("reader", **KEPT)
        accepted = [number for number, code in enumerate(answers) if code < 0x80]
        assert [int((await message_to(reader)).payload) for _ in accepted] == accepted
        assert await all_to(reader) == []
