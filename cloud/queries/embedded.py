"""SQL over the tables in this process, by DuckDB: a small question takes no Spark session.

Delta's log names the files of a table and the limits of their columns, so files that cannot have a row for a query are
never opened. The engine sees these tables alone: no other file, no network and no setting is in its reach.
"""

import re
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import TracebackType

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.csv import read_csv

from cloud.queries.dataset import rows_of, schema_of
from cloud.queries.result import BadQuery, Result, collect, first_line
from cloud.queries.views import VIEWS_FILE, name_in_sql, view_names
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.schema import TABLES, Table
from cloud.tables.tables import NoTables, open_table, require_tables

INTERRUPT_S = 0.05  # between two interrupts of a query
_READING = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
# What Arrow says of a file that is not there: on a disk, and in an object store.
_GONE = re.compile(
    r"Failed to open local file '([^']+)'(?=.*errno 2\b)|(?:Path does not exist|NoSuchKey)\W+'?([^'\s]+)", re.S
)
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
)
_LOCK = ("SET enable_external_access = false", "SET lock_configuration = true")


class OpenTables:
    """The tables in a folder and the views over them, as they were when it was opened. It changes nothing."""

    def __init__(self, folder: Path | str, beside: Mapping[str, Path] | None = None) -> None:
        """folder: a path, or a URL as `ingest` takes it.

        beside: CSV files with a header and Parquet files (`.parquet`), by the names of the tables that they become.
        Raises NoTables, BadQuery for a file or a name that is no table, ValueError for a bad URL, OSError.
        """
        storage = open_storage(folder)
        require_tables(storage)
        with ExitStack() as closing:
            spill = closing.enter_context(TemporaryDirectory(prefix="holdfast-query-"))
            self._engine = closing.enter_context(duckdb.connect())
            for setting in (*_SETTINGS, f"SET temp_directory = '{spill}'"):
                self._engine.execute(setting)
            for table in TABLES:
                self._engine.register(name_in_sql(table), _rows(storage.child(table.name), table))
            try:
                self._engine.execute(VIEWS_FILE.read_text())
            except duckdb.Error as error:
                reason = f"the tables in {storage} have other columns than the views need"
                anew = "make all tables anew with `holdfast cloud rebuild`"
                raise NoTables(f"{reason}; {anew}: {first_line(error)}") from None
            for name, file in (beside or {}).items():
                self._engine.register(_new_name(name), _read_file(file))
            for setting in _LOCK:
                self._engine.execute(setting)
            self._closing = closing.pop_all()

    def select(self, sql: str) -> Result:
        """Returns the rows of a statement that only reads. Raises BadQuery for any other, which is not carried out."""
        try:
            statements = duckdb.extract_statements(sql)
            kind = statements[0].type if len(statements) == 1 else None
            if kind not in _READING:
                reading = "SELECT, WITH, VALUES, TABLE, FROM, DESCRIBE, EXPLAIN"
                raise BadQuery(f"{''.join(sql.split()[:1])} is refused: a query only reads ({reading})")
            return collect(self._carry_out(sql))
        except duckdb.Error as error:
            raise BadQuery(_reason(error)) from None

    def _carry_out(self, sql: str) -> pa.Table:
        """Asks the engine in a thread of its own: this one is free to notice Ctrl-C, which ends the query."""
        asked: Future[pa.Table] = Future()
        try:
            Thread(target=self._ask, args=(sql, asked)).start()
            return asked.result()
        finally:
            while not asked.cancel() and not asked.done():
                with suppress(KeyboardInterrupt):  # a second one
                    self._engine.interrupt()  # it forgets an interrupt that comes before the query begins
                    wait([asked], INTERRUPT_S)

    def _ask(self, sql: str, asked: Future[pa.Table]) -> None:
        if asked.set_running_or_notify_cancel():
            try:
                asked.set_result(self._engine.sql(sql).to_arrow_table())
            except BaseException as error:
                asked.set_exception(error)

    def close(self) -> None:
        """Ends the engine, and deletes what it has put on the disk for a large query."""
        self._closing.close()

    def __enter__(self) -> "OpenTables":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _new_name(name: str) -> str:
    """Returns a name that SQL takes as it is. Raises BadQuery for any other, and for one of ours."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise BadQuery(f"{name!r} is no name for a table: it has letters, digits and _ only")
    if name.lower() in view_names():
        raise BadQuery(f"{name} is a table already: give the file another name")
    return name


def _read_file(file: Path) -> pa.Table:
    """Returns the rows of a CSV file with a header, or of a Parquet file. Raises BadQuery, OSError."""
    try:
        with file.open("rb") as content:
            return pq.read_table(content) if file.suffix == ".parquet" else read_csv(content)
    except pa.ArrowInvalid as error:
        raise BadQuery(f"{file} is no {'Parquet' if file.suffix == '.parquet' else 'CSV'} file: {error}") from None


def _reason(error: duckdb.Error) -> str:
    """Returns what the engine says in one line, with the names that it proposes, without its drawing of the place."""
    if gone := _GONE.search(str(error)):
        return (
            f"the data file {gone[1] or gone[2]} is gone, which a table's log names: bring it back from a copy, "
            "or make all tables anew with `holdfast cloud rebuild`"
        )
    return " ".join(str(error).partition("\n\nLINE ")[0].split())


def _rows(folder: Storage, table: Table) -> ds.Dataset:
    """Returns the rows of a Delta table, which are read when a query needs them."""
    stored = open_table(folder)
    if stored.version < 0:
        return ds.dataset(table.empty())
    return rows_of(folder, stored.files.values(), schema_of(stored))
