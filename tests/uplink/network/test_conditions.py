"""Conditions on what goes over a link: the conditions of both ends count, and the sender evaluates them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.network import SelectConfig
from tests.gateway.store.support import stored
from tests.gateway.support import until
from tests.uplink.network.sites import Site, all_to, message_to, next_of
from tests.uplink.network.test_chain import chain
from tools.lab.testing.client import Client
from tools.lab.testing.mosquitto import mosquitto
from wire.codec.packets import Puback, Pubcomp, Suback
from wire.properties import USER_PROPERTY

RANGES = "SELECT reason, consumer, origin, first, last, messages FROM dropped ORDER BY rowid"
EU, LARGE = SelectConfig("orders/#", "region = 'EU'"), SelectConfig("orders/+", "json.amount > 100")


@pytest.mark.parametrize("dialling", ["a", "m"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_has_to_pass_the_conditions_of_both_ends(tmp_path: Path, dialling: str, qos: int) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    if dialling == "a":
        a.dial(m.port, "m", outgoing=[EU])
        m.expect(name="a", incoming=[LARGE])
    else:
        m.dial(a.port, "a", incoming=[LARGE])
        a.expect(name="m", outgoing=[EU])
    async with a, m:
        reader = await m.client("reader", "orders/#", "others")
        await a.wants("orders/#", "others")
        await a.linked()
        device = await a.client("device")
        for region in ("EU", "US"):
            for amount in (50, 150):
                payload = b'{"amount": %d}' % amount
                device.send("orders/1", payload, qos=qos, properties={USER_PROPERTY: [("region", region)]})
        device.send("others", b"marker", qos=qos)
        packet = await message_to(reader)
        assert (packet.payload, dict(packet.properties[USER_PROPERTY])["region"]) == (b'{"amount": 150}', "EU")
        assert (await message_to(reader)).payload == b"marker"
        assert m.broker.counters.messages_stored == (2 if qos else 0)
        assert a.broker.counters.messages_dropped["filtered"] == 3
    consumer = "route/to-m" if dialling == "a" else "session/m-to-a"
    dropped = stored(tmp_path / "a" / "store", RANGES)
    assert {row[:2] for row in dropped} == {("filtered", consumer)}
    assert sum(row[5] for row in dropped) == 3


async def test_orders_go_by_region_and_each_region_gets_its_own(tmp_path: Path) -> None:
    hq = Site(tmp_path, "hq")
    regions = {name: Site(tmp_path, name) for name in ("eu", "us", "asia")}
    eu, us, asia = regions.values()
    hq.dial(eu.port, "eu", outgoing=[region("EU")])
    hq.dial(us.port, "us")
    us.expect(name="hq", incoming=[region("US")])
    asia.dial(hq.port, "hq", incoming=[SelectConfig("orders/#", "region = 'ASIA' AND json.amount > 1")])
    async with hq, eu, us, asia:
        readers = {name: await site.client("reader", "orders/#", "others") for name, site in regions.items()}
        await hq.wants("orders/#", "others")
        links = {"hq-to-eu", "hq-to-us", "asia-to-hq"}
        await until(lambda: links <= hq.broker.network.links.up.keys(), "all links are up")
        await until(lambda: hq.times_wanted("orders/#") == hq.times_wanted("others") == 3, "all want orders")
        device = await hq.client("device")
        for number in range(9):
            name = ("EU", "US", "ASIA")[number % 3]
            device.send(
                "orders/new",
                b'{"amount": %d}' % number,
                qos=number % 3,
                properties={USER_PROPERTY: [("region", name)]},
            )
        for number, expected in enumerate(([0, 3, 6], [1, 4, 7], [2, 5, 8])):
            reader = list(readers.values())[number]
            assert [json.loads((await message_to(reader)).payload)["amount"] for _ in expected] == expected
            assert await all_to(reader) == []


@pytest.mark.parametrize("dialling", ["outer", "middle"])
async def test_a_selector_of_a_subscription_stays_at_its_gateway_and_the_neighbour_is_told_the_plain_filter(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "marker")
        reader.protocol.subscribe([("orders/#", 2)], {USER_PROPERTY: [("hf-select", "json.amount > 100")]})
        reader.flush()
        assert (await next_of(reader, Suback)).reason_codes == [2]
        await a.wants("orders/#", "marker")
        device = await a.client("device")
        for amount in (50, 150, 99, 101):
            device.send("orders/1", b'{"amount": %d}' % amount, qos=2)
        device.send("marker", b"", qos=2)
        found = [(await message_to(reader)).payload for _ in range(3)]
        assert found == [b'{"amount": 150}', b'{"amount": 101}', b""]
        assert b.received() == 5
        assert a.broker.counters.messages_dropped["filtered"] == 0


@pytest.mark.parametrize("keys", [{}, {"is_link": False, "direction": "both", "subscribe": ("orders/#", "others")}])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_comes_from_an_ordinary_broker_is_looked_at_on_arrival(
    tmp_path: Path, qos: int, keys: dict[str, Any]
) -> None:
    with mosquitto(tmp_path) as port:
        a = Site(tmp_path, "a")
        a.dial(port, None, incoming=[LARGE], **keys)
        async with a:
            reader = await a.client("reader", "orders/#", "others")
            sender = await Client("sender").connect(port)
            coming = asyncio.ensure_future(message_to(reader))
            while not coming.done():
                await sender.publish("others", b"probe")
                await asyncio.wait({coming}, timeout=0.1)
            for round_number in range(3):
                for number in range(50):
                    amount = 150 if number % 5 == 0 else 50
                    payload = b'{"amount": %d, "number": %d}' % (amount, number)
                    sender.send("orders/1", payload, qos=qos)
                    sender.send("others", payload, qos=qos)
                for _ in range(100 if qos else 0):
                    await next_of(sender, Puback if qos == 1 else Pubcomp)
                found: dict[str, list[int]] = {"orders/1": [], "others": []}
                while len(found["others"]) < 50 or len(found["orders/1"]) < 10:
                    packet = await message_to(reader)
                    if packet.payload != b"probe":
                        found[packet.topic].append(json.loads(packet.payload)["number"])
                assert found == {"orders/1": list(range(0, 50, 5)), "others": list(range(50))}
                assert a.broker.counters.messages_dropped["filtered"] == 40 * (round_number + 1)
            assert await all_to(reader) == []
            await sender.publish("orders/1", b'{"amount": 1}')
            await sender.publish("orders/1", b'{"amount": 101}')
            assert (await message_to(reader)).payload == b'{"amount": 101}'
    dropped = stored(tmp_path / "a" / "store", "SELECT reason, consumer, sum(messages) FROM dropped GROUP BY 1, 2")
    assert dropped == [("filtered", "gateway", 121)]


def region(name: str) -> SelectConfig:
    return SelectConfig("orders/#", f"region = '{name}'")
