"""The ledger: the sequence numbers of each (origin, epoch) that the tables hold, as intervals.

Each batch adds the intervals that it brought, with its number: so a message that comes again is compared only with the
batches that hold its identity. When many batches have added theirs, neighbours become one interval: intervals of recent
batches within their 64 batches, older ones within their 4,096. So the ledger grows with origins and gaps, and hardly
with time.

Before neighbours become one, their rows go to `arrivals`. It is read only for messages that come again after that, and
names the batches that brought them.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing import intervals
from cloud.landing.intervals import Interval
from cloud.spark.tasks import Batches, map_items
from cloud.tables.data_file import DataFile, write_rows
from cloud.tables.schema import ARRIVALS, CROSSINGS, LEDGER, LINKS, Table
from cloud.tables.tables import TableFolder, Tables
from cloud.transforms.rows import read_epochs
from cloud.transforms.verdicts.classify import Known, Suspect, find_overlapping, known_intervals, number_streams

_MERGE_FILES = 64
_WIDTHS = (4096, 64)
_COLUMNS = ["origin", "epoch", "lo", "hi", "first_batch", "batch"]


class Earlier(NamedTuple):
    """The ledger as it was before a batch, for Spark's tasks: they read its files where they need some origins.

    place: the folder with the tables. arrived: the last batch in the files of `arrivals`.
    """

    place: str
    batch: int
    files: list[DataFile]
    arrivals: list[DataFile]
    arrived: int

    def load(self, origins: pa.Array) -> pa.Table:
        """Returns the rows of these origins."""
        before = (pc.field("batch") < self.batch) & pc.field("origin").isin(origins)
        return TableFolder(self.place).read_files(LEDGER, self.files, _COLUMNS, before)

    def batches_of(self, rows: pa.Table, suspects: Sequence[Suspect]) -> list[Interval]:
        """Returns the intervals of batches that brought identities of the suspects, by the ledger's rows."""
        holding = _overlapping(rows, suspects)
        # Rows that became one before there was the table `arrivals` name the batches themselves.
        joined = (pc.field("first_batch") < pc.field("batch")) & (pc.field("batch") <= self.arrived)
        batches = _batches(holding.filter(~joined))
        apart = holding.filter(joined)
        groups = intervals.merge(_batches(apart))
        of_origins = pc.field("origin").isin(pc.unique(apart["origin"]))
        for file in self.arrivals:
            limits = file.full_limits()
            (low, _), (_, high) = (limits.get(name, (0, 1 << 62)) for name in ("first_batch", "batch"))
            if intervals.intersect(groups, [(low, high)]):
                # One after the other: the intervals of 4,096 batches together would need gigabytes.
                arrived = TableFolder(self.place).read_files(ARRIVALS, [file], _COLUMNS, of_origins)
                batches |= _batches(_overlapping(arrived, suspects))
        return intervals.merge(batches)


def known_of(tables: TableFolder, origins: Iterable[str]) -> Known:
    """Returns the intervals that the ledger has now of these origins."""
    of_origins = pc.field("origin").isin(pa.array(set(origins), pa.string()))
    return known_intervals(tables.rows(LEDGER, ["origin", "epoch", "lo", "hi"], of_origins))


def before(tables: TableFolder, batch: int) -> Earlier:
    """Returns the ledger as it was before the batch of this number."""
    files, arrivals = tables.files(LEDGER), tables.files(ARRIVALS)
    return Earlier(str(tables.folder), batch, files, arrivals, tables.last_batch(ARRIVALS))


def _batches(rows: pa.Table) -> set[Interval]:
    found = rows.group_by(["first_batch", "batch"]).aggregate([])
    return set(zip(found["first_batch"].to_pylist(), found["batch"].to_pylist(), strict=True))


def _overlapping(rows: pa.Table, suspects: Sequence[Suspect]) -> pa.Table:
    """Returns those of the rows whose intervals hold identities of the suspects."""
    return rows.filter(pa.array(find_overlapping(read_epochs(rows), suspects) >= 0))


class Merging(NamedTuple):
    """How neighbouring intervals of a table become one.

    `same` are the columns that both have alike. Besides `lo` of the first one and `hi` of the last one, `of_first` and
    `of_last` are kept; a number in `of_last` has to be below the one in `of_first` of the interval that follows.
    """

    same: tuple[str, ...]
    of_first: tuple[str, ...] = ()
    of_last: tuple[str, ...] = ()


MERGING = {
    LEDGER: Merging(("origin", "epoch")),
    LINKS: Merging(("gateway", "route", "epoch")),
    CROSSINGS: Merging(
        ("origin", "epoch", "gateway", "route", "link_epoch", "hop"), ("first_number",), ("last_number",)
    ),
}
"""The tables whose rows are intervals with the batches that added them."""


class Merged(msgspec.Struct):
    """A file that takes the place of others, and one with rows for `arrivals`, if there are any."""

    file: DataFile
    arrived: DataFile | None = None


def merge(tables: Tables, table: Table, least: int = _MERGE_FILES) -> None:
    """Makes a table of intervals small again once batches have added ``least`` files to it, in one Spark task.

    A run that is killed between the two commits finds the rows in `arrivals`, and does not add them again.
    """
    files = tables.files(table)
    if len(files) < least:
        return
    work = partial(_merge, str(tables.folder), table.name, tables.last_batch(ARRIVALS))
    (row,) = map_items(tables.spark, [files], work, "merged STRING").collect()
    merged = msgspec.json.decode(row.merged, type=Merged)
    if merged.arrived:
        tables.append(ARRIVALS, [merged.arrived], None)
    tables.stored(table).commit([merged.file], files, data_change=False)


def _merge(place: str, name: str, arrived: int, files: list[DataFile]) -> Batches:
    """Yields Merged as JSON. `arrived` is the last batch in `arrivals`."""
    table, how = next((table, how) for table, how in MERGING.items() if table.name == name)
    folder = TableFolder(place)
    rows = folder.read_files(table, files).sort_by([(name, "ascending") for name in (*how.same, "lo")])
    lo, hi, first, last = (rows[name].to_numpy() for name in ("lo", "hi", "first_batch", "batch"))
    newest = last.max()
    group = last.copy()
    for width in reversed(_WIDTHS):
        # Both ends in the same group, which no batch to come belongs to.
        within = (first // width == last // width) & (last // width < newest // width)
        group[within] = -(last[within] // width * len(_WIDTHS) + _WIDTHS.index(width)) - 1
    stream = number_streams(rows, how.same)
    follows = (np.diff(stream) == 0) & (np.diff(group) == 0) & (lo[1:] == hi[:-1] + 1)
    for before, after in zip(how.of_last, how.of_first, strict=True):
        follows &= rows[after].to_numpy()[1:] > rows[before].to_numpy()[:-1]
    starts, ends = intervals.find_runs(follows)
    columns = {
        **{name: rows[name].take(starts) for name in (*how.same, "lo", *how.of_first)},
        **{name: rows[name].take(ends) for name in ("hi", *how.of_last)},
        "first_batch": np.minimum.reduceat(first, starts),
        "batch": np.maximum.reduceat(last, starts),
    }
    merged = Merged(write_rows(folder.of(table), table, 0, pa.table(columns)))
    # Rows become one for the first time if no batch to come is grouped with theirs.
    closed = int(newest) // _WIDTHS[-1] * _WIDTHS[-1]
    joined = rows.filter((pc.field("batch") > arrived) & (pc.field("batch") < closed))
    if table is LEDGER and joined.num_rows:
        merged.arrived = write_rows(folder.of(ARRIVALS), ARRIVALS, 0, joined)
    yield pa.RecordBatch.from_pydict({"merged": [msgspec.json.encode(merged).decode()]})
