"""The Parquet files of the Delta tables, with the statistics that let readers skip files.

The name of a file ends with the SHA-256 of its bytes. So the log of its table, which names the file, says which bytes
it has, also after a checkpoint.
"""

import hashlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from cloud.storage.storage import Output, Storage
from cloud.tables.schema import Table

_TEXT_MAX = 64
"""Longer limits of a text column are left out of the statistics."""
_GROUP_ROWS = 131_072
"""The most rows of a row group: readers skip row groups of other devices."""
_PIECE = 4 << 20
_SLICE_ROWS = 20_000
_SLICE_BYTES = 16 << 20
_ENDING = ".zstd.parquet"
_DIGEST = re.compile(r"-([0-9a-f]{64})(\.\w+)?\.parquet")
_SUFFIXES = re.compile(r"(\.\w+)?\.parquet$")
_REPEATED = {"batch", "boot_id", "event_date", "qos", "record"}
"""The numbers of which a file has few different ones."""
_NO_STATISTICS = {"payload", "value_data", "reason", "value_string"}


class CheckFailed(Exception):
    """Rows break a rule of their table. The text names the table and the rule."""


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Parquet file of a table, by its path in the folder of the table, as Delta's log has it.

    `partition` has the value of the table's partition column as text, if there is one, `size` is in bytes, and
    `modified_ms` in milliseconds since 1970. `stats` is JSON as Delta's log has it: how many rows, and the columns'
    limits.
    """

    path: str
    partition: dict[str, str | None]
    size: int
    modified_ms: int
    stats: str | None = None

    @property
    def place(self) -> str:
        """The path with its percent signs decoded."""
        return unquote(self.path)

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of all bytes, in hexadecimal digits; None if another program has written the file."""
        found = _DIGEST.search(self.place)
        return found[1] if found else None

    @property
    def rows(self) -> int:
        """The number of rows, as the statistics tell it; 0 if they do not."""
        return int(msgspec.json.decode(self.stats).get("numRecords", 0)) if self.stats else 0

    def limits(self, column: str) -> tuple[Any, Any] | None:
        """Returns the lowest and the highest value of a column; None where the file does not tell."""
        stats = msgspec.json.decode(self.stats) if self.stats else {}
        lowest, highest = (stats.get(key, {}).get(column) for key in ("minValues", "maxValues"))
        return None if lowest is None or highest is None else (lowest, highest)

    def full_limits(self) -> dict[str, tuple[Any, Any]]:
        """Returns the lowest and the highest value of each column that has a value in each row."""
        stats = msgspec.json.decode(self.stats) if self.stats else {}
        lowest, highest = stats.get("minValues", {}), stats.get("maxValues", {})
        full = [name for name, nulls in stats.get("nullCount", {}).items() if nulls == 0]
        return {name: (lowest[name], highest[name]) for name in full if name in lowest and name in highest}


class DataFileWriter:
    """Writes rows of a table to one new file. The file belongs to the table once a commit has added its DataFile."""

    def __init__(self, folder: Storage, table: Table, batch: int, partition: date | str | None = None) -> None:
        """folder: the table's folder. partition: the value of the table's partition column, if it has one."""
        self._table = table
        self._partition: dict[str, str | None] = {}
        name = f"{name_start(batch)}{uuid.uuid4().hex[:12]}{_ENDING}"
        if table.partition:
            self._partition = {table.partition: str(partition)}
            name = f"{table.partition}={partition}/{name}"
        self._name = name
        self._output = folder.open(name)
        self._footers: list[pq.FileMetaData] = []
        schema = table.arrow_schema
        repeated = [field.name for field in schema if field.type == pa.string() or field.name in _REPEATED]
        told = [name for name in schema.names if name != "payload"]
        with _discarding(self._output):
            self._writer = pq.ParquetWriter(
                self._output.sink,
                schema,
                compression="zstd",
                write_page_checksum=True,
                use_dictionary=repeated,
                write_statistics=told,
                metadata_collector=self._footers,
            )
        self.rows = 0

    def write(self, rows: pa.Table) -> None:
        """Adds rows, which have the table's columns in any order. Raises CheckFailed and OSError."""
        rows = rows.select(self._table.arrow_schema.names).cast(self._table.arrow_schema)
        check(self._table, rows)
        self._writer.write_table(rows, _GROUP_ROWS)
        self.rows += rows.num_rows

    def close(self) -> DataFile:
        """Returns the file, which is on the disk then."""
        self._writer.close()
        written = self._output.close(with_digest)
        return DataFile(
            quote(written.name, safe="/="), self._partition, written.size, now_ms(), _statistics(self._footers[0])
        )

    def discard(self) -> None:
        """Deletes the file."""
        # On a full disk, which is why the file is discarded, `close` fails by the one error or by the other.
        with suppress(OSError, RuntimeError):
            self._writer.close()
        self._writer.is_open = False  # or pyarrow closes it once more in the end, and prints the error
        self._output.discard()


@contextmanager
def _discarding(output: Output) -> Iterator[None]:
    """Leaves no file behind an error."""
    try:
        yield
    except BaseException:
        output.discard()
        raise


def name_start(batch: int) -> str:
    """Returns how the names of the files begin that a batch writes; it is 0 for files that belong to no batch."""
    return f"part-{batch:012d}-"


def write_rows(
    folder: Storage, table: Table, batch: int, rows: pa.Table, partition: Mapping[str, str | None] | None = None
) -> DataFile:
    """Writes rows of a table as one file. `partition` has the value of the table's partition column, if it has one."""
    writer = DataFileWriter(folder, table, batch, (partition or {}).get(table.partition or ""))
    try:
        writer.write(rows)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def with_digest(name: str, sha256: str) -> str:
    """Returns the name that a file has when its digest is known."""
    return _SUFFIXES.sub(lambda found: f"-{sha256}{found[0]}", name)


def now_ms() -> int:
    """Returns the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def read_columns(folder: Storage, name: str, columns: list[str] | None = None, **options: Any) -> pa.Table:
    """Returns columns of a Parquet file, all by default. `options` go to pyarrow's `read_table`.

    Raises OSError for a page that is not what its checksum says.
    """
    return pq.read_table(
        folder.path(name),
        columns=columns,
        partitioning=None,
        filesystem=folder.filesystem,
        page_checksum_verification=True,
        **options,
    )


def slices(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the rows in pieces of some megabytes, as Spark takes them from Python."""
    size = max(1, min(_SLICE_ROWS, _SLICE_BYTES * rows.num_rows // max(rows.nbytes, 1)))
    yield from rows.to_batches(size)


def digest_of(folder: Storage, name: str) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with folder.filesystem.open_input_stream(folder.path(name), compression=None) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def checked_parquet() -> ds.ParquetFileFormat:
    """Returns the format of data files for datasets. A page that is not what its checksum says raises OSError."""
    return ds.ParquetFileFormat(page_checksum_verification=True)


def check(table: Table, rows: pa.Table) -> None:
    """Raises CheckFailed if rows lack a required value or break a constraint of their table."""
    for column in table.columns:
        if column.required and column.name != table.partition and rows[column.name].null_count:
            raise CheckFailed(f"{table.name}: a row has no {column.name}")
    broken = [~constraint.expression for constraint in table.constraints]
    if broken and rows.filter(reduce(or_, broken)).num_rows:
        found = next(one for one in table.constraints if rows.filter(~one.expression).num_rows)
        raise CheckFailed(f"{table.name}: a row breaks the constraint {found.name} ({found.sql})")


def _statistics(footer: pq.FileMetaData) -> str:
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for place in range(footer.num_columns):
        parts = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
        name = footer.schema.column(place).name
        statistics = [part.statistics for part in parts]
        if name in _NO_STATISTICS or not all(statistics):
            continue
        nulls[name] = sum(one.null_count for one in statistics)
        limits = [(one.min, one.max) for one in statistics if one.has_min_max]
        if not limits or isinstance(limits[0][0], bool):
            continue
        low, high = min(low for low, _ in limits), max(high for _, high in limits)
        if not isinstance(low, str) or max(len(low), len(high)) <= _TEXT_MAX:
            with suppress(OverflowError):  # no time follows the last millisecond of the year 9999
                lowest[name], highest[name] = _plain(low, up=False), _plain(high, up=True)
    stats = {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return msgspec.json.encode(stats).decode()


def _plain(value: Any, up: bool) -> Any:
    """Returns a limit as the log writes it: times in whole milliseconds, rounded outwards."""
    if isinstance(value, datetime):
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        if up and value.microsecond % 1000:
            value += timedelta(milliseconds=1)
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
