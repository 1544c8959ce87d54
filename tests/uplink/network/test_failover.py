"""A route that knows two gateways, which both lead to the subscriber."""

from pathlib import Path

import pytest

from tests.gateway.support import until
from tests.uplink.network.sites import Site, all_to, message_to
from tools.lab.testing.network_link import NetworkLink

NEVER_S = 3600.0


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("mode", ["active-active", "active-passive"])
async def test_messages_that_were_stored_and_not_acknowledged_come_once_though_they_go_again_to_another_gateway(
    tmp_path: Path, qos: int, mode: str
) -> None:
    a, m1, m2, b = (Site(tmp_path, name) for name in ("a", "m1", "m2", "b"))
    first = NetworkLink("127.0.0.1", m1.port)
    await first.open()
    second = f"mqtt://127.0.0.1:{m2.port}"
    a.dial(first.port, "m1", "to-m", fallbacks=(second,), fallback_names=("m2",), mode=mode)
    for one in (m1, m2):
        one.expect(name="a", mode=mode)
        one.dial(b.port, "b")
    async with m1, m2, b, a:
        reader = await b.client("reader", "orders")
        await a.wants("orders")
        device = await a.client("device")
        await device.publish("orders", b"0")
        assert (await message_to(reader)).payload == b"0"
        await until(lambda: not a.routes.status()[0].backlog_messages, "the first message is acknowledged")
        first.hold(ways=(False,))
        for number in range(1, 30):
            device.send("orders", b"%d" % number, qos=qos)
        assert [int((await message_to(reader)).payload) for _ in range(29)] == list(range(1, 30))
        await first.cut()
        await until(lambda: a.routes.states[0].server == second and a.routes.states[0].connected, "it has changed")
        await a.wants("orders")
        for number in range(30, 40):
            device.send("orders", b"%d" % number, qos=qos)
        assert [int((await message_to(reader)).payload) for _ in range(10)] == list(range(30, 40))
        assert await all_to(reader) == []
        assert b.broker.counters.messages_duplicate == m2.received() - 10 == 29


async def test_a_gateway_of_another_name_at_a_fallback_is_no_neighbour(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(1, "m1", "to-m", fallbacks=(f"mqtt://127.0.0.1:{m.port}",), fallback_names=("m2",))
    async with m, a:
        text = "expected the gateway 'm1' or 'm2', and 'm' answers [neighbour.name]"
        await until(lambda: text in a.problem, "it is said")
