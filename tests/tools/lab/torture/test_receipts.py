"""A sample of the torture of receipts, and proof that it notices what is missing or there twice."""

import json
from collections import Counter

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.receipts.command import receipts
from tools.lab.torture.receipts.faults import FAULTS
from tools.lab.torture.receipts.run import ReceiptsOutcome, judge

app = typer.Typer()
app.command()(receipts)
SENT = {("p0", 7, number) for number in (1, 2, 3)}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sample_of_the_torture_holds(seed: int) -> None:
    done = CliRunner().invoke(app, ["--quick", "--json", "--seed", str(seed)])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert (report["holds"], report["messages"], set(report["struck"])) == (True, 2000, set(FAULTS))


def test_what_is_missing_or_there_twice_is_counted_and_named() -> None:
    outcome = ReceiptsOutcome()
    found = list(judge(outcome, SENT, Counter({("p0", 7, 1): 1, ("p0", 7, 3): 3})))
    assert found == ["1 of p0 lost: 2", "1 of p0 there twice: 3"]
    assert (outcome.messages, outcome.lost, outcome.twice, outcome.holds) == (3, 1, 2, False)


def test_what_is_there_once_holds_though_it_was_not_acknowledged_before_a_kill() -> None:
    outcome = ReceiptsOutcome()
    assert list(judge(outcome, SENT, Counter(dict.fromkeys([*SENT, ("p0", 7, 4)], 1)))) == []
    assert outcome.holds


def test_a_fault_that_there_is_not_is_named() -> None:
    result = CliRunner().invoke(app, ["--fault", "flood"])
    assert result.exit_code == 2
    assert all(name in result.output.replace("\n", "") for name in ("flood", "landing_folder"))


def test_every_fault_says_what_it_does() -> None:
    assert all(fault.__doc__ for fault in FAULTS.values())
