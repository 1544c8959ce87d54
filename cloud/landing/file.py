"""Landing files: Parquet with zstd, one row a message, immutable. docs/reference/landing-files.md says the rest."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

LANDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FILE_NAME = re.compile(rf"({LANDER_NAME.pattern})-([0-9a-f]{{8}})-([0-9]{{8,}})")


class Row(NamedTuple):
    """One message as it came; the field order is the column order of the file."""

    origin: str
    epoch: int
    seq: int
    received_ms: int | None
    gateway: str | None
    landed_ms: int
    topic: str
    qos: int
    retain: bool
    content_type: str | None
    payload: bytes
    lander: str


SCHEMA = pa.schema(
    [
        pa.field("origin", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("received_ms", pa.int64()),
        pa.field("gateway", pa.string()),
        pa.field("landed_ms", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("lander", pa.string(), nullable=False),
    ]
)


class FileNumber(NamedTuple):
    """What a landing file's name says: its lander, that lander's boot, and a number that counts up over boots."""

    lander: str
    boot: int
    number: int

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return f"{self.lander}-{self.boot:08x}-{self.number:08d}"


def parse_stem(stem: str) -> FileNumber | None:
    """The parts of a landing file's name without its ending; None when it is not one."""
    match = _FILE_NAME.fullmatch(stem)
    return FileNumber(match[1], int(match[2], 16), int(match[3])) if match else None


def encode_rows(rows: Sequence[Row]) -> bytes:
    """The content of the Parquet file with these rows, in this order."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, schema=SCHEMA), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content
