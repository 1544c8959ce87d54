"""The rows of a table as Arrow reads them, by Delta's log: files that cannot have a row for a filter are not opened."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cloud.storage.storage import Storage
from cloud.tables.data_file import DataFile, checked_parquet
from cloud.tables.schema import arrow_schema
from cloud.tables.stored_table import StoredTable
from cloud.tables.tables import NoTables


def schema_of(table: StoredTable) -> pa.Schema:
    """Returns the columns of a table. Raises NoTables for a type that the tables of Holdfast lack."""
    try:
        return arrow_schema(table.schema)
    except KeyError as error:
        raise NoTables(f"{table.folder} has a column of the type {error}, which only Spark reads here") from None


def rows_of(folder: Storage, files: Iterable[DataFile], schema: pa.Schema) -> ds.Dataset:
    """Returns the rows of a table's files, which are read when they are needed."""
    format, disk = checked_parquet(), folder.filesystem
    fragments = [
        format.make_fragment(folder.path(file.place), disk, partition_expression=_limits(file, schema))
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, format, disk)


def _limits(file: DataFile, schema: pa.Schema) -> pc.Expression:
    """Returns what is true of every row of a file: the partition's value, and the limits of columns without nulls."""
    true = pc.scalar(True)
    for name, text in file.partition.items():
        value = None if text is None else pa.scalar(text).cast(schema.field(name).type)
        true &= pc.field(name).is_null() if value is None else pc.field(name) == value
    for name, (lowest, highest) in file.full_limits().items():
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        true &= (pc.field(name) >= _limit(lowest, kind, up=False)) & (pc.field(name) <= _limit(highest, kind, up=True))
    return true


def _limit(value: Any, kind: pa.DataType, up: bool) -> pa.Scalar:
    """Returns a limit as the log writes it as a value. The log has whole milliseconds, which others round down."""
    if pa.types.is_timestamp(kind):
        value = datetime.fromisoformat(value).astimezone(UTC) + timedelta(milliseconds=1 if up else 0)
    elif pa.types.is_date(kind):
        value = date.fromisoformat(value)
    return pa.scalar(value, kind)
