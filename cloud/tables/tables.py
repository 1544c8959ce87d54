"""The folder with the Delta tables: appends that are done once, and which batches the tables hold."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import structs

from cloud.spark.tasks import Batches, map_items
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.data_file import (
    DataFile,
    checked_parquet,
    digest_of,
    name_start,
    read_columns,
    slices,
    with_digest,
    write_rows,
)
from cloud.tables.schema import BATCHES, LANDING_FILES, LEDGER, TABLES, Table
from cloud.tables.stored_table import LOG_FOLDER, StoredTable

if TYPE_CHECKING:  # a query without Spark asks whether there are tables
    from pyspark.sql import DataFrame, SparkSession

JOB_LOCK = ".lock"
"""The file of a local folder that a job locks, so that one job at a time works on the tables. It stays."""
JOBS = "_job"
"""The folder in which the jobs of an object store take their turns."""
_SMALL_FILES = 32
_SMALL_ROWS = 100_000
_TASK_BYTES = 16 << 20
"""About how many bytes of data files a task of Spark reads, unless a single file has more."""


class NoTables(Exception):
    """The folder holds no tables."""


class Transaction(NamedTuple):
    """Names an append of a batch to Delta: the id of the checkpoint, and the batch number, which only grows."""

    checkpoint: str
    number: int


class TableFolder:
    """The folder with the tables, and what they hold; nothing of it needs Spark, and nothing changes a table."""

    def __init__(self, place: Path | str | Storage, *, read_only: bool = True, generation: int | None = None) -> None:
        """read_only: what a power cut has cut off from a log stays there.

        generation: the generation of the job that writes, in an object store.
        """
        self.storage = open_storage(place)
        self.folder = self.storage.place
        self._read_only = read_only
        self._generation = generation
        self._stored: dict[str, StoredTable] = {}

    def exists(self, table: Table) -> bool:
        return self.stored(table).version >= 0

    def files(self, table: Table) -> list[DataFile]:
        """Returns the files that hold the table's rows now."""
        return list(self.stored(table).files.values())

    def of(self, table: Table) -> Storage:
        """Returns the folder of a table."""
        return self.storage.child(table.name)

    def read_file(self, table: Table, file: DataFile, columns: list[str] | None = None) -> pa.Table:
        """Returns columns of a file's rows, without the partition's; all by default."""
        return read_columns(self.of(table), file.place, columns)

    def rows(self, table: Table, columns: list[str], condition: pc.Expression | None = None) -> pa.Table:
        """Returns columns of the table's rows, without Spark. The partition's column is not among them."""
        return self.read_files(table, self.files(table), columns, condition)

    def dataset(self, table: Table, files: Iterable[DataFile]) -> ds.Dataset:
        """Returns the rows of files, at least one, without the partition's column. They are read when needed."""
        folder = self.of(table)
        paths = [folder.path(file.place) for file in files]
        return ds.dataset(paths, schema=table.arrow_schema, format=checked_parquet(), filesystem=folder.filesystem)

    def read_files(
        self,
        table: Table,
        files: list[DataFile],
        columns: list[str] | None = None,
        condition: pc.Expression | None = None,
    ) -> pa.Table:
        """Returns columns of the rows in files, all but the partition's by default."""
        if not files:
            return table.empty().select(columns or table.arrow_schema.names)
        return self.dataset(table, files).to_table(columns, filter=condition)

    def last_batch(self, table: Table) -> int:
        """Returns the highest batch number in the table's rows; 0 without one."""
        limits = (self._limits(table, file) for file in self.files(table))
        return max((high for _, high in filter(None, limits)), default=0)

    def batches_after(self, table: Table, number: int) -> set[int]:
        """Returns the batch numbers above `number` in the table's rows."""
        found: set[int] = set()
        for file in self.files(table):
            low, high = self._limits(table, file) or (0, 0)
            if high > number:
                found |= {low, high} if low == high else set(self._batches_in(table, file))
        return {batch for batch in found if batch > number}

    def last_counting(self) -> int:
        """Returns the last batch that counts: it is in the ledger or, without new messages, its files are recorded; one
        of `requarantine` is in `batches`. Raises NoTables, OSError."""
        known = max(self.last_batch(LEDGER), self.last_batch(LANDING_FILES))
        if self.last_batch(BATCHES) <= known:
            return known
        again = self.rows(BATCHES, ["batch"], (pc.field("files") == 0) & (pc.field("batch") > known))
        return max(known, pc.max(again["batch"]).as_py() or 0)

    def _limits(self, table: Table, file: DataFile) -> tuple[int, int] | None:
        """Returns the lowest and highest batch in a file; None when no row has one."""
        if limits := file.limits("batch"):
            return limits
        batches = self._batches_in(table, file)
        return (min(batches), max(batches)) if batches else None

    def _batches_in(self, table: Table, file: DataFile) -> list[int]:
        column = self.read_file(table, file, ["batch"])["batch"]
        return [batch for batch in pc.unique(column).to_pylist() if batch is not None]

    def stored(self, table: Table) -> StoredTable:
        """Returns a table as it was read last."""
        if table.name not in self._stored:
            opened = StoredTable(self.of(table), read_only=self._read_only, generation=self._generation)
            self._stored[table.name] = opened
        return self._stored[table.name]


def open_table(folder: Storage) -> StoredTable:
    """Returns the table in a folder, and changes nothing there. Raises NoTables, OSError."""
    table = StoredTable(folder, read_only=True)
    if table.reader_version > 1:
        raise NoTables(f"{folder} needs Delta's reader version {table.reader_version}, which only Spark has here")
    return table


class Tables(TableFolder):
    """The tables, as a job changes them and Spark reads them."""

    def __init__(
        self, spark: "SparkSession | None", place: Path | str | Storage, generation: int | None = None
    ) -> None:
        """spark: None for tables that are neither framed nor merged.

        generation: the generation of the job that writes, in an object store.
        """
        super().__init__(place, read_only=False, generation=generation)
        self._spark = spark

    @property
    def spark(self) -> "SparkSession":
        """The session that these tables were opened with. Raises ValueError without one."""
        if self._spark is None:
            raise ValueError(f"the tables in {self.folder} were opened without Spark")
        return self._spark

    def create_missing(self) -> None:
        """Makes the tables that do not exist yet, without a row."""
        for table in TABLES:
            if not self.exists(table):
                self.stored(table).create(table)

    def fence(self) -> None:
        """Lets no job before this one commit to any table that exists. Raises JobRunning."""
        for table in filter(self.exists, TABLES):
            self.stored(table).commit()

    def frame(self, table: Table, columns: list[str], files: list[DataFile]) -> "DataFrame":
        """Returns columns of the rows in files of a table, which Spark's tasks read in any storage.

        No commit needs to have the files. The partition's column is none.
        """
        tasks = max(1, min(len(files), sum(file.size for file in files) // _TASK_BYTES))
        read = partial(_read, str(self.of(table).place), columns)
        return map_items(self.spark, [file.place for file in files], read, table.some_sql_columns(columns), tasks)

    def has(self, table: Table, transaction: Transaction) -> bool:
        """Whether the append of this transaction is in the table."""
        return self.stored(table).transaction(transaction.checkpoint) >= transaction.number

    def append(self, table: Table, files: Iterable[DataFile], transaction: Transaction | None) -> None:
        """Adds files to the table; the commit is durable then. A transaction must not be in the table yet."""
        self.stored(table).commit(list(files), transaction=transaction)

    def append_values(self, table: Table, rows: list[tuple[Any, ...]], transaction: Transaction | None) -> None:
        """Adds a few rows of Python values, and nothing when the table has this transaction already."""
        if transaction and self.has(table, transaction):
            return
        batch = transaction.number if transaction else 0
        self.append(table, [write_rows(self.of(table), table, batch, table.of_values(rows))], transaction)

    def compact(self, table: Table, least: int = _SMALL_FILES) -> None:
        """Makes one file of small ones, if there are at least ``least``, so that reading a table takes as long after a
        year as after a day."""
        small = [file for file in self.files(table) if file.rows < _SMALL_ROWS]
        if len(small) >= least:
            self.replace(table, small, self.read_files(table, small))

    def replace(self, table: Table, files: list[DataFile], rows: pa.Table) -> None:
        """Puts one file with these rows in the place of files that say the same, all of one partition."""
        written = write_rows(self.of(table), table, 0, rows, files[0].partition)
        self.stored(table).commit([written], files, data_change=False)

    def without_digest(self, table: Table) -> list[DataFile]:
        """Returns the files of a table whose names have no SHA-256: another program has written them."""
        return [file for file in self.files(table) if file.sha256 is None]

    def compute_digests(self, table: Table) -> dict[str, str]:
        """Reads the files whose names have no SHA-256, and returns theirs by their places."""
        self.stored(table).refresh()
        folder = self.of(table)
        return {file.place: digest_of(folder, file.place) for file in self.without_digest(table)}

    def seal(self, table: Table, digests: Mapping[str, str]) -> int:
        """Gives files names with their SHA-256, by their places, in one commit. Returns how many.

        A file that another program has removed meanwhile stays removed. Raises OSError.
        """
        self.stored(table).refresh()
        bare = [file for file in self.without_digest(table) if file.place in digests]
        sealed = []
        for file in bare:
            place = with_digest(file.place, digests[file.place])
            self.of(table).copy(file.place, place)
            sealed.append(structs.replace(file, path=quote(place, safe="/=")))
        if bare:
            self.stored(table).commit(sealed, bare, data_change=False)
        return len(bare)

    def vacuum(self, table: Table, age_s: float) -> int:
        """Deletes the files that no version of the table has needed for so long. Returns how many."""
        stored = self.stored(table)
        stored.refresh()
        unneeded = stored.unneeded(age_s)
        for place in unneeded:
            stored.folder.remove(place)
        return len(unneeded)

    def take_back(self, table: Table, batch: int) -> None:
        """Deletes the batch's rows."""

        def has_batch(file: DataFile) -> bool:
            low, high = file.limits("batch") or (batch, batch)
            return bool(low <= batch <= high)

        self.delete(table, ["batch"], lambda rows: pc.equal(rows["batch"], batch), has_batch)

    def discard_uncommitted(self, table: Table, batch: int) -> None:
        """Deletes the files of a batch that was interrupted, except files that a version of the table has."""
        folder, start = self.of(table), name_start(batch)
        listed = [entry.name for entry in folder.walk() if PurePath(entry.name).name.startswith(start)]
        if not listed:
            return
        # After the listing: a later job that has taken over has files of this batch, and its turn in the log before.
        stored = self.stored(table)
        stored.refresh()
        known = {*stored.files, *stored.removed()}
        for place in listed:
            if place not in known:
                folder.remove(place)

    def delete(
        self, table: Table, columns: list[str], doomed: Callable[[pa.Table], Any], may_hold: Callable[[DataFile], bool]
    ) -> int:
        """Deletes rows, which is durable when this returns. Returns how many.

        A first commit puts the rows that go into files of their own, and changes no row. A second one removes these
        files. So the table's change feed tells the rows that went, and no other.

        doomed: says of each row, by these columns, whether it is to go.
        may_hold: whether a file can have such rows. The others are not read.
        """
        parted: list[DataFile] = []
        kept: list[DataFile] = []
        going: list[DataFile] = []
        deleted = 0
        for file in filter(may_hold, self.files(table)):
            mask = pc.fill_null(doomed(self.read_file(table, file, columns)), False)
            count = pc.sum(mask).as_py() or 0
            deleted += count
            if count == len(mask) > 0:
                going.append(file)
            elif count:
                rows = self.read_file(table, file)
                parted.append(file)
                for some, files in ((pc.invert(mask), kept), (mask, going)):
                    files.append(write_rows(self.of(table), table, 0, rows.filter(some), file.partition))
        stored = self.stored(table)
        if parted:
            apart = [file for file in going if file.place not in stored.files]
            stored.commit([*kept, *apart], parted, data_change=False)
        if going:
            stored.commit(removed=going)
        return deleted


def _read(place: str, columns: list[str], name: str) -> Batches:
    yield from slices(read_columns(open_storage(place), name, columns))


def has_tables(place: Path | str | Storage) -> bool:
    """Whether a job has worked in the folder. Needs no Spark. Raises ValueError for a bad URL, OSError."""
    folder = open_storage(place)
    marks = [folder.child(JOBS), *(folder.child(f"{table.name}/{LOG_FOLDER}") for table in TABLES)]
    return folder.has(JOB_LOCK) or any(next(mark.walk(), None) for mark in marks if mark.is_there())


def require_tables(place: Path | str | Storage) -> None:
    """Raises NoTables where no job has worked in the folder."""
    folder = open_storage(place)
    if not has_tables(folder):
        raise NoTables(f"there are no tables in {folder}")
