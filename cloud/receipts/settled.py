"""Which messages are settled: there is nothing more to be sent of them.

A message is settled if it is in the ledger, if it was forgotten, if a route left it out on purpose, or if a route
dropped it and says why. A range of dropped messages counts only if it has as many messages as numbers: otherwise
nothing says which of them it means. Only batches that count are looked at, and a route speaks only of origins of which
messages came over it, as in the views `gaps` and `left_out`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.tables.schema import (
    CROSSINGS,
    FORGOTTEN,
    LEDGER,
    STATEMENT_DROPPED,
    STATEMENT_LEFT_OUT,
    Table,
)
from cloud.tables.tables import TableFolder
from cloud.transforms.verdicts.classify import number_streams
from wire.receipt import Settled

UNPROVEN = "unproven"
"""The reason of a range whose messages a gateway no longer keeps, and that may have arrived: it settles nothing."""
_SPANS = ["origin", "epoch", "lo", "hi", "batch"]
_ROUTE = ["origin", "epoch", "gateway", "route"]
_TELLING = (LEDGER, CROSSINGS, STATEMENT_LEFT_OUT, STATEMENT_DROPPED)


class Facts(NamedTuple):
    """Rows of the tables of these names, all of batches that count."""

    ledger: pa.Table
    forgotten: pa.Table
    left_out: pa.Table
    dropped: pa.Table
    crossings: pa.Table


def read_facts(tables: TableFolder, batch: int, since: int | None = None) -> Facts:
    """Returns what is known of origins up to a batch. Raises OSError.

    since: only of origins of which batches behind this one tell something.
    """
    of_origins = None
    if since is not None:
        behind = (pc.field("batch") > since) & (pc.field("batch") <= batch)
        changed = [tables.rows(table, ["origin"], behind)["origin"] for table in _TELLING]
        of_origins = pc.field("origin").isin(pc.unique(pa.chunked_array([*_chunks(changed)], pa.string())))

    def rows(table: Table, columns: list[str], condition: pc.Expression | None) -> pa.Table:
        conditions = [one for one in (condition, of_origins) if one is not None]
        return tables.rows(table, columns, conditions[0] & conditions[-1] if conditions else None)

    counts = pc.field("batch") <= batch
    stated = ["origin", "origin_epoch", "gateway", "route", "batch"]
    return Facts(
        rows(LEDGER, _SPANS, counts),
        rows(FORGOTTEN, _SPANS[:-1], None),
        rows(STATEMENT_LEFT_OUT, [*stated, "lo", "hi"], counts),
        rows(STATEMENT_DROPPED, [*stated, "reason", "first", "last", "messages"], counts & (pc.field("first") > 0)),
        rows(CROSSINGS, _ROUTE, counts),
    )


def find_settled(facts: Facts) -> Iterator[tuple[str, list[Settled]]]:
    """Yields each origin with what is settled of its epochs, the one with the newest batch first."""
    spans = _merged(_spans(facts))
    origins, epochs = (spans[name].to_pylist() for name in ("origin", "epoch"))
    lo, hi, newest = (spans[name].to_pylist() for name in ("lo", "hi", "batch"))
    at = 0
    while at < len(origins):
        of_epochs: list[tuple[int, Settled]] = []
        origin = origins[at]
        while at < len(origins) and origins[at] == origin:
            first = at
            while at < len(origins) and (origins[at], epochs[at]) == (origin, epochs[first]):
                at += 1
            begins = lo[first] == 1
            runs = list(zip(lo[first + begins : at], hi[first + begins : at], strict=True))
            settled = Settled(int(epochs[first], 16), hi[first] if begins else 0, runs)
            of_epochs.append((max(newest[first:at]), settled))
        yield origin, [settled for _, settled in sorted(of_epochs, key=lambda one: -one[0])]


def _spans(facts: Facts) -> pa.Table:
    """Returns all that settles messages, as spans that may overlap."""
    dropped = facts.dropped
    is_exact = (pc.field("last") - pc.field("first") == pc.field("messages") - 1) & (pc.field("reason") != UNPROVEN)
    dropped = dropped.filter(is_exact).rename_columns({"first": "lo", "last": "hi"})
    crossed = facts.crossings.group_by(_ROUTE).aggregate([])
    stated = [
        one.rename_columns({"origin_epoch": "epoch"}).select([*_ROUTE, "lo", "hi", "batch"])
        for one in (facts.left_out, dropped)
    ]
    believed = pa.concat_tables(stated).join(crossed, _ROUTE, join_type="left semi")
    forgotten = facts.forgotten.append_column("batch", pa.repeat(pa.scalar(0, pa.int64()), facts.forgotten.num_rows))
    return pa.concat_tables([one.select(_SPANS) for one in (facts.ledger, forgotten, believed)])


def _merged(spans: pa.Table) -> pa.Table:
    """Returns the same numbers, from 1 on, in the fewest spans, sorted, each with its newest batch."""
    spans = spans.filter(pc.field("hi") > 0)
    if not spans.num_rows:
        return spans
    spans = spans.sort_by([(name, "ascending") for name in ("origin", "epoch", "lo", "hi")])
    stream = number_streams(spans, ("origin", "epoch"))
    lo, hi = np.maximum(spans["lo"].to_numpy(), 1), spans["hi"].to_numpy()
    # The highest number up to each row, within its stream: ranks of numbers are small enough to be put behind it.
    numbers, ranks = np.unique(hi, return_inverse=True)
    reached = numbers[np.maximum.accumulate(stream * len(numbers) + ranks) - stream * len(numbers)]
    begins = np.ones(len(lo), bool)
    begins[1:] = (np.diff(stream) > 0) | (lo[1:] - 1 > reached[:-1])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(lo)) - 1
    return pa.table(
        {
            "origin": spans["origin"].take(starts),
            "epoch": spans["epoch"].take(starts),
            "lo": lo[starts],
            "hi": reached[ends],
            "batch": np.maximum.reduceat(spans["batch"].to_numpy(), starts),
        }
    )


def _chunks(columns: list[pa.ChunkedArray]) -> Iterator[pa.Array]:
    for column in columns:
        yield from column.chunks
