"""Up to when all that was landed is in the tables.

A landing file is complete once its manifest is there, and only then its messages are acknowledged. Each landing file
that was complete at the time found here, by the clock of its lander, is in the tables. What shows it: the landing
folder names no file that waits, and no number of a lander is missing up to the newest. Where a file waits, is set aside
or is missing, the time does not go beyond the file before it, whose messages had all come when the next file began.

A lander numbers its files from 1, over all its starts. If a later start gave a number again that the tables know, its
folder was lost, and files may have gone with it that no job has seen. Then the time does not go beyond the last file
from before. By a clock that is ahead no time is found that is later than the last batch was
planned, by the job's clock.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.job.plan import list_landed
from cloud.landing.file import FileNumber, parse_stem
from cloud.queries.dataset import rows_of, schema_of
from cloud.storage.storage import Storage
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, INGESTED, LANDING_FILES
from cloud.tables.tables import TableFolder

_BEFORE = 16
"""How many files before one that waits are looked at: one whose messages all came before tells no time."""


class _Taken(NamedTuple):
    """A landing file that a batch has taken in."""

    name: FileNumber
    batch: int


def find_landed_ms(tables: TableFolder, landing: Storage, batch: int) -> int:
    """Returns the time (Unix time, ms), 0 if none is known. Raises OSError.

    batch: the last one that counts.
    """
    if not landing.is_there():
        return 0
    rows = tables.rows(LANDING_FILES, ["file", "status", "batch"])
    counts = pc.and_(pc.equal(rows["status"], INGESTED), pc.less_equal(rows["batch"], batch))
    counting = rows.filter(pc.fill_null(counts, False))
    taken = dict(zip(counting["file"].to_pylist(), counting["batch"].to_pylist(), strict=True))
    known = {*rows["file"].to_pylist(), *list_landed(landing)}
    landers: dict[str, tuple[list[_Taken], set[int]]] = {}
    for file in sorted(known):
        if name := parse_stem(file.removesuffix(".parquet")):
            files, waiting = landers.setdefault(name.lander, ([], set()))
            if file in taken:
                files.append(_Taken(name, taken[file]))
            else:
                waiting.add(name.number)
    before = [some for files, waiting in landers.values() for some in _before_losses(files, waiting)]
    return min([*_last_times(tables, before, batch), _newest(tables, batch), _planned(tables, batch)])


def _before_losses(taken: list[_Taken], waiting: set[int]) -> Iterator[list[FileNumber]]:
    """Yields files of a lander, in the order of their numbers, behind the last of which some may not be in the tables.

    waiting: the numbers of files that wait or are set aside.
    """
    names = sorted((one.name for one in taken), key=lambda name: name.number)
    if outstanding := {*waiting, *_missing([0, *(one.number for one in names), *waiting])}:
        yield [one for one in names if one.number < min(outstanding)]
    boots: dict[int, list[FileNumber]] = {}
    for one in names:
        boots.setdefault(one.boot, []).append(one)
    first = np.array([some[0].number for some in boots.values()])
    last = np.array([some[-1].number for some in boots.values()])
    came: dict[int, int] = {}
    for name, batch in sorted(taken, key=lambda one: one.batch):
        came.setdefault(name.boot, batch)
    batches = np.array([came[boot] for boot in boots])
    for place, some in enumerate(boots.values()):
        if lost := _missing([one.number for one in some]):
            yield [one for one in some if one.number < min(lost)]
        shares = (first <= last[place]) & (last >= first[place]) & (batches >= batches[place])
        if np.count_nonzero(shares) > 1:
            yield some


def _missing(numbers: Sequence[int]) -> list[int]:
    """Returns the first number of each gap between some numbers."""
    used = np.array(sorted({*numbers}))
    missing: list[int] = (used[:-1] + 1)[np.diff(used) > 1].tolist()
    return missing


def _last_times(tables: TableFolder, parts: list[list[FileNumber]], batch: int) -> Iterator[int]:
    """Yields when the last message came that is in some files, for each such part; 0 if none is known."""
    lasts = [[one for one in some if one.number > some[-1].number - _BEFORE] if some else [] for some in parts]
    names = [f"{one.stem}.parquet" for some in lasts for one in some]
    if names:
        is_theirs = pc.field("file").isin(pa.array(names, pa.string())) & (pc.field("batch") <= batch)
        is_theirs &= pc.field("landed_at").is_valid()
        stored = tables.stored(BRONZE_MESSAGES)
        rows = rows_of(tables.of(BRONZE_MESSAGES), stored.files.values(), schema_of(stored)).to_table(
            ["file", "landed_at"], filter=is_theirs
        )
        times = rows.group_by("file").aggregate([("landed_at", "max")])
        found = dict(zip(times["file"].to_pylist(), _ms(times["landed_at_max"]), strict=True))
    for some in lasts:
        by_number = groupby(reversed(some), lambda name: name.number)
        known = ([found[file] for one in same if (file := f"{one.stem}.parquet") in found] for _, same in by_number)
        yield max(0, min(next(filter(None, known), [0])))


def _newest(tables: TableFolder, batch: int) -> int:
    """Returns when the newest message came that is in the tables. Most data files tell it without being opened."""
    newest, unknown = 0, []
    for file in tables.files(BRONZE_MESSAGES):
        batches, times = file.limits("batch"), file.limits("landed_at")
        if batches and times and batches[1] <= batch:
            newest = max(newest, round(datetime.fromisoformat(times[1]).timestamp() * 1000))
        else:
            unknown.append(file)
    rows = tables.read_files(BRONZE_MESSAGES, unknown, ["landed_at"], pc.field("batch") <= batch)
    return max([newest, *_ms(rows["landed_at"])])


def _planned(tables: TableFolder, batch: int) -> int:
    """Returns when the last batch was planned, by the job's clock."""
    rows = tables.rows(BATCHES, ["planned_at"], pc.field("batch") <= batch)
    return max(_ms(rows["planned_at"]), default=0)


def _ms(times: pa.ChunkedArray) -> list[int]:
    """Returns times as Unix time in ms."""
    return [int(one) // 1000 for one in times.drop_null().cast(pa.int64()).to_pylist()]
