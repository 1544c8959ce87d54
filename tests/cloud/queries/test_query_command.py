"""Queries as a user types them, on tables made by the command."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cloud import BadQuery
from cloud import select as by_spark
from tests.cloud.messages import EPOCH, land, row
from tools.cli.main import make_app


def holdfast(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), arguments)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with gaps, a repetition and a message that cannot be decoded."""
    landing = tmp_path_factory.mktemp("landing")
    folder = tmp_path_factory.mktemp("lake") / "tables"
    first = [row(seq) for seq in (2, 3, 4, 8)]
    land(landing, [*first, *first], [row(seq) for seq in (5, 12)], [row(1, "cellar"), row(2, "cellar", b"\xff\x00")])
    arguments = ["cloud", "ingest", "--landing", str(landing), "--tables", str(folder)]
    done = holdfast(*arguments, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "batches": 1,
        "files": 3,
        "rows_in": 12,
        "new": 7,
        "duplicates": 4,
        "quarantined": 1,
        "readings": 14,
        "set_aside": [],
        "missing": [],
        "taken_back": [],
        "holds": True,
    }
    return folder


def select(folder: Path, sql: str) -> list[dict[str, object]]:
    done = holdfast("query", sql, "--tables", str(folder), "--json")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_ledger_gaps_and_completeness_follow_from_the_intervals(folder: Path) -> None:
    identity = {"origin": "garage", "epoch": f"{EPOCH:08x}"}
    assert select(folder, "SELECT * FROM ledger WHERE origin = 'garage' ORDER BY lo") == [
        {**identity, "lo": 2, "hi": 5},
        {**identity, "lo": 8, "hi": 8},
        {**identity, "lo": 12, "hi": 12},
    ]
    unknown = {"reason": "unknown", "gateway": None, "route": None}
    assert select(folder, "SELECT * FROM gaps ORDER BY lo") == [
        {**identity, "lo": 1, "hi": 1, "missing": 1, "place": "head", **unknown, "previous": None, "next": 2},
        {**identity, "lo": 6, "hi": 7, "missing": 2, "place": "middle", **unknown, "previous": 5, "next": 8},
        {**identity, "lo": 9, "hi": 11, "missing": 3, "place": "middle", **unknown, "previous": 8, "next": 12},
    ]
    assert select(folder, "SELECT * FROM completeness ORDER BY origin") == [
        {
            **identity,
            "origin": "cellar",
            "first": 1,
            "last": 2,
            "arrived": 2,
            "missing": 0,
            "share": 1.0,
            "conflicts": 0,
        },
        {**identity, "first": 2, "last": 12, "arrived": 6, "missing": 6, "share": 6 / 12, "conflicts": 0},
    ]


def test_values_are_plain_in_json_and_csv(folder: Path) -> None:
    columns = "payload, received_at, ingest_date, retain, gateway"
    sql = f"SELECT {columns} FROM bronze_messages WHERE origin = 'cellar' ORDER BY seq"
    first, second = select(folder, sql)
    assert first["payload"] == row(1, "cellar").payload.decode()
    assert second["payload"] == "0xff00"
    assert (first["received_at"], first["retain"], first["gateway"]) == ("2025-10-09T08:53:20.001000Z", False, "gw-1")
    done = holdfast("query", sql, "--tables", str(folder), "--csv")
    header, *lines = csv.reader(done.stdout.splitlines())
    assert header == list(first)
    assert lines == [["" if value is None else str(value) for value in one.values()] for one in (first, second)]


def test_long_text_is_not_cut_in_a_pipe(folder: Path) -> None:
    done = holdfast("query", "SELECT repeat('long ', 100) AS text, 1 AS one", "--tables", str(folder))
    assert done.exit_code == 0
    assert "long " * 99 in done.stdout


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("--spark SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("--spark SELECT nonsense FROM readings", "`nonsense` cannot be resolved"),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT nonsense FROM readings", 'column "nonsense" not found'),
        ("SELECT * FROM nowhere", "nowhere does not exist"),
        ("SELECT * FROM latestt", 'latestt does not exist! Did you mean "latest"?\n'),
        ("SELECT devic FROM latest", 'Candidate bindings: "device"'),
        ("SELECT CAST('one' AS INT)", "Could not convert string 'one'"),
    ],
)
def test_bad_sql_is_one_line_and_ends_with_2(folder: Path, sql: str, said: str) -> None:
    engine = ["--spark"] if sql.startswith("--spark ") else []
    done = holdfast("query", sql.removeprefix("--spark "), "--tables", str(folder), *engine)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("sql", "said"), [("SELECT * FROM nowhere", "`nowhere` cannot be found"), ("SELECT 1/0", "Division by zero")]
)
def test_spark_says_in_one_line_what_is_wrong_with_a_statement(spark: SparkSession, sql: str, said: str) -> None:
    with pytest.raises(BadQuery, match=said) as refused:
        by_spark(spark, sql)
    assert "\n" not in str(refused.value)


def test_missing_landing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = holdfast("cloud", "ingest")
    assert done.exit_code == 2
    assert done.stderr == f"holdfast cloud ingest: the landing folder {tmp_path}/holdfast/landing does not exist\n"


def test_ingest_names_what_it_sets_aside_and_ends_with_1(spark: SparkSession, landing: Path, tmp_path: Path) -> None:
    (described,) = land(landing, [row(1)])
    (landing / described.file).unlink()
    arguments = ["cloud", "ingest", "--landing", str(landing), "--tables", str(tmp_path / "tables")]
    done = holdfast(*arguments)
    assert done.exit_code == 1
    missing = f"set aside {described.file}: the file is missing, its manifest is there"
    assert done.stderr == f"holdfast cloud ingest: {missing}\n"
    assert done.stdout.startswith(
        "0 landing files: 0 rows in = 0 new and decoded + 0 duplicates + 0 quarantined (undecodable or in conflict); "
        "0 readings; 1 file"
    )


def test_numbers_that_are_none_are_null_in_json(folder: Path) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, [1.5, '-inf'::DOUBLE] AS c, {'d': 'nan'::FLOAT} AS e"
    assert select(folder, sql) == [{"a": None, "b": None, "c": [1.5, None], "e": {"d": None}}]


def test_two_columns_of_one_name_are_no_object(folder: Path) -> None:
    done = holdfast("query", "SELECT 1 AS a, 2 AS a", "--tables", str(folder), "--json")
    assert done.exit_code == 2 and "two columns are called 'a'" in done.stderr


def test_data_file_that_is_gone_is_named_in_words(folder: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(folder, tables)
    gone = min((tables / "readings").rglob("*.parquet"))  # Spark may have divided the batch's readings
    gone.unlink()
    done = holdfast("query", "SELECT max(value) FROM readings", "--tables", str(tables))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"the data file {gone} is gone, which a table's log names: bring it back from a copy" in done.stderr
