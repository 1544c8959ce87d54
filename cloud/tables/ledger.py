"""The ledger: the sequence numbers of each (origin, epoch) that the tables hold, as intervals.

Each batch adds the intervals that it brought, with its number: so a message that comes again is compared only with the
batches that hold its identity. When many batches have added theirs, neighbours become one interval: intervals of recent
batches within their 64 batches, older ones within their 4,096. So the ledger grows with origins and gaps, and hardly
with time.

Before neighbours become one, their rows go to `arrivals`. It is read only for messages that come again after that, and
names the batches that brought them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing import intervals
from cloud.landing.intervals import Interval, Intervals
from cloud.landing.manifest import Manifest, Stream, by_stream
from cloud.tables.data_file import write_rows
from cloud.tables.schema import ARRIVALS, CROSSINGS, LEDGER, LINKS, Table
from cloud.tables.tables import Tables
from cloud.transforms.classify import Suspect, find_overlapping
from cloud.transforms.rows import read_epochs

Known: TypeAlias = dict[Stream, Intervals]
_MERGE_FILES = 64
_WIDTHS = (4096, 64)
_COLUMNS = ["origin", "epoch", "lo", "hi", "first_batch", "batch"]


def load(tables: Tables, manifests: Iterable[Manifest], before: int) -> pa.Table:
    """Returns the ledger's rows of the manifests' origins, from before the batch of this number."""
    origins = pa.array({origin for manifest in manifests for origin, *_ in manifest.intervals}, pa.string())
    return tables.rows(LEDGER, _COLUMNS, (pc.field("batch") < before) & pc.field("origin").isin(origins))


def known_intervals(rows: pa.Table) -> Known:
    """Returns the intervals of each stream in the ledger's rows."""
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in ("origin", "epoch", "lo")])
    lo, hi = (rows[name].to_numpy() for name in ("lo", "hi"))
    follows = (np.diff(_number_streams(rows, ("origin", "epoch"))) == 0) & (lo[1:] == hi[:-1] + 1)
    firsts, lasts = intervals.find_runs(follows)
    streams = (rows[name].take(firsts).to_pylist() for name in ("origin", "epoch"))
    collected: dict[Stream, list[Interval]] = defaultdict(list)
    for origin, epoch, first, last in zip(*streams, lo[firsts].tolist(), hi[lasts].tolist(), strict=True):
        collected[origin, int(epoch, 16)].append((first, last))
    return {stream: intervals.merge(spans) for stream, spans in collected.items()}


def batches_of(tables: Tables, rows: pa.Table, suspects: Sequence[Suspect]) -> list[Interval]:
    """Returns the intervals of batches that hold identities of the suspects, by the ledger's rows."""
    holding = _overlapping(rows, suspects)
    # Rows that became one before there was the table `arrivals` name the batches themselves.
    first, last = pc.field("first_batch"), pc.field("batch")
    joined = (first < last) & (last <= tables.last_batch(ARRIVALS))
    batches = _batches(holding.filter(~joined))
    apart = holding.filter(joined)
    groups = intervals.merge(_batches(apart))
    of_origins = pc.field("origin").isin(pc.unique(apart["origin"]))
    for file in tables.files(ARRIVALS):
        limits = file.full_limits()
        (low, _), (_, high) = (limits.get(name, (0, 1 << 62)) for name in ("first_batch", "batch"))
        if intervals.intersect(groups, [(low, high)]):
            # One after the other: the intervals of 4,096 batches together would need gigabytes.
            arrived = tables.dataset(ARRIVALS, [file]).to_table(_COLUMNS, filter=of_origins)
            batches |= _batches(_overlapping(arrived, suspects))
    return intervals.merge(batches)


def _batches(rows: pa.Table) -> set[Interval]:
    found = rows.group_by(["first_batch", "batch"]).aggregate([])
    return set(zip(found["first_batch"].to_pylist(), found["batch"].to_pylist(), strict=True))


def _overlapping(rows: pa.Table, suspects: Sequence[Suspect]) -> pa.Table:
    """Returns those of the rows whose intervals hold identities of known suspects."""
    known = [suspect for suspect in suspects if suspect.known]
    spans = read_epochs(rows)
    return rows.filter(pa.array(find_overlapping(spans, known) >= 0))


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


def merge(tables: Tables, table: Table, least: int = _MERGE_FILES) -> None:
    """Makes a table of intervals small again once batches have added ``least`` files to it."""
    files = tables.files(table)
    if len(files) < least:
        return
    how = MERGING[table]
    rows = tables.rows(table, table.column_names).sort_by([(name, "ascending") for name in (*how.same, "lo")])
    lo, hi, first, last = (rows[name].to_numpy() for name in ("lo", "hi", "first_batch", "batch"))
    newest = last.max()
    if table is LEDGER:
        _keep_arrivals(tables, rows, int(newest))
    group = last.copy()
    for width in reversed(_WIDTHS):
        # Both ends in the same group, which no batch to come belongs to.
        within = (first // width == last // width) & (last // width < newest // width)
        group[within] = -(last[within] // width * len(_WIDTHS) + _WIDTHS.index(width)) - 1
    stream = _number_streams(rows, how.same)
    follows = (np.diff(stream) == 0) & (np.diff(group) == 0) & (lo[1:] == hi[:-1] + 1)
    for before, after in zip(how.of_last, how.of_first, strict=True):
        follows &= rows[after].to_numpy()[1:] > rows[before].to_numpy()[:-1]
    starts, ends = intervals.find_runs(follows)
    merged = {
        **{name: rows[name].take(starts) for name in (*how.same, "lo", *how.of_first)},
        **{name: rows[name].take(ends) for name in ("hi", *how.of_last)},
        "first_batch": np.minimum.reduceat(first, starts),
        "batch": np.maximum.reduceat(last, starts),
    }
    tables.replace(table, files, pa.table(merged))


def _keep_arrivals(tables: Tables, rows: pa.Table, newest: int) -> None:
    """Adds to `arrivals` the rows that become one for the first time: of batches that no batch to come is grouped with.

    A run that is killed before they become one finds them there, and does not add them again.
    """
    closed = newest // _WIDTHS[-1] * _WIDTHS[-1]
    added = rows.filter((pc.field("batch") > tables.last_batch(ARRIVALS)) & (pc.field("batch") < closed))
    if added.num_rows:
        tables.append(ARRIVALS, [write_rows(tables.of(ARRIVALS), ARRIVALS, 0, added)], None)


def new_intervals(manifests: Sequence[Manifest], known: Known) -> Known:
    """Returns the intervals of the landing files that are not known."""
    new = {
        stream: intervals.subtract(intervals.merge(spans), known.get(stream, []))
        for stream, spans in _landed(manifests).items()
    }
    return {stream: spans for stream, spans in new.items() if spans}


def find_suspects(manifests: Sequence[Manifest], known: Known) -> list[Suspect]:
    """Returns where the landing files overlap known intervals, each other, or themselves."""
    repeated: dict[Stream, list[Interval]] = defaultdict(list)
    for manifest in manifests:
        if manifest.rows != sum(hi - lo + 1 for *_, lo, hi in manifest.intervals):
            for stream, spans in manifest.streams().items():
                repeated[stream] += spans
    suspects = []
    for stream, spans in _landed(manifests).items():
        again = intervals.intersect(intervals.merge(spans), known.get(stream, []))
        twice = intervals.merge([*intervals.overlaps(spans), *repeated[stream]])
        suspects += [Suspect(*stream, lo, hi, known=True) for lo, hi in again]
        suspects += [Suspect(*stream, lo, hi, known=False) for lo, hi in intervals.subtract(twice, again)]
    return suspects


def files_with(manifests: Iterable[Manifest], suspects: Iterable[Suspect]) -> Iterator[Manifest]:
    """Yields the landing files that have rows of the suspects."""
    wanted: dict[Stream, list[Interval]] = defaultdict(list)
    for suspect in suspects:
        wanted[suspect.origin, suspect.epoch].append((suspect.lo, suspect.hi))
    wanted = {stream: intervals.merge(spans) for stream, spans in wanted.items()}
    for manifest in manifests:
        if any(intervals.intersect(spans, wanted.get(stream, [])) for stream, spans in manifest.streams().items()):
            yield manifest


def _number_streams(rows: pa.Table, same: Sequence[str]) -> np.ndarray:
    """Returns a number for each row of sorted rows: the same where these columns are the same."""
    changes = np.zeros(rows.num_rows, bool)
    for name in same:
        codes = pc.dictionary_encode(rows[name].combine_chunks()).indices.to_numpy()
        changes[1:] |= np.diff(codes) != 0
    return np.cumsum(changes)


def _landed(manifests: Iterable[Manifest]) -> dict[Stream, list[Interval]]:
    """Returns the intervals of all files together. They may overlap and are in no order."""
    return by_stream(interval for manifest in manifests for interval in manifest.intervals)
