"""The identities in the data files of a table, as intervals, and how many rows are there more than once.

Each file is counted by itself, in a Spark task. The files of batches hold different identities, so only where intervals
of two files overlap their rows are compared.
"""

from collections import defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing import intervals
from cloud.landing.intervals import Interval
from cloud.spark.tasks import Batches, map_items
from cloud.storage.place import open_storage
from cloud.tables.data_file import read_columns
from cloud.tables.schema import Table
from cloud.tables.tables import Tables
from cloud.transforms.rows import read_epochs
from cloud.transforms.verdicts.classify import IDENTITY, Known, Suspect, find_within, known_intervals

_SPANS = "file INT, origin STRING, epoch STRING, lo BIGINT, hi BIGINT, more BIGINT"


class Counted(NamedTuple):
    """Which rows of a table count: rows of batches up to `last_batch` and, if it is given, of a kind.

    `key` is what each row of a message has for itself, if a message has more than one.
    """

    last_batch: int
    kind: str | None = None
    key: str | None = None

    @property
    def columns(self) -> list[str]:
        return [*IDENTITY, "batch", *(["kind"] if self.kind else []), *([self.key] if self.key else [])]

    def of(self, rows: pa.Table) -> pa.Table:
        """Returns the rows that count. Rows that lack a value are left out: another check tells them."""
        wanted = pc.less_equal(rows["batch"], self.last_batch)
        if self.kind:
            wanted = pc.and_(wanted, pc.equal(rows["kind"], self.kind))
        return rows.filter(wanted).drop_null()


class Numbers(NamedTuple):
    """The identities of a table; how many rows are there more than once, and the identities of the first of them."""

    identities: Known
    more: int
    first: str | None


def find_numbers(tables: Tables, table: Table, counted: Counted) -> Numbers:
    """Counts the identities in a table."""
    names = [file.place for file in tables.files(table)]
    if not names:
        return Numbers({}, 0, None)
    work = partial(_count_file, str(tables.of(table).place), counted)
    spans = map_items(tables.spark, list(enumerate(names)), work, _SPANS).toArrow()
    twice = spans.filter(pc.greater(spans["more"], 0)).select(["origin", "epoch", "lo", "hi"]).to_pylist()
    more = (pc.sum(spans["more"]).as_py() or 0) + _count_across(tables, table, counted, spans, twice)
    first = "{origin} {epoch} in {lo} to {hi}".format(**twice[0]) if twice else None
    return Numbers(known_intervals(spans), more, first)


def count_rows(rows: pa.Table, key: str | None) -> pa.Table:
    """Returns the intervals of the identities in rows, and how many rows of each are there more than once."""
    origins, epochs = (rows[name].combine_chunks().dictionary_encode() for name in ("origin", "epoch"))
    seqs = rows["seq"].to_numpy()
    keys = rows[key].to_numpy() if key else np.zeros(len(seqs), np.int8)
    order = np.lexsort((keys, seqs, epochs.indices.to_numpy(), origins.indices.to_numpy()))
    of_stream = (
        origins.indices.to_numpy()[order].astype(np.int64) * len(epochs.dictionary) + epochs.indices.to_numpy()[order]
    )
    seqs, keys = seqs[order], keys[order]
    follows = (np.diff(of_stream) == 0) & (np.diff(seqs) <= 1)
    is_copy = np.concatenate(([False], follows & (np.diff(seqs) == 0) & (np.diff(keys) == 0)))
    firsts, lasts = intervals.find_runs(follows)
    places = pa.array(order[firsts])
    return pa.table(
        {
            "origin": rows["origin"].take(places),
            "epoch": rows["epoch"].take(places),
            "lo": seqs[firsts],
            "hi": seqs[lasts],
            "more": np.add.reduceat(is_copy.astype(np.int64), firsts),
        }
    )


def _count_file(place: str, counted: Counted, file: tuple[int, str]) -> Batches:
    """Yields the intervals of a file, by its number and name."""
    number, name = file
    rows = counted.of(read_columns(open_storage(place), name, counted.columns))
    if rows.num_rows:
        found = count_rows(rows, counted.key)
        yield from found.add_column(0, "file", pa.repeat(pa.scalar(number, pa.int32()), len(found))).to_batches()


def _count_across(
    tables: Tables, table: Table, counted: Counted, spans: pa.Table, twice: list[dict[str, object]]
) -> int:
    """Returns how many rows are in one file and in another one too, and adds where they are."""
    of_stream: dict[tuple[str, str], list[Interval]] = defaultdict(list)
    for origin, epoch, lo, hi in zip(
        *(spans[name].to_pylist() for name in ("origin", "epoch", "lo", "hi")), strict=True
    ):
        of_stream[origin, epoch].append((lo, hi))
    suspects = [
        Suspect(origin, int(epoch, 16), lo, hi, known=True)
        for (origin, epoch), some in of_stream.items()
        for lo, hi in intervals.overlaps(some)
    ]
    if not suspects:
        return 0
    found, within_files = [], 0
    for file in tables.files(table):
        rows = counted.of(tables.read_file(table, file, counted.columns))
        numbered = read_epochs(rows)
        rows = rows.filter(pa.array(find_within(numbered, suspects) >= 0))
        if rows.num_rows:
            found.append(rows)
            within_files += pc.sum(count_rows(rows, counted.key)["more"]).as_py()
    both = count_rows(pa.concat_tables(found), counted.key)
    twice += both.filter(pc.greater(both["more"], 0)).select(["origin", "epoch", "lo", "hi"]).to_pylist()
    return int(pc.sum(both["more"]).as_py()) - within_files
