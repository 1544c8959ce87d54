"""Which rows of a batch are new, by the ledger's intervals and the batch itself.

There is no state beside the tables, and a message may arrive again after any time. Only rows in a suspect interval are
looked at here: the number of any other row shows that it is new. All is done on columns: no object is made for a row.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing import intervals
from cloud.landing.intervals import Interval, Intervals
from cloud.landing.manifest import Stream

NEW, DUPLICATE, CONFLICT = 0, 1, 2
"""The verdicts."""

IDENTITY = ["origin", "epoch", "seq"]
CONTENT = ["topic", "payload"]
"""What is the same where a message comes again."""
Numbers = npt.NDArray[np.int64]
Known: TypeAlias = dict[Stream, Intervals]


class Suspect(NamedTuple):
    """An interval whose rows may not be new: it is `known` to the ledger, or more than once in the batch."""

    origin: str
    epoch: int
    lo: int
    hi: int
    known: bool


def known_intervals(rows: pa.Table) -> Known:
    """Returns the intervals of each stream in the ledger's rows."""
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in ("origin", "epoch", "lo")])
    lo, hi = (rows[name].to_numpy() for name in ("lo", "hi"))
    follows = (np.diff(number_streams(rows, ("origin", "epoch"))) == 0) & (lo[1:] == hi[:-1] + 1)
    firsts, lasts = intervals.find_runs(follows)
    streams = (rows[name].take(firsts).to_pylist() for name in ("origin", "epoch"))
    collected: dict[Stream, list[Interval]] = defaultdict(list)
    for origin, epoch, first, last in zip(*streams, lo[firsts].tolist(), hi[lasts].tolist(), strict=True):
        collected[origin, int(epoch, 16)].append((first, last))
    return {stream: intervals.merge(spans) for stream, spans in collected.items()}


def number_streams(rows: pa.Table, same: Sequence[str]) -> np.ndarray:
    """Returns a number for each row of sorted rows: the same where these columns are the same."""
    changes = np.zeros(rows.num_rows, bool)
    for name in same:
        codes = pc.dictionary_encode(rows[name].combine_chunks()).indices.to_numpy()
        changes[1:] |= np.diff(codes) != 0
    return np.cumsum(changes)


def find_within(rows: pa.Table, suspects: Sequence[Suspect]) -> Numbers:
    """Returns the place in `suspects` of the one that holds each row's identity; -1 where there is none.

    `rows` have the columns of IDENTITY. No two suspects overlap.
    """
    origins, epochs, seqs = (rows[name] for name in IDENTITY)
    return find_overlapping(pa.table({"origin": origins, "epoch": epochs, "lo": seqs, "hi": seqs}), suspects)


def find_overlapping(spans: pa.Table, suspects: Sequence[Suspect]) -> Numbers:
    """Returns the place in `suspects` of the last one that overlaps each interval; -1 where there is none.

    `spans` have the columns `origin`, `epoch`, `lo` and `hi`. No two suspects overlap.
    """
    begins = pa.table(
        {
            "origin": pa.array([suspect.origin for suspect in suspects], pa.string()),
            "epoch": pa.array([suspect.epoch for suspect in suspects], pa.int64()),
            "seq": pa.array([suspect.lo for suspect in suspects], pa.int64()),
        }
    )
    ends = spans.select(["origin", "epoch", "hi"]).rename_columns(IDENTITY)
    origins, epochs, seqs = _identities([begins, ends])
    is_span = np.arange(len(seqs)) >= len(suspects)
    order = np.lexsort((is_span, seqs, epochs, origins))
    # Sorted like this, the suspect that begins last before an interval's end is the last one that can overlap it.
    last = np.maximum.accumulate(np.where(is_span[order], -1, np.arange(len(order))))
    suspect = np.where(last >= 0, order[last], -1)
    lows = np.concatenate((begins["seq"].to_numpy(), spans["lo"].to_numpy()))
    highs = np.array([suspect.hi for suspect in suspects] or [0], np.int64)
    same = (origins[suspect] == origins[order]) & (epochs[suspect] == epochs[order])
    found = np.full(len(order), -1, np.int64)
    found[order] = np.where((suspect >= 0) & same & (lows[order] <= highs[suspect]), suspect, -1)
    return found[len(suspects) :]


def classify(
    rows: pa.Table, order: Numbers, known: npt.NDArray[np.bool_], stored: pa.Table, conflicts: pa.Table
) -> Numbers:
    """Returns the verdict of each row: NEW, DUPLICATE or CONFLICT.

    All three tables have the columns of IDENTITY and CONTENT. `order` has the places of the rows as they landed, one
    after the other; `known` says of each row whether the ledger has its identity. `stored` are the messages of earlier
    batches, `conflicts` those of their conflicts. The genuine content of an identity is the stored one, else that of
    the first row. A row with another content is a conflict the first time, and a duplicate when that content was a
    conflict before.
    """
    tables = [stored, conflicts, rows]
    origins, epochs, seqs = _identities([table.select(IDENTITY) for table in tables])
    contents = _number_contents(_joined([table.select(CONTENT) for table in tables]))
    groups = _number_groups(origins, epochs, seqs)
    first_conflict, first_row = stored.num_rows, stored.num_rows + conflicts.num_rows
    count = int(groups.max(initial=-1)) + 1
    group, content, known = groups[first_row:][order], contents[first_row:][order], known[order]

    genuine = np.full(count, -1, np.int64)
    firsts, places = np.unique(group, return_index=True)
    unknown = ~known[places]
    genuine[firsts[unknown]] = content[places[unknown]]
    genuine[groups[:first_conflict]] = contents[:first_conflict]

    width = int(contents.max(initial=0)) + 1
    keys = group * width + content
    is_copy = np.ones(len(group), bool)
    is_copy[np.unique(keys, return_index=True)[1]] = False
    was_aside = np.isin(keys, (groups * width + contents)[first_conflict:first_row])
    is_genuine = content == genuine[group]
    repeats = is_copy | (genuine[group] < 0) | (is_genuine & known) | (~is_genuine & was_aside)
    verdicts = np.empty(len(group), np.int64)
    verdicts[order] = np.where(repeats, DUPLICATE, np.where(is_genuine, NEW, CONFLICT))
    return verdicts


def _identities(tables: list[pa.Table]) -> tuple[Numbers, Numbers, Numbers]:
    """Returns numbers for the origins, the epochs and the seqs of all rows, one after the other."""
    every = _joined(tables)
    return _codes(every["origin"]), every["epoch"].to_numpy(), every["seq"].to_numpy()


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive")  # they differ in which columns may be null


def _codes(column: pa.ChunkedArray) -> Numbers:
    """Returns a number for each value: the same for the same value."""
    large = pa.large_binary() if column.type == pa.binary() else pa.large_string()
    codes = pc.dictionary_encode(column.cast(large).combine_chunks())
    return codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _number_contents(messages: pa.Table) -> Numbers:
    """Returns a number for each message: the same for the same topic and payload. They are small, as a key needs."""
    topics, payloads = (_codes(messages[name]) for name in CONTENT)
    found: Numbers = np.unique(payloads * (int(topics.max(initial=0)) + 1) + topics, return_inverse=True)[1]
    return found


def _number_groups(origins: Numbers, epochs: Numbers, seqs: Numbers) -> Numbers:
    """Returns a number for each row: the same for the same identity."""
    order = np.lexsort((seqs, epochs, origins))
    changes = np.zeros(len(order), bool)
    for column in (origins, epochs, seqs):
        changes[1:] |= np.diff(column[order]) != 0
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(changes)
    return groups
