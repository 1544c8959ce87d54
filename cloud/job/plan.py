"""Plans: which landing files a batch takes. A plan is on the disk before its batch runs.

An interrupted batch runs again with the same files, even where more files have landed since. The modification times of
landing files mean nothing.
"""

import re
import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.job.landed import check_size, load_planned, read_landing_file
from cloud.landing import manifest
from cloud.landing.file import parse_stem
from cloud.landing.manifest import LandingFile, ManifestError
from cloud.storage.storage import Storage, StoreError

ROWS_MAX = 1_000_000
"""The most rows of a batch, unless one file has more."""


class Again(msgspec.Struct, frozen=True):
    """A data file of `quarantine`, and how many undecodable messages it has."""

    file: str
    rows: int


class Plan(msgspec.Struct, frozen=True):
    """A batch: its number, when it was planned (Unix time, ms), and its landing files, or what is decoded again.

    It lacks the intervals of the files: Spark's tasks read them. `decoders` names the decoders that it begins with. A
    batch never goes on with others.
    """

    batch: int
    planned_ms: int
    files: list[LandingFile]
    decoders: str = ""
    again: list[Again] = []

    @property
    def rows(self) -> int:
        """The rows of the landing files, by their manifests, and the messages that are decoded again."""
        return sum(described.rows for described in self.files) + sum(one.rows for one in self.again)


_Sized = TypeVar("_Sized", LandingFile, Again)


class SetAside(NamedTuple):
    """A landing file that cannot be used, and the reason."""

    file: str
    reason: str


def list_landed(landing: Storage) -> list[str]:
    """Returns the names of the landing files that have a manifest. Raises OSError."""
    return [
        f"{name.removesuffix('.json')}.parquet" for name in landing.names() if name.endswith(".json") and name[0] != "."
    ]


def choose(
    landing: Storage, files: Iterable[str], doubted: Collection[str]
) -> tuple[list[LandingFile], list[SetAside]]:
    """Returns those of the files that can be planned, in the order of their landing, and the others.

    `doubted` are set aside by an earlier run: they are read whole now. The others are proved by the batch.
    """
    sound: list[LandingFile] = []
    aside: list[SetAside] = []
    for file in sorted(files):
        try:
            described = manifest.load_landing_file(landing, file.removesuffix(".parquet"))
            if file in doubted:
                read_landing_file(load_planned(described, landing), landing)
            else:
                check_size(described, landing)
            sound.append(described)
        except ManifestError as error:
            aside.append(SetAside(file, str(error)))
    return sorted(sound, key=lambda described: (described.lander, described.number)), aside


def next_files(files: Sequence[_Sized]) -> list[_Sized]:
    """Returns the first of the files, of at most ROWS_MAX rows, for one batch."""
    taken = [files[0]]
    rows = files[0].rows
    for file in files[1:]:
        rows += file.rows
        if rows > ROWS_MAX:
            break
        taken.append(file)
    return taken


def find_missing(recorded: pa.Table, files: Iterable[str]) -> list[SetAside]:
    """Returns the numbers that no landing file has, between numbers that a lander has used.

    A lander numbers its files without holes, so a file with such a number was lost. `recorded` has `lander` and
    `number` of the files that were taken, `files` are the names of the others.
    """
    known = recorded.filter(pc.is_valid(recorded["number"])).group_by("lander").aggregate([("number", "list")])
    numbers = dict(
        zip(known["lander"].to_pylist(), (one.values.to_numpy() for one in known["number_list"]), strict=True)
    )
    for name in filter(None, (parse_stem(file.removesuffix(".parquet")) for file in files)):
        numbers[name.lander] = np.append(numbers.get(name.lander, np.empty(0, np.int64)), name.number)
    missing = []
    for lander, some in sorted(numbers.items()):
        used = np.unique(some)
        for place in np.flatnonzero(np.diff(used) > 1):
            first, last = int(used[place]) + 1, int(used[place + 1]) - 1
            lost = f"number {first}" if first == last else f"numbers {first} to {last}"
            missing.append(SetAside(f"{lander}-*-{first:08d}", f"{lander} has no file with the {lost}"))
    return missing


_ID, _PLAN = "id", "plan.json"


class Checkpoint:
    """The plan of the batch that runs now, and an id, each in a file of a folder.

    It may be deleted or get corrupt at any time: the rows of a batch that was interrupted are then deleted from the
    tables, and its files are planned again.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder

    def open(self) -> str:
        """Returns the id. Where it is lost or corrupt, the folder is made anew with another one."""
        try:
            text = self._folder.read(_ID).decode()
        except StoreError:
            raise
        except (OSError, UnicodeDecodeError):
            text = ""
        if not re.fullmatch(r"[0-9a-f]{32}", text):
            self.discard()
            text = uuid.uuid4().hex
            self._folder.create(_ID, text.encode())
        return text

    def pending(self) -> Plan | None:
        """Returns the plan of a batch that may not be done. A corrupt one counts as lost."""
        try:
            return msgspec.json.decode(self._folder.read(_PLAN), type=Plan)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def write(self, plan: Plan) -> None:
        """Writes the plan to the disk, in the place of the one before."""
        self._folder.write(_PLAN, msgspec.json.encode(plan))

    def forget_plan(self) -> None:
        """Deletes the plan, once its batch is done."""
        self._folder.remove(_PLAN)

    def discard(self) -> None:
        """Deletes both: the next ones have a new id."""
        self._folder.clear()
