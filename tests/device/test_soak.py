"""The heap stays flat however many messages go through."""

import json

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.device.soak import soak

MESSAGES = 5_000

app = typer.Typer()
app.command()(soak)


@pytest.mark.usefixtures("micropython")
def test_heap_in_use_does_not_grow_with_messages() -> None:
    result = CliRunner().invoke(app, ["--messages", str(MESSAGES), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert len(report["heap_bytes"]) == 10
    assert report["growth_bytes"] < 256
