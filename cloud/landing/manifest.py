"""The manifest beside each landing file: it lists what the file holds, and shows that the file is complete."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from cloud.landing import intervals
from cloud.landing.file import FileNumber, Row, parse_stem
from cloud.landing.intervals import Intervals

FORMAT = 1
_READ_BYTES = 1 << 20

Stream: TypeAlias = tuple[str, int]
"""(origin, epoch): one life of one store. Its sequence numbers have no holes."""


class ManifestError(Exception):
    """A manifest or its landing file cannot be used. The text says why."""


class Manifest(msgspec.Struct, frozen=True):
    """The fields of the JSON file. `intervals` are (origin, epoch, lo, hi), sorted and disjoint."""

    format: int
    file: str
    lander: str
    boot: int
    number: int
    rows: int
    bytes: int
    sha256: str
    intervals: list[tuple[str, int, int, int]]

    def streams(self) -> dict[Stream, Intervals]:
        """Returns the intervals of each stream in the file."""
        streams: dict[Stream, Intervals] = defaultdict(list)
        for origin, epoch, lo, hi in self.intervals:
            streams[origin, epoch].append((lo, hi))
        return dict(streams)


def describe(name: FileNumber, rows: Iterable[Row], content: bytes) -> Manifest:
    """Returns the manifest of a landing file with these rows and this content."""
    numbers: dict[Stream, list[int]] = defaultdict(list)
    for row in rows:
        numbers[row.origin, row.epoch].append(row.seq)
    return Manifest(
        format=FORMAT,
        file=f"{name.stem}.parquet",
        lander=name.lander,
        boot=name.boot,
        number=name.number,
        rows=sum(map(len, numbers.values())),
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        intervals=[
            (origin, epoch, lo, hi)
            for (origin, epoch), seqs in sorted(numbers.items())
            for lo, hi in intervals.from_numbers(seqs)
        ],
    )


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest. Raises ManifestError when the file is not a manifest that this version understands."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise ManifestError(f"the manifest cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise ManifestError(f"the manifest has format {manifest.format}, this version reads {FORMAT}")
    name = parse_stem(path.stem)
    if name is None or manifest.file != f"{path.stem}.parquet":
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
