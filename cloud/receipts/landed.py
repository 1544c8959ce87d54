"""Up to when all that was landed is in the tables.

A landing file is complete once its manifest is there, and only then its messages are acknowledged. Each landing file
that was complete at the time found here, by the clock of its lander, is in the tables. What shows it: the landing
folder names no file that waits, and no number of a lander is missing up to the newest. Where a file waits, is set aside
or is missing, the time does not go beyond the file before it, whose messages had all come when the next file began.

A lander numbers its files from 1. By a clock that is ahead no time is found that is later than the last batch was
planned, by the job's clock.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
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


class _Files(NamedTuple):
    """The files of a lander: the numbers and names of files in the tables, and what waits, is set aside or
    is missing of it, by number."""

    taken: dict[int, list[str]]
    outstanding: set[int]


def find_landed_ms(tables: TableFolder, landing: Storage, batch: int) -> int:
    """Returns the time (Unix time, ms), 0 if none is known. Raises OSError.

    batch: the last one that counts.
    """
    if not landing.is_there():
        return 0
    rows = tables.rows(LANDING_FILES, ["file", "status", "batch"])
    counts = pc.and_(pc.equal(rows["status"], INGESTED), pc.less_equal(rows["batch"], batch))
    taken = set(rows.filter(pc.fill_null(counts, False))["file"].to_pylist())
    known = {*rows["file"].to_pylist(), *list_landed(landing)}
    landers = _by_lander(taken, known - taken)
    limits = [_limit(tables, files, batch) for files in landers.values() if files.outstanding]
    return min([*limits, _newest(tables, batch), _planned(tables, batch)])


def _by_lander(taken: Iterable[str], waiting: Iterable[str]) -> dict[str, _Files]:
    landers: dict[str, _Files] = {}
    for names, is_taken in ((taken, True), (waiting, False)):
        for name in _numbers(names):
            files = landers.setdefault(name.lander, _Files({}, set()))
            if is_taken:
                files.taken.setdefault(name.number, []).append(f"{name.stem}.parquet")
            else:
                files.outstanding.add(name.number)
    for files in landers.values():
        used = np.array(sorted({0, *files.taken, *files.outstanding}))
        files.outstanding.update((used[:-1] + 1)[np.diff(used) > 1].tolist())
    return landers


def _numbers(names: Iterable[str]) -> Iterator[FileNumber]:
    return filter(None, (parse_stem(name.removesuffix(".parquet")) for name in names))


def _limit(tables: TableFolder, files: _Files, batch: int) -> int:
    """Returns when the last message came that is in a file before each that is outstanding; 0 if none is known."""
    first = min(files.outstanding)
    before = sorted(number for number in files.taken if number < first)[-_BEFORE:]
    names = [name for number in before for name in files.taken[number]]
    is_theirs = pc.field("file").isin(pa.array(names, pa.string())) & (pc.field("batch") <= batch)
    is_theirs &= pc.field("landed_at").is_valid()
    stored = tables.stored(BRONZE_MESSAGES)
    rows = rows_of(tables.of(BRONZE_MESSAGES), stored.files.values(), schema_of(stored)).to_table(
        ["file", "landed_at"], filter=is_theirs
    )
    times = rows.group_by("file").aggregate([("landed_at", "max")])
    found = dict(zip(times["file"].to_pylist(), _ms(times["landed_at_max"]), strict=True))
    for number in reversed(before):
        some = [found[name] for name in files.taken[number] if name in found]
        if some:
            return max(0, min(some))
    return 0


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
