"""Tables as a source: rows by Delta's log, without Delta's libraries; a stream reads the rows of each batch once.

A batch counts once it is proved and in the ledger. A stream reads rows of batches that count, by their numbers: it does
not see files that only put rows together anew, and needs no log of the time when it stood still.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from cloud.queries.dataset import rows_of, schema_of
from cloud.source.wanted import Wanted
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.data_file import DataFile
from cloud.tables.schema import Table
from cloud.tables.tables import NoTables, TableFolder, open_table, require_tables

PARTITION_BYTES = 32 << 20
"""The most bytes of data files that a task reads, unless a single one has more."""
BATCH_ROWS = 20_000
_ALL = 1 << 62

Offset = dict[str, int]
"""The last batch whose rows were read, as `batch`."""


class DataFiles(InputPartition):
    """Data files for one task, and the batches of which it takes the rows: those above `after`, up to `upto`."""

    def __init__(self, files: Sequence[DataFile], after: int = -1, upto: int = _ALL) -> None:
        self.files = files
        self.after = after
        self.upto = upto


class TableRows(NamedTuple):
    """How the rows of a table are read: its folder, the columns, and which rows are wanted."""

    place: str
    table: Table
    columns: list[str]
    wanted: Wanted

    def open(self) -> tuple[list[DataFile], pa.Schema]:
        """Returns the table's files now, and its columns. Raises NoTables, OSError."""
        require_tables(self.place)
        stored = open_table(_folder(self.place, self.table))
        if stored.version < 0:
            return [], self.table.empty().schema
        schema = schema_of(stored)
        if missing := [name for name in self.columns if name not in schema.names]:
            raise NoTables(
                f"{self.table.name} in {self.place} lacks {missing[0]}; make the tables anew with "
                "`holdfast cloud rebuild`"
            )
        return list(stored.files.values()), schema

    def last_counting(self) -> int:
        """Returns the last batch that counts. Raises NoTables, OSError."""
        require_tables(self.place)
        return TableFolder(self.place).last_counting()

    def partitions(self, files: Iterable[DataFile], after: int = -1, upto: int = _ALL) -> list[DataFiles]:
        parts: list[list[DataFile]] = []
        filled = PARTITION_BYTES
        for file in files:
            if filled + file.size > PARTITION_BYTES:
                parts.append([])
                filled = 0
            parts[-1].append(file)
            filled += file.size
        return [DataFiles(part, after, upto) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of data files; none for what Spark makes of no partitions. Raises OSError."""
        if not isinstance(partition, DataFiles):
            return
        wanted = self.wanted.expression
        if partition.upto < _ALL:
            within = (pc.field("batch") > partition.after) & (pc.field("batch") <= partition.upto)
            wanted = within if wanted is None else wanted & within
        rows = rows_of(_folder(self.place, self.table), partition.files, self.table.empty().schema)
        yield from rows.to_batches(columns=self.columns, filter=wanted, batch_size=BATCH_ROWS)


class TableReader(DataSourceReader):
    """Reads the rows that a table has now."""

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        files, schema = self._rows.open()
        wanted = self._rows.wanted.expression
        if wanted is None:
            return self._rows.partitions(files)
        folder = _folder(self._rows.place, self._rows.table)
        paths = {fragment.path for fragment in rows_of(folder, files, schema).get_fragments(wanted)}
        return self._rows.partitions(file for file in files if folder.path(file.place) in paths)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows of each batch that counts once."""

    def __init__(self, rows: TableRows, files_max: int) -> None:
        """files_max: about how many data files a batch of the stream reads."""
        self._rows = rows
        self._files_max = files_max
        self._last: int | None = None

    def initialOffset(self) -> Offset:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._files_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._rows.last_counting()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        # First the ledger: the rows of each batch that counts are in the table before.
        last = self._rows.last_counting() if self._last is None else self._last
        if isinstance(limit, ReadMaxFiles):
            highest = sorted(high for file in self._rows.open()[0] if (high := _limits(file)[1]) > start["batch"])
            last = min([last, *highest[limit.max_files - 1 : limit.max_files]])
        return {"batch": max(last, start["batch"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        after, upto = start["batch"], end["batch"]
        overlapping = [file for file in self._rows.open()[0] if _limits(file)[0] <= upto and after < _limits(file)[1]]
        return self._rows.partitions(overlapping if upto > after else [], after, upto)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


def _folder(place: str, table: Table) -> Storage:
    return open_storage(place).child(table.name)


def _limits(file: DataFile) -> tuple[int, int]:
    low, high = file.limits("batch") or (0, _ALL)
    return int(low), int(high)
