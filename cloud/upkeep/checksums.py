"""Proves files by reading their bytes: by the SHA-256 of what was written, or else by the checksums of their pages.

The digest covers the whole file, its footer too. Files that another program wrote have none in their names. Then each
page is compared with its CRC-32 [Parquet format, PageHeader.crc], if it has one.
"""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cloud.storage.storage import Storage
from cloud.tables.data_file import digest_of

SAMPLE_BYTES = 64 << 20
"""The most bytes of a table in a sample, which has at least one file."""
_THREADS = 4
_I32 = 5
_PAGE_SIZE_FIELDS = 3


class StoredFile(NamedTuple):
    """A file that is to be proved; `sha256` is None where none was kept."""

    folder: Storage
    name: str
    size: int
    sha256: str | None


class Proof(NamedTuple):
    """What was found: the faults, and how many files were read, had no checksum, and there are."""

    faults: list[str]
    read: int
    unproved: int
    files: int

    @property
    def remark(self) -> str | None:
        """What was left out; None where all files are proved."""
        left = [f"{self.read} of {self.files} files were read"] if self.read < self.files else []
        left += [f"{self.unproved} files have no checksum"] if self.unproved else []
        return "; ".join(left) or None


def prove_bytes(files: Sequence[StoredFile], *, full: bool) -> Proof:
    """Reads files, or a sample of them that is another one each time, and compares them with their checksums."""
    chosen = list(files) if full else _sample(files)
    with ThreadPoolExecutor(_THREADS) as threads:
        found = list(threads.map(_prove, chosen))
    faults = [f"{file.name}: {fault}" for file, fault in zip(chosen, found, strict=True) if fault]
    return Proof(faults, len(chosen), found.count(None), len(files))


def _sample(files: Sequence[StoredFile]) -> list[StoredFile]:
    chosen: list[StoredFile] = []
    left = SAMPLE_BYTES
    for file in random.sample(files, len(files)):
        if not chosen or file.size <= left:
            chosen.append(file)
            left -= file.size
    return chosen


def _prove(file: StoredFile) -> str | None:
    """Returns the fault of a file, "" for none, and None where it has no checksum."""
    try:
        if file.sha256 is not None:
            is_as_written = digest_of(file.folder, file.name) == file.sha256
            return "" if is_as_written else "its bytes are not the ones that were written"
        return _prove_pages(file)
    except FileNotFoundError:
        return "missing"
    except (OSError, pa.ArrowException) as error:
        return str(error).splitlines()[0]


def _prove_pages(file: StoredFile) -> str | None:
    with file.folder.filesystem.open_input_file(file.folder.path(file.name)) as source:
        parquet = pq.ParquetFile(source, page_checksum_verification=True)
        for group in range(parquet.num_row_groups):
            parquet.read_row_group(group)
        footer = parquet.metadata
        columns = [
            footer.row_group(group).column(place)
            for group in range(footer.num_row_groups)
            for place in range(footer.num_columns)
        ]
        return "" if all(_has_checksum(source, column) for column in columns) else None


def _has_checksum(source: pa.NativeFile, column: pq.ColumnChunkMetaData) -> bool:
    """Whether the first page of a column has a checksum: the field behind the type and the two sizes, all i32, of its
    header in Thrift's compact protocol.
    """
    starts = [column.data_page_offset, column.dictionary_page_offset]
    header = source.read_at(64, min(start for start in starts if start is not None))
    at = 0
    for _ in range(_PAGE_SIZE_FIELDS):
        if header[at] != 1 << 4 | _I32:
            return False
        at += 1
        while header[at] & 0x80:
            at += 1
        at += 1
    return header[at] == 1 << 4 | _I32
