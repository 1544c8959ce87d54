"""A sample of the torture of devices, and that it would notice."""

import asyncio
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tools.micropython import MicroPython
from tools.torture.device import device
from tools.torture.device_site import Outcome, count_disorder, torture
from tools.torture.device_witness import Witness
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.packets import Connack, Publish, Pubrec, Pubrel, encode
from wire.properties import USER_PROPERTY

app = typer.Typer()
app.command()(device)


def test_nothing_is_lost_and_commands_are_answered_once_over_cuts_of_everything(
    micropython: MicroPython, tmp_path: Path, seed: int
) -> None:
    outcome = asyncio.run(torture(micropython, tmp_path, "mosquitto", 2, 20, seed))
    assert outcome.holds, outcome
    assert min(outcome.power_cuts, outcome.line_cuts, outcome.broker_cuts) > 0
    assert outcome.stored > 50


def test_the_command_reports_what_it_did_to_our_gateway(seed: int) -> None:
    arguments = ["--broker", "gateway", "--qos", "1", "--cuts", "10", "--seed", str(seed), "--json"]
    result = CliRunner().invoke(app, arguments)
    report = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0, report
    assert (report["broker"], report["qos"], report["seed"]) == ("gateway", 1, seed)
    assert report["power_cuts"] + report["line_cuts"] + report["broker_cuts"] >= 10
    assert report["lost"] == report["disorder"] == 0


def test_each_kind_of_loss_is_a_failure() -> None:
    assert Outcome("gateway", 1, twice=1).holds
    assert not Outcome("gateway", 2, twice=1).holds
    for broken in ({"lost": 1}, {"disorder": 1}, {"unanswered": 1}, {"answered_twice": 1}, {"violations": ["x"]}):
        assert not Outcome("gateway", 1, **broken).holds


def test_what_overtakes_is_counted() -> None:
    came = [encode_identity("one", 7, seq) for seq in (1, 3, 2, 3, 4)] + [encode_identity("two", 7, 1)]
    assert count_disorder(came) == 1


def publish(identifier: int, dup: bool = False, number: int = 1) -> Publish:
    identity = (IDENTITY_PROPERTY, encode_identity("one", 7, number))
    return Publish("topic", b"[]", 2, False, dup, identifier, {USER_PROPERTY: [identity]})


def connack(session_present: bool) -> Connack:
    return Connack(session_present, 0, {})


WRONG = {
    "repeated without DUP": [connack(True), publish(2), publish(2)],
    "packet identifiers": [connack(True), publish(2), publish(3, dup=True)],
    "DUP in a new session": [connack(False), publish(2, dup=True)],
    "after its PUBREL": [connack(True), publish(2), Pubrec(2), Pubrel(2), publish(2, dup=True)],
}


@pytest.mark.parametrize("told", WRONG)
def test_the_witness_sees_what_a_device_may_not_do(told: str) -> None:
    witness = Witness("one")
    for packet in WRONG[told]:
        witness.hear("connection", not isinstance(packet, (Connack, Pubrec)), encode(packet))
    assert len(witness.violations) == 1
    assert told in witness.violations[0]


def test_the_witness_tells_a_command_that_the_broker_began_anew() -> None:
    witness = Witness("one")
    for packet in (Publish("commands/one", b"commands/one 5", 2, False, False, 9, {}), Pubrel(9)):
        witness.hear("connection", False, encode(packet))
    assert not witness.begun_anew
    witness.hear("another", False, encode(Publish("commands/one", b"commands/one 5", 2, False, True, 9, {})))
    assert witness.begun_anew == {"commands/one 5"}
    assert not witness.violations
