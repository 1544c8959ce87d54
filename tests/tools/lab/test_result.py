"""Every command that measures or judges takes the same options and prints the same JSON."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.support.result_shape import COUNTS, ROW, faults_of
from tools.cli.commands import COMMANDS
from tools.cli.main import load, make_app
from tools.cli.paths import source_root
from tools.lab.demo.report import Outcome, judge_outcome
from tools.lab.demo.verdict import OriginVerdict, Verdict
from tools.lab.figure import Figure
from tools.lab.result import Judgement, end_bench, end_judged

KINDS = ("bench", "torture", "check", "demo")
JUDGING = [path for path in COMMANDS if path.removeprefix("lab ").split()[0] in KINDS]
RUN = {
    "lab torture link": ["--bytes", "20000"],
    "lab torture wire": ["--bytes", "20000"],
}
FIGURES = [
    Figure("fast", "messages/s", 300, 100, 200),
    Figure("told", "ms", 0.5),
    Figure("none of it", "", 0, 9, 0, at_most=True),
]


def holdfast(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), arguments)


def code_of(end: Callable[..., NoReturn], *arguments: Any, **named: Any) -> int:
    """The exit code with which it ends."""
    with pytest.raises(typer.Exit) as ended:
        end(*arguments, **named)
    return ended.value.exit_code


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return report


@pytest.mark.parametrize("path", JUDGING)
def test_command_takes_quick_and_json_and_ends_by_the_one_function(path: str) -> None:
    command = load(COMMANDS[path])
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--quick", "--json"} <= flags
    module = Path(sys.modules[COMMANDS[path].target.partition(":")[0]].__file__ or "").read_text("utf-8")
    assert ("end_bench(" if path.startswith("lab bench") else "end_judged(") in module
    assert "json.dumps" not in module or path == "lab torture soak"  # which writes a device's configuration


@pytest.mark.parametrize("path", RUN)
def test_command_prints_the_shape_of_its_kind(path: str) -> None:
    kind, name = path.removeprefix("lab ").split()
    done = holdfast(*path.split(), *RUN[path], "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert faults_of(report, kind) == []
    assert (report[kind], report["holds"]) == (name, done.exit_code == 0)


def test_quick_sets_sizes_that_are_not_given() -> None:
    for arguments, size in (["--quick"], 200_000), (["--quick", "--bytes", "30000"], 30_000):
        done = holdfast("lab", "torture", "link", *arguments, "--json")
        assert json.loads(done.stdout)["bytes"] == size


def test_bench_ends_with_1_where_a_goal_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(end_bench, "broker", FIGURES, 1.25, True, about={"title": "how fast"}) == 0
    report = printed(capsys)
    assert (faults_of(report, "bench"), report["title"], report["seconds"]) == ([], "how fast", 1.2)
    fast, told, none = report["rows"]
    assert fast == {
        "what": "fast",
        "ours": 300,
        "unit": "messages/s",
        "peer": 100,
        "peer_name": "mosquitto",
        "ratio": 3,
        "goal": ">= 200",
        "holds": True,
    }
    assert (told["peer_name"], told["goal"], told["holds"], none["goal"]) == (None, None, None, "<= 0")
    missed = Figure("large", "kB", 20, None, 15, at_most=True)
    assert code_of(end_bench, "broker", [*FIGURES, missed], 1, True) == 1
    assert printed(capsys)["holds"] is False


def test_bench_prints_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code_of(end_bench, "flash", FIGURES, 1, False, ("measured", "littlefs"), {"workload": "some messages"})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["workload:", "some", "messages"],
        [],
        ["measured", "littlefs", "ratio", "goal"],
        ["fast", "300", "100", "3", "x", "≥", "200", "messages/s", "ok"],
        ["told", "0.5", "ms"],
        ["none", "of", "it", "0", "9", "0", "x", "≤", "0", "ok"],
    ]


def test_judgement_ends_with_1_where_it_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    judgement = Judgement(False, 7, messages=5, lost=1, violations=["1 is lost"], more={"cuts": 3})
    assert code_of(end_judged, "torture", "flash", judgement, 2, ["told"], True) == 1
    report = printed(capsys)
    assert faults_of(report, "torture") == []
    assert (report["seed"], report["lost"], report["twice"], report["cuts"]) == (7, 1, None, 3)
    assert code_of(end_judged, "torture", "flash", Judgement(True), 2, ["told"], False) == 0
    assert capsys.readouterr().out == "told\n"


@pytest.mark.parametrize(("missing", "holds"), [(0, True), (2, False)])
def test_demo_is_judged_by_its_readings(missing: int, holds: bool, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict([OriginVerdict("garage", 100, 101 - missing, missing, 0, 1)], removed=3)
    outcome = Outcome(verdict, 3, "MicroPython 1.25", 20.0, 40.0, 1000, 8, Path("tables"), Path("chart.png"))
    assert code_of(end_judged, "demo", "first-reading", judge_outcome(outcome, 4), 40, [], True) == (0 if holds else 1)
    report = printed(capsys)
    assert faults_of(report, "demo") == []
    assert (report["messages"], report["lost"], report["uncounted"], report["removed"]) == (100, missing, 1, 3)
    assert report["sent_again"] == 8
    assert report["bytes_a_reading"] == pytest.approx(1000 / (101 - missing), abs=0.01)


def test_page_names_every_key() -> None:
    page = (source_root() / "docs/reference/commands.md").read_text("utf-8")
    section = page.split("\n## Results\n")[1].split("\n## ")[0]
    for key in (*KINDS, "seed", "seconds", "holds", "violations", *COUNTS, "rows", *ROW):
        assert f"`{key}" in section, key
