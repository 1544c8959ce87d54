"""A route to another Holdfast gateway, which has to trust it with the messages of others."""

from pathlib import Path

import pytest

from tests.gateway.support import running as running_broker
from tests.gateway.support import subscribed, tcp_port, user_property
from tests.uplink.support import append, opened, route_config, serving, until
from uplink.route import Route
from wire.identity import IDENTITY_PROPERTY, RECEIVE

EVERYTHING = "allow * publish,subscribe #\n"


async def test_what_the_next_gateway_refuses_is_set_aside_and_goes_again_when_a_rule_lets_the_route_bring_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING)
    async with running_broker(tmp_path / "central", acl=str(rules)) as central, opened(tmp_path) as log:
        reader = await subscribed(central, "reader", "#", wishes=(RECEIVE,))
        route = Route(route_config(tcp_port(central)), "gateway-1", log)
        async with serving(route):
            await append(log, range(1, 6))
            await until(lambda: route.queue.state.refused_messages == 5)
            assert "set aside: the broker refused it: not authorized (0x87); another Holdfast gateway" in caplog.text
            rules.write_text(EVERYTHING + "allow - identify *\n")
            central.reload()
            assert route.queue.refusals.send_again() == 5
            received = [await reader.receive() for _ in range(5)]
    assert [user_property(packet, IDENTITY_PROPERTY) for packet in received] == [
        f"00000007/{number}/a" for number in range(1, 6)
    ]
