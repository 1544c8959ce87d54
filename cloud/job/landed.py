"""Reads landing files and proves them against their manifests."""

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

from cloud.landing.file import SCHEMA
from cloud.landing.manifest import LandingFile, Manifest, ManifestError, list_intervals, load_manifest
from cloud.storage.storage import Storage, StoreError

_VIA = "via"
"""The column that files of the first builds of 0.1.0 lack."""


def check_size(described: LandingFile, folder: Storage) -> None:
    """Raises ManifestError unless the landing file is there and has the size that its manifest says.

    Raises StoreError when the object store cannot say.
    """
    try:
        size = folder.size(described.file)
    except FileNotFoundError:
        raise ManifestError("the file is missing, its manifest is there") from None
    except StoreError:
        raise
    except OSError as error:
        raise ManifestError(f"the file cannot be read: {error.strerror}") from error
    if size != described.bytes:
        raise ManifestError(f"the file has {size} bytes, its manifest says {described.bytes}")


def load_planned(file: LandingFile, folder: Storage) -> Manifest:
    """Returns the manifest of a landing file that a batch was planned with. Raises ManifestError, StoreError."""
    described = load_manifest(folder, file.file.removesuffix(".parquet"))
    if described.of_file != file:
        raise ManifestError("the manifest has changed since the batch was planned")
    return described


def read_landing_file(described: Manifest, folder: Storage) -> pa.Table:
    """Returns the rows of a landing file.

    Raises ManifestError unless they are what its manifest says: the size, the SHA-256, the columns, and the identities.
    Raises StoreError when the object store does not answer, which is no fault of the file.
    """
    check_size(described, folder)
    try:
        content = folder.read(described.file)
    except StoreError:
        raise
    except OSError as error:
        raise ManifestError(f"the file cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != described.sha256:
        raise ManifestError("the file's SHA-256 is not the one in its manifest")
    rows = _parse(content)
    if rows.num_rows != described.rows:
        raise ManifestError(f"the file has {rows.num_rows} rows, its manifest says {described.rows}")
    if list_intervals(rows) != [tuple(interval) for interval in described.intervals]:
        raise ManifestError("the rows of the file have other numbers than its manifest says")
    return rows


def _parse(content: bytes) -> pa.Table:
    try:
        rows = pq.ParquetFile(pa.BufferReader(content)).read()
        if _VIA not in rows.schema.names:
            rows = rows.append_column(_VIA, pa.repeat(pa.scalar([], SCHEMA.field(_VIA).type), rows.num_rows))
        rows = rows.select(SCHEMA.names).cast(SCHEMA)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise ManifestError(f"the file is no landing file: {str(error).splitlines()[0]}") from None
    for field in SCHEMA:
        if not field.nullable and rows[field.name].null_count:
            raise ManifestError(f"the file is no landing file: a row has no {field.name}")
    return rows
