"""A sample of the torture of a lander behind mosquitto, and proof that it notices what goes wrong."""

import json
from shutil import which

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.lander.command import lander
from tools.lab.torture.lander.run import judge

app = typer.Typer()
app.command()(lander)


def test_a_message_that_is_missing_in_the_tables_or_there_twice_is_told() -> None:
    first, second, other = (("roof", 7, number) for number in (1, 2, 3))
    assert judge({first, second}, [first, second, other]) == (0, 0, [])
    assert judge({first, second}, [second, second]) == (
        1,
        1,
        ["1 messages are not in the tables, one is ('roof', 7, 1)", "1 messages are in the tables twice"],
    )


@pytest.mark.skipif(which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None, reason="needs mosquitto")
def test_a_short_run_holds_and_says_what_struck(seed: int) -> None:
    result = CliRunner().invoke(app, ["--messages", "800", "--kills", "2", "--seed", str(seed), "--json"])
    report = json.loads(result.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert result.exit_code == 0, report
    assert (report["messages"], report["lost"], report["twice"]) == (800, 0, 0)
    assert sum(report["struck"].values()) == 3
