"""Landing files: Parquet with zstd, one row a message, never changed. Format: docs/reference/landing-files.md."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LANDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FILE_NAME = re.compile(rf"({LANDER_NAME.pattern})-([0-9a-f]{{8}})-([0-9]{{8,}})")


class Link(NamedTuple):
    """The number that one route gave a message, with the epoch of its numbering."""

    epoch: int
    number: int
    gateway: str
    route: str


LINK = pa.struct(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("gateway", pa.string(), nullable=False),
        pa.field("route", pa.string(), nullable=False),
    ]
)


class Row(NamedTuple):
    """One message as it was received. The order of the fields is the order of the columns."""

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
    via: Sequence[Link] = ()


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
        pa.field("via", pa.list_(LINK), nullable=False),
    ]
)


_LINKS = "via.list.element"
_REPEATED = ["origin", "epoch", "gateway", "topic", "qos", "retain", "content_type", "lander"]
_REPEATED += [f"{_LINKS}.{name}" for name in ("epoch", "gateway", "route")]
"""Columns with few distinct values; a dictionary of the others would be as long as they are."""
_COUNTING = ("seq", "received_ms", "landed_ms", f"{_LINKS}.number")
_ENCODINGS = {**dict.fromkeys(_COUNTING, "DELTA_BINARY_PACKED"), "payload": "DELTA_LENGTH_BYTE_ARRAY"}
_ZSTD_LEVEL = 2
"""The best one of the fast levels for payloads that are alike."""
_PAGE_BYTES = 4 << 20
"""Each page is compressed by itself: what many devices have in common comes again far behind."""


class FileNumber(NamedTuple):
    """The parts of a landing file's name: the lander, its boot, and a number that goes on over boots."""

    lander: str
    boot: int
    number: int

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return f"{self.lander}-{self.boot:08x}-{self.number:08d}"


def parse_stem(stem: str) -> FileNumber | None:
    """Returns the parts of a landing file's name without its ending; None for any other name."""
    match = _FILE_NAME.fullmatch(stem)
    return FileNumber(match[1], int(match[2], 16), int(match[3])) if match else None


def join(pieces: Iterable[Row | pa.Table]) -> pa.Table:
    """Returns rows, and tables of rows, as one table in this order."""
    tables: list[pa.Table] = []
    for kind, some in groupby(pieces, type):
        found = list(some)
        tables += [_table(found)] if kind is Row else found
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def by_origin(rows: pa.Table) -> np.ndarray:
    """Returns the places of the rows by origin, in each origin in the order that they have.

    So the messages of a device are neighbours, which takes a quarter off the file of a thousand devices.
    """
    origins = rows["origin"].combine_chunks().dictionary_encode()
    return np.argsort(origins.indices.to_numpy(), kind="stable")


def encode(rows: pa.Table) -> bytes:
    """Returns the content of the Parquet file with these rows, in this order."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        data_page_size=_PAGE_BYTES,
        use_dictionary=_REPEATED,
        column_encoding=_ENCODINGS,
        write_page_checksum=True,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _table(rows: Iterable[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    *most, vias = columns
    lists = [[link._asdict() for link in links] for links in vias]
    arrays = [pa.array(column, field.type) for column, field in zip([*most, lists], SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)
