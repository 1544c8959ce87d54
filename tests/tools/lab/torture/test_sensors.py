"""The command that tortures the drivers of the sensors."""

import json

import pytest
import typer
from typer.testing import CliRunner

from tools.lab.torture.sensors import command
from tools.lab.torture.sensors.command import sensors

app = typer.Typer()
app.command()(sensors)


def test_no_faulty_transfer_gives_a_value_that_the_chip_cannot_measure(seed: int) -> None:
    result = CliRunner().invoke(app, ["--transfers", "10000", "--seed", str(seed), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["seed"], report["violations"], report["transfers"]) == (seed, [], 10_000)
    assert report["readings"] > 9_000  # sensors without a fault measure
    assert len(report["faults"]) == 25


def test_a_violation_ends_it_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"transfers": 1, "readings": 1, "errors": 0, "faults": {}, "violations": ["dht22: 614.4"]}
    monkeypatch.setattr(command, "run", lambda transfers, seed: dict(found))
    result = CliRunner().invoke(app, ["--transfers", "1"])
    assert result.exit_code == 1
    assert "dht22: 614.4" in result.output
