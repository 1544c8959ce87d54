"""Plans: which landing files a batch takes. A plan is written before its batch runs.

A plan is one JSON file, and the folder of plans is the source of Spark's stream. So an interrupted batch runs again
with the same files, even where more files have landed since, and the modification times of landing files mean nothing.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cloud.landing import manifest
from cloud.landing.durable_file import sync, write_durably
from cloud.landing.manifest import Manifest, ManifestError

ROWS_MAX = 1_000_000
"""The most rows of a batch, unless one file has more. A batch is kept in memory while the tables are written."""


class Plan(msgspec.Struct, frozen=True):
    """A batch: its number, when it was planned (Unix time, ms), and its landing files."""

    batch: int
    planned_ms: int
    files: list[Manifest]


class SetAside(NamedTuple):
    """A landing file that cannot be used, and the reason."""

    file: str
    reason: str


def choose(landing: Path, taken: set[str]) -> tuple[list[Manifest], list[SetAside]]:
    """Returns the files that are not in `taken`: the sound ones in the order of their landing, and the others."""
    sound: list[Manifest] = []
    aside: list[SetAside] = []
    for path in sorted(landing.glob("[!.]*.json")):
        file = f"{path.stem}.parquet"
        if file in taken:
            continue
        try:
            described = manifest.read_manifest(path)
            manifest.check_file(described, landing)
            sound.append(described)
        except ManifestError as error:
            aside.append(SetAside(file, str(error)))
    return sorted(sound, key=lambda described: (described.lander, described.number)), aside


def divide(files: Iterable[Manifest], first_batch: int, planned_ms: int) -> Iterator[Plan]:
    """Yields plans of at most ROWS_MAX rows, in the order of the files."""
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


class Checkpoint:
    """The folder in which Spark keeps how far the stream came. `plans` in it is the stream's source.

    It may be deleted at any time: the rows of a batch that was interrupted are then deleted from the tables, and its
    files are planned again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plans = folder / "plans"

    @property
    def id(self) -> str | None:
        """The id that Spark gave the stream in its first run; None before that."""
        try:
            text = (self.folder / "metadata").read_text()
        except FileNotFoundError:
            return None
        stream_id: str = json.loads(text)["id"]
        return stream_id

    def pending(self) -> list[Plan]:
        """Returns the plans of batches that may not be done, in order. Raises msgspec.MsgspecError for a bad one."""
        return [read_plan(path.read_bytes()) for path in sorted(self.plans.glob("*.json"))]

    def add(self, plan: Plan) -> None:
        """Writes a plan to the disk."""
        self.plans.mkdir(parents=True, exist_ok=True)
        path = self.plans / f"{plan.batch:012d}.json"
        write_durably(path, msgspec.json.encode(plan))
        # Spark takes the files of a folder in the order of their times: these make it the order of the batches.
        os.utime(path, (plan.batch, plan.batch))
        sync(path)

    def forget_plans(self) -> None:
        """Deletes all plans, once every batch is done."""
        for path in self.plans.glob("*.json"):
            path.unlink()

    def discard(self) -> None:
        """Deletes the folder: the next stream is a new one with a new id."""
        shutil.rmtree(self.folder, ignore_errors=True)
        sync(self.folder.parent)


def read_plan(content: bytes | str) -> Plan:
    return msgspec.json.decode(content, type=Plan)
