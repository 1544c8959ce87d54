"""A route with a local user publishes here what the access rules let that user publish."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.broker import Broker
from host.errors import ConfigError
from tests.gateway.store.support import messages_in
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.inbound_support import command, receiving
from tests.uplink.support import until
from tools.cli.gateway.config import read_configuration
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY
from wire.properties import USER_PROPERTY
from wire.reasons import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED

RULES = """
allow  central  publish   commands/#
allow  central  identify  server
"""


@asynccontextmanager
async def ruled(folder: Path, central: ScriptedBroker) -> AsyncIterator[Broker]:
    """A gateway with these access rules, and a route whose broker has the rights of `central`."""
    rules = folder / "rules"
    rules.write_text(RULES)
    settings = {"acl": str(rules)}
    async with receiving(folder / "store", central.port, settings, local_user="central") as (broker, _):
        yield broker


def to(topic: str, number: int, identity: str = "") -> Publish:
    packet = command(number)
    packet.topic = topic
    if identity:
        packet.properties = {USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]}
    return packet


async def test_a_message_to_a_topic_that_the_user_may_not_use_is_refused_and_leaves_a_range(tmp_path: Path) -> None:
    async with scripted_broker() as central, ruled(tmp_path, central) as broker:
        central.command(to("commands/a", 1), to("config/a", 2), to("commands/b", 3))
        await until(lambda: len(central.codes) == 3)
        assert {code for code in central.codes if code >= 0x80} == {NOT_AUTHORIZED}
        assert broker.counters.messages_dropped["rejected"] == 1
    assert [message.topic for _, message in messages_in(tmp_path / "store")] == ["commands/a", "commands/b"]


async def test_an_identity_that_the_user_may_not_bring_is_replaced(tmp_path: Path) -> None:
    async with scripted_broker() as central, ruled(tmp_path, central):
        central.command(to("commands/a", 1, "0000001f/7/server"), to("commands/a", 2, "0000001f/7/pump"))
        await until(lambda: len(central.codes) == 2)
    origins = [message.origin for _, message in messages_in(tmp_path / "store")]
    assert origins[0] == "server" and origins[1] != "pump"


async def test_changed_rules_hold_for_a_topic_that_came_before(tmp_path: Path) -> None:
    async with scripted_broker() as central, ruled(tmp_path, central) as broker:
        central.command(*(to("commands/a", number) for number in range(1, 20)))
        await until(lambda: len(central.codes) == 19)
        (tmp_path / "rules").write_text("allow  central  publish  other\n")
        broker.reload()
        central.command(*(to("commands/a", number) for number in range(20, 40)))
        await until(lambda: len(central.codes) == 39)
        assert set(central.codes[:19]) <= {0, NO_MATCHING_SUBSCRIBERS} and set(central.codes[19:]) == {NOT_AUTHORIZED}


def test_a_local_user_without_access_rules_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    route = '[[route]]\nname = "c"\nbroker = "mqtt://b"\ndirection = "in"\nsubscribe = ["a"]\nlocal_user = "central"\n'
    file.write_text(f'name = "g"\n[store]\npath = "store"\n[[listener]]\nkind = "tcp"\n{route}')
    with pytest.raises(ConfigError, match=r"route\[0\].local_user: there are no access rules"):
        read_configuration(file)
