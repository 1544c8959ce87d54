"""The folder with the Delta tables: appends that are done once, and which batches the tables hold."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from cloud.tables import delta_log
from cloud.tables.data_file import name_start, write_deleted, write_rows
from cloud.tables.delta_log import LOG_FOLDER, DataFile, DeltaLog
from cloud.tables.schema import TABLES, Table, protocol

if TYPE_CHECKING:  # a query without Spark asks whether there are tables
    from pyspark.sql import DataFrame, SparkSession

JOB_LOCK = ".lock"
"""The file that a job locks, so that one job at a time works on the tables. It stays."""
_CHECKPOINT_COMMITS = 50
_SMALL_FILES = 32
_SMALL_ROWS = 100_000


class NoTables(Exception):
    """The folder holds no tables."""


class Transaction(NamedTuple):
    """Names an append of a batch to Delta: the id of the checkpoint, and the batch number, which only grows."""

    checkpoint: str
    number: int


class Tables:
    """The folder with the tables."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._logs: dict[str, DeltaLog] = {}

    def create_missing(self) -> None:
        """Makes the tables that do not exist yet, without a row."""
        for table in TABLES:
            log = self._log(table)
            if log.version < 0:
                log.commit([protocol(), metadata(table, str(uuid.uuid4()))], "CREATE TABLE")

    def exists(self, table: Table) -> bool:
        return self._log(table).version >= 0

    def read(self, table: Table) -> "DataFrame":
        """Returns the table's rows as Spark reads them, and an empty frame when it does not exist yet."""
        if not self.exists(table):
            return self.spark.createDataFrame([], table.sql_columns)
        return self.spark.read.format("delta").load(str(self._path(table)))

    def files(self, table: Table) -> list[DataFile]:
        """Returns the files that hold the table's rows now."""
        return list(self._log(table).files.values())

    def path(self, table: Table, file: DataFile) -> Path:
        return self._path(table) / file.place

    def rows(self, table: Table, columns: list[str], condition: pc.Expression | None = None) -> pa.Table:
        """Returns columns of the table's rows, without Spark. The partition's column is not among them."""
        paths = [str(self.path(table, file)) for file in self.files(table)]
        if not paths:
            return table.empty().select(columns)
        return ds.dataset(paths, schema=table.arrow_schema, format="parquet").to_table(columns, filter=condition)

    def has(self, table: Table, transaction: Transaction) -> bool:
        """Whether the append of this transaction is in the table."""
        return self._log(table).transactions.get(transaction.checkpoint, -1) >= transaction.number

    def append(self, table: Table, files: Iterable[DataFile], transaction: Transaction | None) -> None:
        """Adds files to the table; the commit is on the disk then. A transaction must not be in the table yet."""
        log = self._log(table)
        actions = [delta_log.add(file) for file in files]
        if transaction:
            actions.append(delta_log.transaction(transaction.checkpoint, transaction.number))
        log.commit(actions, "WRITE")
        if log.version % _CHECKPOINT_COMMITS == 0:
            self._write_checkpoint(table)

    def append_values(self, table: Table, rows: list[tuple[Any, ...]], transaction: Transaction | None) -> None:
        """Adds a few rows of Python values, and nothing when the table has this transaction already."""
        if transaction and self.has(table, transaction):
            return
        batch = transaction.number if transaction else 0
        self.append(table, [write_rows(self.folder, table, batch, table.of_values(rows))], transaction)

    def compact(self, table: Table, least: int = _SMALL_FILES) -> None:
        """Makes one file of small ones, if there are so many, so that reading a table takes as long after a year as
        after a day."""
        small = [file for file in self.files(table) if file.rows < _SMALL_ROWS]
        if len(small) >= least:
            self.replace(table, small, self.read_files(table, small))

    def read_files(self, table: Table, files: list[DataFile]) -> pa.Table:
        """Returns the rows of files, without the partition's column."""
        paths = [str(self.path(table, file)) for file in files]
        return ds.dataset(paths, schema=table.arrow_schema, format="parquet").to_table()

    def replace(self, table: Table, files: list[DataFile], rows: pa.Table) -> None:
        """Puts one file with these rows in the place of files that say the same, all of one partition."""
        written = write_rows(self.folder, table, 0, rows, files[0].partition_values)
        removed = [delta_log.remove(file, data_change=False) for file in files]
        self._log(table).commit([*removed, delta_log.add(written, data_change=False)], "OPTIMIZE")

    def vacuum(self, table: Table, age_s: float) -> int:
        """Deletes the files that no version of the table has needed for so long. Returns how many."""
        log = self._log(table)
        log.refresh()
        before = time.time() - age_s
        deleted = 0
        for path in self._path(table).rglob("*.parquet"):
            place = path.relative_to(self._path(table))
            is_needed = str(place) in log.files or log.removed.get(str(place), 0) > before * 1000
            if not is_needed and place.parts[0] != LOG_FOLDER and path.stat().st_mtime < before:
                path.unlink()
                deleted += 1
        return deleted

    def last_batch(self, table: Table) -> int:
        """Returns the highest batch number in the table's rows; 0 without one."""
        return max((high for _, high in self._batch_limits(table)), default=0)

    def batches_after(self, table: Table, number: int) -> set[int]:
        """Returns the batch numbers above `number` in the table's rows."""
        found: set[int] = set()
        for file in self.files(table):
            low, high = self._limits(table, file) or (0, 0)
            if high > number:
                found |= {low, high} if low == high else set(self._batches_in(table, file))
        return {batch for batch in found if batch > number}

    def take_back(self, table: Table, batch: int) -> None:
        """Deletes the batch's rows."""

        def has_batch(file: DataFile) -> bool:
            low, high = file.limits("batch") or (batch, batch)
            return bool(low <= batch <= high)

        self.delete(table, ["batch"], lambda rows: pc.equal(rows["batch"], batch), has_batch)

    def discard_uncommitted(self, table: Table, batch: int) -> None:
        """Deletes the files of a batch that was interrupted, but those that a version of the table has."""
        log = self._log(table)
        for path in self._path(table).rglob(f"{name_start(batch)}*"):
            place = str(path.relative_to(self._path(table)))
            if place not in log.files and place not in log.removed:
                path.unlink()

    def delete(
        self, table: Table, columns: list[str], doomed: Callable[[pa.Table], Any], may_hold: Callable[[DataFile], bool]
    ) -> int:
        """Deletes rows in one commit, which is on the disk when this returns. Returns how many.

        doomed: says of each row, by these columns, whether it is to go.
        may_hold: whether a file can have such rows. The others are not read.
        """
        actions: list[dict[str, Any]] = []
        deleted = 0
        for file in filter(may_hold, self.files(table)):
            path = self.path(table, file)
            mask = pc.fill_null(doomed(pq.read_table(path, columns=columns, partitioning=None)), False)
            if count := pc.sum(mask).as_py() or 0:
                rows = pq.read_table(path, partitioning=None)
                actions.append(delta_log.remove(file))
                if count < rows.num_rows:
                    kept = rows.filter(pc.invert(mask))
                    actions.append(delta_log.add(write_rows(self.folder, table, 0, kept, file.partition_values)))
                if table.change_feed:
                    actions.append(write_deleted(self.folder, table, rows.filter(mask), file.partition_values))
                deleted += count
        if actions:
            self._log(table).commit(actions, "DELETE")
        return deleted

    def commit(self, table: Table, actions: list[dict[str, Any]], operation: str) -> None:
        self._log(table).commit(actions, operation)

    def sync_last(self, table: Table) -> None:
        """Syncs what Spark has written to the table in its last commit, which it leaves in the system's cache."""
        self._log(table).sync_last()

    def metadata(self, table: Table) -> dict[str, Any]:
        """Returns Delta's description of the table, as its log has it."""
        return self._log(table).metadata

    def _write_checkpoint(self, table: Table) -> None:
        """Lets Delta sum up the log in a file, and delete commits that are older than its retention time."""
        java: Any = self.spark._jvm
        log = java.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, str(self._path(table)))
        log.update(False, java.scala.Option.empty(), java.scala.Option.empty())
        log.checkpoint()
        self._log(table).sync_last()

    def _batch_limits(self, table: Table) -> Iterator[tuple[int, int]]:
        for file in self.files(table):
            if limits := self._limits(table, file):
                yield limits

    def _limits(self, table: Table, file: DataFile) -> tuple[int, int] | None:
        """Returns the lowest and highest batch in a file; None when no row has one."""
        if limits := file.limits("batch"):
            return limits
        batches = self._batches_in(table, file)
        return (min(batches), max(batches)) if batches else None

    def _batches_in(self, table: Table, file: DataFile) -> list[int]:
        column = pq.read_table(self.path(table, file), columns=["batch"], partitioning=None)["batch"]
        return [batch for batch in pc.unique(column).to_pylist() if batch is not None]

    def _path(self, table: Table) -> Path:
        return self.folder / table.name

    def _log(self, table: Table) -> DeltaLog:
        if table.name not in self._logs:
            self._logs[table.name] = DeltaLog(self._path(table))
        return self._logs[table.name]


def has_tables(folder: Path) -> bool:
    """Whether a job has worked in the folder. Needs no Spark."""
    return (folder / JOB_LOCK).exists() or any((folder / table.name / LOG_FOLDER).is_dir() for table in TABLES)


def require_tables(folder: Path) -> None:
    """Raises NoTables where no job has worked in the folder."""
    if not has_tables(folder):
        raise NoTables(f"there are no tables in {folder}")


def metadata(table: Table, table_id: str) -> dict[str, Any]:
    """Returns the action that gives a table its columns and properties."""
    return {
        "metaData": {
            "id": table_id,
            "name": table.name,
            "description": table.comment,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.delta_schema,
            "partitionColumns": [table.partition] if table.partition else [],
            "configuration": table.properties,
            "createdTime": time.time_ns() // 1_000_000,
        }
    }
