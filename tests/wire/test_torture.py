"""The command that feeds noise to the protocols."""

import json

import typer
from typer.testing import CliRunner

from tools.lab.torture.wire.wire import wire

app = typer.Typer()
app.command()(wire)


def test_torture_reports_what_it_fed(seed: int) -> None:
    result = CliRunner().invoke(app, ["--bytes", "20000", "--seed", str(seed), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["bytes"] >= 20_000
    assert (report["seed"], report["violations"]) == (seed, [])
