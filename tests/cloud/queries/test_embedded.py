"""The tables in DuckDB: what a reader of Delta's log must know of files, versions and interrupted commits."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cloud import NoTables, OpenTables
from cloud.tables.data_file import DataFileWriter
from cloud.tables.schema import BATCHES, LEDGER, QUARANTINE
from cloud.tables.tables import Tables
from tests.cloud.lake import commit_by_another, description_of
from tools.cli.paths import source_root

DAYS = [datetime(2026, 6, day, tzinfo=UTC) for day in (1, 2, 3)]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Tables with a file of the ledger and of `batches` for each of three batches."""
    made = Tables(None, tmp_path)  # these appends need no Spark
    made.create_missing()
    for number, day in enumerate(DAYS, 1):
        made.append_values(LEDGER, [("garage", "00000001", number, number, number, number)], None)
        made.append_values(BATCHES, [(number, "c", 1, 1, 1, 0, 0, 0, 0, 1, day, day)], None)
    return made


def ask(tables: Tables, sql: str) -> list[tuple[object, ...]]:
    with OpenTables(tables.folder) as opened:
        return opened.select(sql).rows


def test_a_small_question_needs_no_spark(tables: Tables) -> None:
    program = (
        "import sys\nfrom tools.cli.main import main\ntry:\n    main()\nfinally:\n    print('pyspark' in sys.modules)"
    )
    arguments = ["query", "SELECT 1", "--tables", str(tables.folder)]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["1 row", "False"]
    assert done.stderr == ""


def test_query_opens_only_the_files_that_can_have_its_rows(tables: Tables) -> None:
    first, second, third = (Path(tables.of(BATCHES).path(file.place)) for file in tables.files(BATCHES))
    first.unlink()
    third.unlink()
    assert ask(tables, "SELECT batch FROM batches WHERE batch = 2") == [(2,)]
    day = "proved_at >= TIMESTAMPTZ '2026-06-02 00:00:00Z' AND proved_at < TIMESTAMPTZ '2026-06-03 00:00:00Z'"
    assert ask(tables, f"SELECT batch FROM batches WHERE {day}") == [(2,)]
    second.unlink()


def test_file_that_lacks_a_newer_column_has_nulls_there(tables: Tables) -> None:
    table = Path(tables.folder) / LEDGER.name
    changed = description_of(table)
    more = ',{"name":"remark","type":"string","nullable":true,"metadata":{}}]}'
    changed["metaData"]["schemaString"] = changed["metaData"]["schemaString"].removesuffix("]}") + more
    commit_by_another(table, changed)
    assert ask(tables, "SELECT DISTINCT remark FROM ledger_rows") == [(None,)]


def test_removed_files_do_not_count_and_sums_are_whole_numbers(tables: Tables) -> None:
    assert ask(tables, "SELECT sum(rows_in) FROM batches") == [(3,)]
    tables.replace(LEDGER, tables.files(LEDGER), tables.rows(LEDGER, LEDGER.column_names).slice(0, 1))
    assert ask(tables, "SELECT origin, lo, hi FROM ledger") == [("garage", 1, 1)]


def test_commit_that_is_cut_off_is_passed_over_and_stays(tables: Tables) -> None:
    log = Path(tables.folder) / LEDGER.name / "_delta_log"
    (log / f"{4:020}.json").write_bytes(b'{"commitInfo":{}}\n{"add":{"pa')
    before = {path: path.read_bytes() for path in Path(tables.folder).rglob("*") if path.is_file()}
    assert ask(tables, "SELECT lo, hi FROM ledger") == [(1, 3)]
    assert {path: path.read_bytes() for path in Path(tables.folder).rglob("*") if path.is_file()} == before


def test_checkpoint_that_is_cut_off_is_told_with_what_mends_it(tables: Tables) -> None:
    (Path(tables.folder) / LEDGER.name / "_delta_log" / f"{3:020}.checkpoint.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(OSError, match=r"ledger: .*; a run of `holdfast cloud ingest` mends what a power cut has left"):
        OpenTables(tables.folder)
    tables = Tables(None, tables.folder)
    tables.create_missing()
    assert ask(tables, "SELECT lo, hi FROM ledger") == [(1, 3)]


def test_table_with_a_feature_that_we_do_not_read_is_refused_by_name(tables: Tables) -> None:
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    newer = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    commit_by_another(Path(tables.folder) / LEDGER.name, newer)
    with pytest.raises(NoTables, match=r"ledger needs Delta's reader version 3"):
        OpenTables(tables.folder)


def test_tables_of_an_older_version_are_refused_with_what_helps(tables: Tables) -> None:
    older = description_of(Path(tables.folder) / LEDGER.name)
    older["metaData"]["schemaString"] = older["metaData"]["schemaString"].replace('"name":"origin"', '"name":"maker"')
    commit_by_another(Path(tables.folder) / LEDGER.name, older)
    with pytest.raises(NoTables, match="make all tables anew with `holdfast cloud rebuild`"):
        OpenTables(tables.folder)


def test_partitions_are_those_of_the_log(tables: Tables) -> None:
    texts = {"kind": "conflict", "reason": "another payload", "origin": "garage", "epoch": "00000001", "topic": "t"}
    row = {**dict.fromkeys(QUARANTINE.arrow_schema.names), **texts, "seq": 1, "payload": b"", "file": "f", "batch": 1}
    for day in DAYS:
        writer = DataFileWriter(tables.of(QUARANTINE), QUARANTINE, 1, day.date())
        writer.write(pa.Table.from_pylist([row], QUARANTINE.arrow_schema))
        tables.append(QUARANTINE, [writer.close()], None)
    days = [(day.date(),) for day in DAYS]
    assert ask(tables, "SELECT ingest_date FROM quarantine ORDER BY ALL") == days
    assert ask(tables, "SELECT ingest_date FROM quarantine WHERE ingest_date > DATE '2026-06-02'") == days[2:]


def test_ctrl_c_ends_a_query_at_whatever_line_of_its_beginning_and_while_it_runs(tables: Tables) -> None:
    """In a process of its own: Spark's library has another handler of Ctrl-C."""
    command = [sys.executable, "-m", "tests.cloud.queries.interrupted", str(tables.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=source_root())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5
