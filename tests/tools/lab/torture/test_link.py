"""The command that tortures the serial link."""

import json

import pytest
import typer
from typer.testing import CliRunner

from tools.lab.torture.wire import link as link_noise
from tools.lab.torture.wire.link import link

app = typer.Typer()
app.command()(link)


def test_a_million_bytes_over_bad_lines_deliver_nothing_but_what_was_sent(seed: int) -> None:
    result = CliRunner().invoke(app, ["--bytes", "1000000", "--seed", str(seed), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["seed"], report["violations"]) == (seed, [])
    assert report["delivered"] > 100_000


def test_a_byte_that_was_never_sent_ends_it_with_1(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_noise, "piece", lambda at, size: bytes(size))
    result = CliRunner().invoke(app, ["--bytes", "1000000", "--seed", str(seed)])
    assert result.exit_code == 1
    assert f"seed {seed}" in result.output
