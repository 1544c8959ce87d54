"""Which landing files a batch takes: chosen by their manifests, written down before the batch runs.

A plan is one JSON file, and the folder of plans is the stream's source: so a batch that was interrupted runs again
with the same files, whatever has landed since, and no file is chosen or passed over by its modification time.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cloud import manifest
from cloud.manifest import Manifest, ManifestError

ROWS_MAX = 1_000_000
"""Rows of a batch, unless one file has more: the batch is kept in memory while the tables are written."""


class Plan(msgspec.Struct, frozen=True):
    """A batch by its number, when it was planned (Unix ms), and its landing files."""

    batch: int
    planned_ms: int
    files: list[Manifest]


class SetAside(NamedTuple):
    """A landing file or manifest that cannot be used, and why."""

    file: str
    reason: str


def choose(landing: Path, taken: set[str]) -> tuple[list[Manifest], list[SetAside]]:
    """The files in the landing folder that are not taken: the sound ones as they were landed, and the others."""
    sound: list[Manifest] = []
    aside: list[SetAside] = []
    for path in sorted(landing.glob("[!.]*.json")):
        file = f"{path.stem}.parquet"
        if file in taken:
            continue
        try:
            described = manifest.read(path)
            manifest.check_file(described, landing)
            sound.append(described)
        except ManifestError as error:
            aside.append(SetAside(file, str(error)))
    return sorted(sound, key=lambda described: (described.lander, described.number)), aside


def divide(files: Iterable[Manifest], first_batch: int, planned_ms: int) -> Iterator[Plan]:
    """Batches of at most ROWS_MAX rows, in the order of the files."""
    batch: list[Manifest] = []
    rows = 0
    for described in files:
        if batch and rows + described.rows > ROWS_MAX:
            yield Plan(first_batch, planned_ms, batch)
            first_batch, batch, rows = first_batch + 1, [], 0
        batch.append(described)
        rows += described.rows
    if batch:
        yield Plan(first_batch, planned_ms, batch)
