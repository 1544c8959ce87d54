"""The attacks reach a gateway, and what they do to an ordinary client is measured."""

import json

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.attacks.command import MEMORY_MAX_MB, WAIT_MAX_S, Outcome, attacks
from tools.lab.torture.attacks.kinds import ATTACKS
from tools.lab.torture.attacks.peers import PEERS

ONE_OF_EACH_FILE = [
    "column-batches",
    "serial-starts",
    "serial-fragments",
    "http-bomb",
    "proxy-headers",
    "nats-large",
    "expiries",
]

app = typer.Typer()
app.command()(attacks)


@pytest.mark.long
def test_an_attack_is_endured_and_measured() -> None:
    names = [
        "pings",
        "wills",
        "selectors",
        "link-conditions",
        "announcements",
        "slow-health",
        *ONE_OF_EACH_FILE,
    ]
    options = [option for name in names for option in ("--attack", name)]
    result = CliRunner().invoke(app, ["--seconds", "1", *options, "--json"])
    report = json.loads(result.stdout.splitlines()[-1])
    assert (
        faults_of(report, "torture") == []
        and report["torture"] == "attacks"
        and report["holds"] == (result.exit_code == 0)
    )
    assert [outcome["attack"] for outcome in report["attacks"]] == names
    for outcome in report["attacks"]:
        assert not outcome["fault"]
        assert outcome["acknowledged"] > 0 and outcome["longest_wait_s"] > 0 and outcome["longest_work_s"] > 0


def test_an_attack_that_there_is_not_is_named() -> None:
    result = CliRunner().invoke(app, ["--attack", "nothing"])
    assert result.exit_code == 2
    assert all(name in result.output.replace("\n", "") for name in ("nothing", "pings"))


def test_a_wait_memory_or_a_fault_beyond_the_bars_does_not_hold() -> None:
    assert Outcome("pings", 1, WAIT_MAX_S, 1.0, MEMORY_MAX_MB).holds
    assert not Outcome("pings", 1, WAIT_MAX_S + 0.001).holds
    assert not Outcome("pings", 1, memory_mb=MEMORY_MAX_MB + 1).holds
    assert not Outcome("pings", fault="the ordinary client noticed it").holds


def test_every_attack_says_what_it_does() -> None:
    assert all(attack.__doc__ for attack in ATTACKS.values())
    assert all(peer.attack.__doc__ for peer in PEERS.values())
