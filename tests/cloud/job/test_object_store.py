"""The job on tables in an object store: complete after each cut, and never two jobs that both count."""

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cloud import JobRunning, OpenTables, ingest, maintain, open_views, rebuild, requarantine, verify
from cloud.job import lock
from cloud.landing.file import Row
from cloud.landing.folder import LandingFolder
from cloud.storage.objects import ObjectStorage
from cloud.storage.place import open_storage
from cloud.storage.storage import StoreError
from cloud.tables.data_file import DataFile
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, LANDING_FILES, LEDGER, QUARANTINE, READINGS, TABLES, Table
from cloud.tables.stored_table import StoredTable
from cloud.tables.tables import Tables, Transaction
from tests.cloud.job.cut_job import Cut
from tests.cloud.messages import row
from tests.cloud.object_store import Server
from tools.cli.main import make_app
from tools.lab.torture.cloud.line import StoreLine

FIRST = [row(1), row(2), row(2), row(3, content=b"no SenML")]
SECOND = [row(2), row(4), row(3, content=b"other")]
EACH = {"bronze_messages": 4, "readings": 6, "quarantine": 2, "ledger": 2, "landing_files": 2, "batches": 2}


class Store:
    """A landing folder and tables, each at a URL."""

    def __init__(self, spark: SparkSession, server: Server, landing: str | Path | None = None) -> None:
        self.spark = spark
        self.server = server
        self.site = uuid.uuid4().hex
        self.landing = landing or server.url(f"{self.site}/landing")
        self.tables = server.url(f"{self.site}/tables")

    def land(self, rows: Iterable[Row], boot: int = 1) -> None:
        folder = LandingFolder(open_storage(self.landing), "lander-1", boot)
        folder.land(list(rows))
        folder.close()

    def ingest(self) -> int:
        return ingest(self.spark, self.landing, self.tables).new

    def counts(self) -> dict[str, int]:
        with OpenTables(self.tables) as tables:
            return {name: rows_of(tables, name) for name in EACH}

    def check(self) -> None:
        """Asserts that the tables have each message of FIRST and SECOND once."""
        with OpenTables(self.tables) as tables:
            found = tables.select("SELECT seq, count(*) FROM bronze_messages GROUP BY seq ORDER BY seq").rows
            assert found == [(1, 1), (2, 1), (3, 1), (4, 1)]
            found = tables.select("SELECT kind, seq FROM quarantine ORDER BY ALL").rows
            assert found == [("conflict", 3), ("undecodable", 3)]
            assert tables.select("SELECT count(*), count(DISTINCT (seq, record)) FROM readings").rows == [(6, 6)]
            assert tables.select("SELECT sum(hi - lo + 1) FROM ledger_rows").rows == [(4,)]
        assert [one for one in verify(self.spark, self.landing, self.tables, fresh_s=1e12) if not one.holds] == []


def rows_of(tables: OpenTables, name: str) -> int:
    ((count,),) = tables.select(f"SELECT count(*) FROM {'ledger_rows' if name == 'ledger' else name}").rows
    assert isinstance(count, int)
    return count


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Runs an object store for all tests. Each has a place of its own."""
    server = Server()
    server.start()
    yield server
    server.process.stop()


@pytest.fixture
def store(spark: SparkSession, server: Server) -> Store:
    return Store(spark, server)


def storage_options(server: Server) -> dict[str, str]:
    endpoint = f"http://127.0.0.1:{server.port}"
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}


def test_object_is_created_once(server: Server) -> None:
    storage = ObjectStorage(server.url("once"))
    assert storage.create("a", b"first")
    assert not storage.create("a", b"second")
    assert storage.create("a", b"first")  # a request whose answer was lost, and which is repeated
    assert storage.read("a") == b"first"


def test_landing_files_become_tables_that_every_engine_reads(store: Store, server: Server) -> None:
    store.land(FIRST)
    assert store.ingest() == 2
    store.land(SECOND, boot=2)
    assert store.ingest() == 1
    assert store.ingest() == 0
    assert store.counts() == EACH
    store.check()
    for table in TABLES:
        by_rust = DeltaTable(f"s3://lake/{store.site}/tables/{table.name}", storage_options=storage_options(server))
        assert by_rust.to_pyarrow_table().num_rows == EACH.get(table.name, by_rust.to_pyarrow_table().num_rows)
    open_views(store.spark, store.tables)
    by_spark = store.spark.sql("SELECT seq, count(*) AS readings FROM readings GROUP BY seq ORDER BY seq").collect()
    assert [tuple(row) for row in by_spark] == [(1, 2), (2, 2), (4, 2)]
    assert [tuple(row) for row in store.spark.sql("SELECT lo, hi FROM ledger").collect()] == [(1, 4)]


def test_commands_take_urls_and_show_no_options_of_them(store: Store) -> None:
    store.land(FIRST)
    done = CliRunner().invoke(
        make_app(), ["cloud", "ingest", "--landing", str(store.landing), "--tables", store.tables, "--json"]
    )
    assert (done.exit_code, json.loads(done.stdout)["new"]) == (0, 2)
    asked = CliRunner().invoke(
        make_app(), ["query", "SELECT count(*) AS n FROM readings", "--tables", store.tables, "--json"]
    )
    assert json.loads(asked.stdout) == [{"n": 4}]
    none = CliRunner().invoke(make_app(), ["query", "--tables", store.server.url("nowhere")])
    assert none.exit_code == 2
    assert "no tables in s3://lake/nowhere;" in none.output
    bad = CliRunner().invoke(make_app(), ["query", "--tables", "s3://key:hunter2@lake/a"])
    assert (bad.exit_code, "hunter2" in bad.output) == (2, False)


def test_landing_files_of_a_local_folder_become_tables_in_an_object_store(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    store = Store(spark, server, tmp_path / "landing")
    store.land(FIRST)
    store.land(SECOND, boot=2)
    assert store.ingest() == 3
    store.check()


@pytest.mark.parametrize(
    "points",
    [
        (READINGS, LANDING_FILES),
        pytest.param((BRONZE_MESSAGES, READINGS, QUARANTINE, BATCHES, LEDGER, LANDING_FILES), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_run_after_a_cut_at_any_write_completes_the_tables(
    points: tuple[Table, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_cut_job.py` has each of the cuts with tables in a folder."""
    store.land(FIRST)
    store.ingest()
    store.land(SECOND, boot=2)
    for point in points:
        with monkeypatch.context() as patch:
            cut_after(point, patch)
            with pytest.raises(Cut):
                store.ingest()
    store.ingest()
    store.check()


def cut_after(point: Table, patch: pytest.MonkeyPatch) -> None:
    append = Tables.append

    def append_and_end(tables: Tables, to: Table, files: Iterable[DataFile], transaction: Transaction | None) -> None:
        append(tables, to, files, transaction)
        if to is point and transaction:
            raise Cut

    patch.setattr(Tables, "append", append_and_end)


DRIVER = """
import os, signal, sys
from cloud import ingest
from cloud.tables.tables import Tables

append = Tables.append

def append_and_die(tables, to, files, transaction):
    append(tables, to, files, transaction)
    if to.name == "readings":
        os.kill(os.getpid(), signal.SIGKILL)

Tables.append = append_and_die
ingest(None, *sys.argv[1:])
"""


def test_job_that_was_killed_is_taken_for_dead_when_it_has_been_silent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.land(FIRST)
    driver = subprocess.run([sys.executable, "-c", DRIVER, str(store.landing), store.tables], capture_output=True)
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    assert b"hunter2" not in driver.stdout + driver.stderr
    with pytest.raises(JobRunning, match=r"process \d+ on .*, which gave its last sign \d+ s ago"):
        store.ingest()
    monkeypatch.setattr(lock, "SILENT_S", 0)
    store.land(SECOND, boot=2)
    store.ingest()
    store.check()


@pytest.mark.parametrize(
    "point",
    [
        BRONZE_MESSAGES,
        pytest.param(BATCHES, marks=pytest.mark.long),
        pytest.param(LEDGER, marks=pytest.mark.long),
        LANDING_FILES,
    ],
    ids=lambda table: table.name,
)
def test_slow_job_that_was_taken_for_dead_stops_and_nothing_is_there_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch, point: Table
) -> None:
    """The slow job is stopped before one of its commits. Then another one takes over and does all the work."""
    store.land(FIRST)
    store.ingest()
    store.land(SECOND, boot=2)
    append = Tables.append
    did: list[Table] = []

    def append_late(tables: Tables, to: Table, files: Iterable[DataFile], transaction: Transaction | None) -> None:
        if to is point and not did:
            did.append(point)
            with monkeypatch.context() as patch:
                patch.setattr(lock, "SILENT_S", 0)
                store.ingest()
        append(tables, to, files, transaction)

    monkeypatch.setattr(Tables, "append", append_late)
    with pytest.raises(JobRunning, match="has taken over the tables"):
        store.ingest()
    assert did
    store.check()


def test_turns_that_were_deleted_begin_behind_those_that_the_tables_know(store: Store) -> None:
    store.land(FIRST)
    store.ingest()
    for entry in list(open_storage(store.tables).child("_job").walk()):
        open_storage(store.tables).child("_job").remove(entry.name)
    store.land(SECOND, boot=2)
    store.ingest()
    store.check()


def test_upkeep_works_on_tables_in_an_object_store(store: Store, tmp_path: Path) -> None:
    store.land(FIRST)
    store.ingest()
    store.land(SECOND, boot=2)
    store.ingest()
    done = maintain(store.spark, store.landing, store.tables, landing_days=0)
    assert (done.written > 0, done.landing_files) == (True, 1)
    store.check()
    decoder = tmp_path / "own.py"
    decoder.write_text(
        "from cloud import Record, decoder\n\n"
        "@decoder('#')\ndef words(message):\n    return [Record('garage', 'text', value=1.0)]\n"
    )
    assert requarantine(store.spark, store.landing, store.tables).new == 0


def test_rebuild_leaves_the_new_tables_beside_the_old_ones(store: Store) -> None:
    store.land(FIRST)
    store.land(SECOND, boot=2)
    store.ingest()
    rebuild(store.spark, store.landing, store.tables)
    rebuilt = Store(store.spark, store.server)
    rebuilt.tables = store.server.url(f"{store.site}/tables.rebuilt")
    rebuilt.check()
    store.check()


def test_error_of_the_store_says_its_reason_in_one_line(store: Store, server: Server) -> None:
    Tables(store.spark, store.tables).create_missing()
    line = StoreLine(server.port, threading.Lock(), 1, share=1, faults=("cut within",))
    table = open_storage(server.url(f"{store.site}/tables/ledger", line.port))
    with pytest.raises(StoreError) as raised:
        StoredTable(table)
    line.close()
    text = str(raised.value)
    assert text.startswith(f"s3://lake/{store.site}/tables/ledger: ")
    assert text.endswith(": end of file before message length reached")
    assert not {"\n", "\x1b", "\u21b3"} & set(text)


def test_log_is_read_from_the_checkpoint_that_the_job_writes(store: Store, server: Server) -> None:
    tables = Tables(store.spark, store.tables)
    tables.create_missing()
    for number in range(1, 60):
        tables.append_values(LEDGER, [("a", "00000001", number, number, number, number)], None)
    folder = open_storage(store.tables).child(LEDGER.name)
    last = json.loads(folder.read("_delta_log/_last_checkpoint"))["version"]
    for version in range(last):
        folder.remove(f"_delta_log/{version:020}.json")
    read = StoredTable(folder, read_only=True)
    assert (read.version, len(read.files)) == (59, 59)
    by_rust = DeltaTable(f"s3://lake/{store.site}/tables/{LEDGER.name}", storage_options=storage_options(server))
    assert by_rust.to_pyarrow_table().num_rows == 59
