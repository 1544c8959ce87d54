"""`holdfast cloud maintain`, `verify`, `rebuild` and `requarantine` as commands that run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cloud import ingest
from tests.cloud.messages import land, row
from tools.cli.main import make_app

# Several commands share one Java here: each start of one takes 10 s of a core.
PROGRAM = """
import contextlib, io, json, sys
from tools.cli.main import main

ended = []
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            ended.append((end.code, out.getvalue()))
print(json.dumps(ended))
"""


def run_in_turn(*command_lines: list[str]) -> tuple[list[tuple[int, str]], str]:
    """Runs commands of `holdfast cloud` one after another in one process.

    Returns the exit code of each and what it printed, and what all of them and Java printed on standard error.
    """
    lines = json.dumps([["cloud", *line] for line in command_lines])
    done = subprocess.run([sys.executable, "-c", PROGRAM, lines], capture_output=True, text=True, check=True)
    return [(code, out) for code, out in json.loads(done.stdout)], done.stderr


def test_commands_look_after_the_tables_and_end_with_1_on_a_fault(spark: SparkSession, tmp_path: Path) -> None:
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    landing.mkdir()
    land(landing, [row(1)])
    ingest(spark, landing, tables)
    land(landing, [row(2)], boot=2)
    ingest(spark, landing, tables)
    folders = ["--landing", str(landing), "--tables", str(tables), "--json"]
    sparing = ["--master", "local[1]", "--conf", "spark.driver.memory=1g"]
    ended, err = run_in_turn(
        ["rebuild", *folders, *sparing],
        ["maintain", *folders, "--landing-days", "0", "--forget", "cellar", *sparing],
        ["requarantine", *folders, *sparing],
    )
    assert [code for code, _ in ended] == [0, 0, 0], err
    rebuilt, maintained, decoded_again = (json.loads(out) for _, out in ended)
    assert rebuilt["new"] == 2
    assert (maintained["landing_files"], maintained["forgotten"]) == (1, 0)
    assert decoded_again["rows_in"] == 0
    next((tables / "readings").glob("*/*.parquet")).unlink()
    command = [sys.executable, "-m", "tools.cli.main", "cloud", "verify", *folders, *sparing]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["holds"]) == (1, False), done.stderr


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", ["maintain", "requarantine", "verify"])
def test_without_tables_a_command_ends_with_2_and_makes_none(command: str, tmp_path: Path) -> None:
    folders = ["--landing", str(tmp_path), "--tables", str(tmp_path / "tables")]
    done = CliRunner().invoke(make_app(), ["cloud", command, *folders])
    assert (done.exit_code, done.stderr.count("there are no tables in")) == (2, 1), done.output
    assert not (tmp_path / "tables").exists()


def test_spark_runs_where_and_as_the_options_say(tmp_path: Path) -> None:
    """Spark itself refuses a master that it does not know."""
    folders = ["--landing", str(tmp_path), "--tables", str(tmp_path / "tables")]
    commands = ["maintain", "rebuild", "requarantine", "verify"]
    for options, reason in ((["--conf", "memory=1g"], "expected a setting"), (["--master", "nowhere"], "Master must")):
        ended, err = run_in_turn(*([command, *folders, *options] for command in commands))
        assert ended == [(2, "")] * 4
        assert err.count(reason) == 4, err


def test_requarantine_decodes_again_and_says_what_it_did(spark: SparkSession, tmp_path: Path) -> None:
    landing, tables, decoder = tmp_path / "landing", tmp_path / "tables", tmp_path / "meters.py"
    landing.mkdir()
    land(landing, [row(seq, content=b"\xff")._replace(topic="meters/7", content_type=None) for seq in (1, 2)])
    assert ingest(spark, landing, tables).quarantined == 2
    decoder.write_text(
        "from cloud import Record, decoder\n\n"
        "@decoder('meters/#')\n"
        "def meter(message):\n    yield Record(metric='count', value=1.0)\n"
    )
    folders = ["--landing", str(landing), "--tables", str(tables)]
    done = CliRunner().invoke(make_app(), ["cloud", "requarantine", *folders, "--decoder", str(decoder), "--json"])
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert {name: facts[name] for name in ("rows_in", "new", "quarantined", "readings", "holds")} == {
        "rows_in": 2,
        "new": 2,
        "quarantined": 0,
        "readings": 2,
        "holds": True,
    }
