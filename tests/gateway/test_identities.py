"""In whose name messages come: a client's own, or another's where a rule says so."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.store.support import stored
from tests.gateway.support import Client, running, tcp_port, user_property
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.packets import Connack, Puback, Pubrec, Will
from wire.properties import USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED

EPOCH = 42
EVERYTHING = "allow * publish,subscribe #\n"


def as_from(origin: str, seq: int = 1) -> dict[str, Any]:
    """Properties by which a message says that it comes from an origin."""
    return {"properties": {USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity(origin, EPOCH, seq))]}}


def refusals(folder: Path) -> list[tuple[Any, ...]]:
    return stored(folder, "SELECT reason, publisher, origin, first, last, messages FROM dropped ORDER BY first")


async def test_a_device_needs_no_rules_for_its_own_name(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await Client("reader").connect(tcp_port(broker))
        await reader.subscribe("#")
        device = await Client("garage").connect(tcp_port(broker))
        await device.publish("a", **as_from("garage"))
        assert user_property(await reader.receive(), IDENTITY_PROPERTY) == encode_identity("garage", EPOCH, 1)


@pytest.mark.parametrize("origin", ["garage", "test-gateway"])
async def test_nobody_publishes_in_anothers_name(tmp_path: Path, origin: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as broker:
        reader = await Client("reader").connect(tcp_port(broker))
        await reader.subscribe("#")
        forger = await Client("forger").connect(tcp_port(broker))
        for seq, (qos, answer) in enumerate([(1, Puback), (2, Pubrec), (1, Puback)], 1):
            forger.send("a", b"forged", qos=qos, **as_from(origin, seq))
            assert (await forger.expect(answer)).reason_code == NOT_AUTHORIZED
        forger.send("a", b"forged", qos=0, **as_from(origin, 4))
        await forger.publish("a", b"its own", **as_from("forger"))
        assert (await reader.receive()).payload == b"its own"
        assert broker.counters.messages_dropped["rejected"] == 4
    assert refusals(tmp_path) == [("rejected", "forger", origin, 1, 4, 4)]
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert line.about == {"client": "forger", "topic": "a", "origin": origin}  # type: ignore[attr-defined]


async def test_who_takes_the_gateways_name_for_a_client_identifier_does_not_speak_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        forger = await Client("test-gateway").connect(tcp_port(broker))
        forger.send("a", b"", **as_from("test-gateway"))
        assert (await forger.expect(Puback)).reason_code == NOT_AUTHORIZED


async def test_a_route_of_another_gateway_brings_those_that_a_rule_allows(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "deny * identify locks-*\nallow - identify *\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        route = await Client("site-2-central").connect(tcp_port(broker))
        for seq in range(1, 4):
            await route.publish("a", **as_from("garage", seq))
            await route.publish("a", **as_from("cellar", seq))
        route.send("a", b"", **as_from("locks-1"))
        assert (await route.expect(Puback)).reason_code == NOT_AUTHORIZED


async def test_by_the_hot_path_others_names_do_not_slip_through(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        device = await Client("garage").connect(tcp_port(broker))
        await device.publish("a", **as_from("garage", 1))  # from now on that goes the hot path
        origins = ["garage", "garage", "cellar", "garage", "garage2", "garag", "garage"]
        for seq, origin in enumerate(origins, 2):
            device.protocol.publish("a", b"", qos=1, **as_from(origin, seq))
        device.flush()
        answers = [(await device.expect(Puback)).reason_code for _ in origins]
        assert answers == [0 if origin == "garage" else NOT_AUTHORIZED for origin in origins]


async def test_new_rules_count_for_the_next_message(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "allow * identify cellar\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        device = await Client("garage").connect(tcp_port(broker))
        for seq in range(1, 4):
            await device.publish("a", **as_from("cellar", seq))
        rules.write_text(EVERYTHING)
        broker.reload()
        device.send("a", b"", **as_from("cellar", 4))
        assert (await device.expect(Puback)).reason_code == NOT_AUTHORIZED


async def test_a_will_is_no_way_to_speak_for_another(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        forger = Client("forger", will=Will("a", b"", 1, **as_from("garage")))
        await forger.open(tcp_port(broker))
        assert (await forger.expect(Connack)).reason_code == NOT_AUTHORIZED


async def test_a_will_is_held_against_the_rules_of_when_it_is_published(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "allow * identify garage\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        reader = await Client("reader").connect(tcp_port(broker))
        await reader.subscribe("#")
        forger = await Client("forger", will=Will("a", b"", 1, **as_from("garage"))).connect(tcp_port(broker))
        rules.write_text(EVERYTHING)
        broker.reload()
        forger.cut()
        assert await reader.silent()
    assert refusals(tmp_path / "store") == [("rejected", "forger", "garage", 1, 1, 1)]
