"""Checkpoints of a Delta table's log: one Parquet file that sums up all commits before it.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = pa.map_(pa.string(), pa.string())
_REMOVE = "remove"
_NAMES = pa.list_(pa.string())
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
            }
        ),
        _REMOVE: pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": _NAMES,
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)


def encode(actions: Iterable[dict[str, Any]]) -> bytes:
    """Returns the content of a checkpoint with these actions."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist(list(actions), schema=_SCHEMA), sink, compression="zstd", write_page_checksum=True
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parse(content: bytes) -> tuple[list[dict[str, Any]], pa.ChunkedArray]:
    """Returns the actions of a checkpoint, or of a part of one; removals of files come apart, as they were read.

    A table of many small commits has tens of thousands of removals. They say nothing of what it holds now.

    Raises pyarrow's errors for a corrupt one.
    """
    rows = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read()
    removes = rows[_REMOVE]
    rows = rows.filter(removes.is_null()).drop_columns(_REMOVE)
    actions = rows.to_pylist(maps_as_pydicts="strict")
    return [
        {name: action for name, action in row.items() if action is not None} for row in actions
    ], removes.drop_null()
