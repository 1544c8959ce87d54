"""The manifest beside each landing file: it lists what the file holds, and shows that the file is complete."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from cloud.landing.file import FileNumber, parse_stem
from cloud.landing.intervals import Interval, Intervals, find_runs
from cloud.storage.local import LocalStorage
from cloud.storage.storage import Storage, StoreError

FORMAT = 1
_READ_BYTES = 1 << 20

Stream: TypeAlias = tuple[str, int]
"""(origin, epoch): one life of one store. Its sequence numbers have no holes."""


class ManifestError(Exception):
    """A manifest or its landing file cannot be used. The text says why."""


class OwnNumbers(msgspec.Struct, frozen=True):
    """The identities that the lander itself has given since its start, up to this file.

    `epoch` is theirs, `last_seq` the last number. `packets` are the packet identifiers of this file's rows with an
    identity of the lander, also one of an earlier start: (row, packet identifier, count) of consecutive rows. The
    broker may still send again what is in the files from the number `unconfirmed_from` on.
    """

    epoch: int
    last_seq: int
    unconfirmed_from: int
    packets: list[tuple[int, int, int]]


class LandingFile(msgspec.Struct, frozen=True):
    """What a manifest says of its file, without its messages: whose it is, its size, and the SHA-256 of its bytes."""

    format: int
    file: str
    lander: str
    boot: int
    number: int
    rows: int
    bytes: int
    sha256: str


class Manifest(LandingFile, frozen=True):
    """The fields of the JSON file. `intervals` are (origin, epoch, lo, hi), sorted and disjoint.

    `own` is None in files of landers that did not keep their numbers.
    """

    intervals: list[tuple[str, int, int, int]]
    own: OwnNumbers | None = None

    @property
    def of_file(self) -> LandingFile:
        """What it says of the file."""
        return LandingFile(
            self.format, self.file, self.lander, self.boot, self.number, self.rows, self.bytes, self.sha256
        )

    def streams(self) -> dict[Stream, Intervals]:
        """Returns the intervals of each stream in the file."""
        return by_stream(self.intervals)


_Described = TypeVar("_Described", bound=LandingFile)


def by_stream(spans: Iterable[tuple[str, int, int, int]]) -> dict[Stream, list[Interval]]:
    """Returns the intervals of each stream, in their order."""
    streams: dict[Stream, list[Interval]] = defaultdict(list)
    for origin, epoch, lo, hi in spans:
        streams[origin, epoch].append((lo, hi))
    return dict(streams)


def describe(name: FileNumber, rows: pa.Table, content: bytes, own: OwnNumbers) -> Manifest:
    """Returns the manifest of a landing file with these rows and this content."""
    return Manifest(
        format=FORMAT,
        file=f"{name.stem}.parquet",
        lander=name.lander,
        boot=name.boot,
        number=name.number,
        rows=rows.num_rows,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        intervals=list_intervals(rows),
        own=own,
    )


def list_intervals(rows: pa.Table) -> list[tuple[str, int, int, int]]:
    """Returns (origin, epoch, lo, hi) of the rows' consecutive identities, sorted and disjoint."""
    return sorted(_intervals(rows)) if rows.num_rows else []


def _intervals(rows: pa.Table) -> Iterator[tuple[str, int, int, int]]:
    """Yields (origin, epoch, lo, hi) of consecutive identities, without an object for each row."""
    origins = rows["origin"].combine_chunks().dictionary_encode()
    columns = (rows["seq"].to_numpy(), rows["epoch"].to_numpy(), origins.indices.to_numpy())
    order = np.lexsort(columns)
    seqs, epochs, places = (column[order] for column in columns)
    follows = (np.diff(places) == 0) & (np.diff(epochs) == 0) & (np.diff(seqs) <= 1)
    firsts, lasts = find_runs(follows)
    names = origins.dictionary.to_pylist()
    for first, last in zip(firsts, lasts, strict=True):
        yield names[places[first]], int(epochs[first]), int(seqs[first]), int(seqs[last])


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest. Raises ManifestError when the file is not a manifest that this version understands."""
    return load_manifest(LocalStorage(path.parent), path.stem)


def load_manifest(storage: Storage, stem: str) -> Manifest:
    """Reads the manifest of this name without its ending. Raises ManifestError as `read_manifest`, and StoreError."""
    return _parse(_read(storage, stem), stem, Manifest)


def load_landing_file(storage: Storage, stem: str) -> LandingFile:
    """Reads what the manifest of this name says of its file, without the intervals, which may be many. Raises as
    `load_manifest`."""
    return _parse(_read(storage, stem), stem, LandingFile)


def parse_manifest(content: bytes, stem: str) -> Manifest:
    """Decodes the manifest in the file of this name without its ending. Raises ManifestError as `read_manifest`."""
    return _parse(content, stem, Manifest)


def _read(storage: Storage, stem: str) -> bytes:
    try:
        return storage.read(f"{stem}.json")
    except StoreError:
        raise
    except OSError as error:
        raise ManifestError(f"the manifest cannot be read: {error}") from error


def _parse(content: bytes, stem: str, kind: type[_Described]) -> _Described:
    try:
        manifest = msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"the manifest cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise ManifestError(f"the manifest has format {manifest.format}, this version reads {FORMAT}")
    if parse_stem(stem) is None or manifest.file != f"{stem}.parquet":
        raise ManifestError(f"the manifest is of another file: {manifest.file}")
    return manifest


def check_file(manifest: Manifest, folder: Path) -> None:
    """Raises ManifestError unless the landing file has the size and the SHA-256 that the manifest says."""
    try:
        with (folder / manifest.file).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != manifest.bytes:
                raise ManifestError(f"the file has {size} bytes, its manifest says {manifest.bytes}")
            digest = hashlib.sha256()
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
    except FileNotFoundError:
        raise ManifestError("the file is missing, its manifest is there") from None
    except OSError as error:
        raise ManifestError(f"the file cannot be read: {error.strerror}") from error
    if digest.hexdigest() != manifest.sha256:
        raise ManifestError("the file's SHA-256 is not the one in its manifest")
