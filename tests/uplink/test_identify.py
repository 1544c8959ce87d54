"""A route to another Holdfast gateway, which has to trust it with the messages of others."""

from pathlib import Path

import pytest

from tests.gateway.support import running as running_broker
from tests.gateway.support import subscribed, tcp_port, user_property
from tests.uplink.support import append, opened, route_config, running, until
from wire.identity import IDENTITY_PROPERTY, RECEIVE

EVERYTHING = "allow * publish,subscribe #\n"


async def test_what_the_next_gateway_refuses_stays_until_a_rule_lets_the_route_bring_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING)
    async with running_broker(tmp_path / "central", acl=str(rules)) as central, opened(tmp_path) as log:
        reader = await subscribed(central, "reader", "#", wishes=(RECEIVE,))
        async with running(log, route_config(tcp_port(central))):
            await append(log, range(1, 6))
            await until(lambda: "the broker refused packet identifier 1: not authorized (0x87)" in caplog.text)
            rules.write_text(EVERYTHING + "allow - identify *\n")
            central.reload()
            received = [await reader.receive() for _ in range(5)]
    assert [user_property(packet, IDENTITY_PROPERTY) for packet in received] == [
        f"00000007/{number}/a" for number in range(1, 6)
    ]
