"""`holdfast cloud requarantine` as a command that runs."""

import json
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from cloud import ingest
from tests.cloud.messages import land, row


def requarantine(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.cli.main", "cloud", "requarantine", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_command_decodes_again_and_says_what_it_did(spark: SparkSession, tmp_path: Path) -> None:
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
    done = requarantine(*folders, "--decoder", str(decoder), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert {name: facts[name] for name in ("rows_in", "new", "quarantined", "readings", "holds")} == {
        "rows_in": 2,
        "new": 2,
        "quarantined": 0,
        "readings": 2,
        "holds": True,
    }


def test_without_tables_the_command_ends_with_2_and_makes_none(tmp_path: Path) -> None:
    done = requarantine("--landing", str(tmp_path), "--tables", str(tmp_path / "tables"))
    assert (done.returncode, done.stderr.count("there are no tables in")) == (2, 1)
    assert not (tmp_path / "tables").exists()
