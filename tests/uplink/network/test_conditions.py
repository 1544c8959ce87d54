"""Conditions on what goes over a link: those of both ends count, and the sender evaluates them."""

from pathlib import Path

import pytest

from gateway.config.network import SelectConfig
from tests.gateway.store.support import stored
from tests.uplink.network.sites import Site, message_to
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
