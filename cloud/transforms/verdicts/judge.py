"""What of a batch is new, as Spark's tasks judge it: by intervals first, and by rows only where an interval is suspect.

Each function takes frames and returns one. Rows of the same stream meet in one task, which judges them whole. There is
no state beside the tables, and a message may arrive again after any time.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cloud.landing import intervals
from cloud.landing.intervals import Interval, Intervals
from cloud.landing.manifest import Stream, list_intervals
from cloud.spark.tasks import Batches, map_batches
from cloud.transforms.verdicts.classify import NEW as IS_NEW
from cloud.transforms.verdicts.classify import Suspect, classify, known_intervals

FINDINGS = "kind STRING, part INT, file STRING, note STRING, origin STRING, epoch BIGINT, lo BIGINT, hi BIGINT"
"""What a batch is found to have, and where: intervals of numbers, and what else the kinds say."""
LANDED, REPEATED = "landed", "repeated"
"""An interval of a landing file; with REPEATED, the file has some numbers more than once."""
NEW, KNOWN, TWICE = "new", "known", "twice"
"""An interval of new numbers; and one of numbers in a landing file that may not be new: the ledger knows them, or the
batch has them more than once."""
BROUGHT = "brought"
"""Some intervals are suspect, and the batches `lo` to `hi` brought the known ones; 0 to 0 if none is known."""
REFUSED, BIRTH = "refused", "birth"
"""A landing file that cannot be used, with the reason; a topic on which a birth may explain messages of the batch."""

MESSAGES = "part INT, file STRING, place INT, known BOOLEAN, origin STRING, epoch BIGINT, seq BIGINT, topic STRING, \
payload BINARY"
"""A message with a suspect number: the part and the landing file, and the row's place in it, from 0."""
VERDICTS = "part INT, file STRING, place INT, verdict TINYINT"

_STREAM = ["origin", "epoch"]
_TYPES = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64()}
_COLUMNS = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, FINDINGS.split(", "))])


class Ledger(Protocol):
    """The ledger as it was before the batch."""

    def load(self, origins: pa.Array) -> pa.Table:
        """Returns the rows of these origins."""

    def batches_of(self, rows: pa.Table, suspects: list[Suspect]) -> list[Interval]:
        """Returns the batches that brought identities of the suspects, by these rows."""


Contents: TypeAlias = Callable[[list[Suspect]], tuple[pa.Table, pa.Table]]
"""Returns the messages of earlier batches in suspect intervals, and the conflicts about them."""


class _Span(NamedTuple):
    kind: str
    part: int
    file: str
    lo: int
    hi: int


def findings(rows: Iterable[tuple[Any, ...]]) -> Batches:
    """Yields rows of Python values, in the order of FINDINGS."""
    columns = list(zip(*rows, strict=True))
    if columns:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=True)]
        yield from pa.table(arrays, schema=_COLUMNS).to_batches()


def gather(frame: DataFrame, tasks: int) -> DataFrame:
    """Returns the rows so that one task has all rows of a stream. With a single task nothing is shuffled."""
    return frame.coalesce(1) if tasks == 1 else frame.repartition(tasks, *_STREAM)


def compare(landed: DataFrame, ledger: Ledger, tasks: int) -> DataFrame:
    """Returns FINDINGS: which numbers of a batch are new, and which are suspect, by file. Other findings stay.

    landed: FINDINGS with the intervals of landing files.
    """
    return map_batches(gather(landed, tasks), partial(_compare, ledger), FINDINGS)


def judge(messages: DataFrame, contents: Contents, tasks: int) -> DataFrame:
    """Returns VERDICTS of the messages with suspect numbers that are not new: DUPLICATE or CONFLICT.

    messages: all MESSAGES of the batch with these numbers.
    """
    return map_batches(gather(messages, tasks), partial(_judge, contents), VERDICTS)


def _compare(ledger: Ledger, batches: Batches) -> Batches:
    if not (given := list(batches)):
        return
    rows = pa.Table.from_batches(given)
    is_span = pc.is_in(rows["kind"], pa.array([LANDED, REPEATED]))
    yield from rows.filter(pc.invert(is_span)).to_batches()
    landed = rows.filter(is_span)
    if not landed.num_rows:
        return
    held = ledger.load(pc.unique(landed["origin"]))
    known = known_intervals(held)
    suspects: list[Suspect] = []
    found: list[tuple[Any, ...]] = []
    for stream, spans in _by_stream(landed).items():
        new, again, twice = _divide(spans, known.get(stream, []))
        found += [(NEW, None, None, None, *stream, lo, hi) for lo, hi in new]
        suspects += [Suspect(*stream, lo, hi, known=True) for lo, hi in again]
        for kind, suspect in ((KNOWN, again), (TWICE, twice)):
            found += [(kind, one.part, one.file, None, *stream, one.lo, one.hi) for one in _within(spans, suspect)]
    yield from findings(found)
    if any(row[0] != NEW for row in found):
        brought = ledger.batches_of(held, suspects) if suspects else []
        yield from findings((BROUGHT, *[None] * 5, lo, hi) for lo, hi in brought or [(0, 0)])


def _by_stream(landed: pa.Table) -> dict[Stream, list[_Span]]:
    streams: dict[Stream, list[_Span]] = defaultdict(list)
    columns = (landed[name].to_pylist() for name in (*_STREAM, *_Span._fields))
    for origin, epoch, *span in zip(*columns, strict=True):
        streams[origin, epoch].append(_Span(*span))
    return streams


def _divide(spans: list[_Span], known: Intervals) -> tuple[Intervals, Intervals, Intervals]:
    """Returns the new numbers of a stream, the known ones, and the new ones that there are more than once."""
    every = [(span.lo, span.hi) for span in spans]
    repeated = [(span.lo, span.hi) for span in spans if span.kind == REPEATED]
    landed = intervals.merge(every)
    new = intervals.subtract(landed, known)
    again = intervals.intersect(landed, known)
    return new, again, intervals.intersect(intervals.merge([*intervals.overlaps(every), *repeated]), new)


def _within(spans: list[_Span], suspect: Intervals) -> Iterator[_Span]:
    """Yields the suspect numbers of each file."""
    lows, highs = [lo for lo, _ in suspect], [hi for _, hi in suspect]
    for span in spans:
        for lo, hi in suspect[bisect_left(highs, span.lo) : bisect_right(lows, span.hi)]:
            yield span._replace(lo=max(lo, span.lo), hi=min(hi, span.hi))


def _judge(contents: Contents, batches: Batches) -> Batches:
    if not (given := list(batches)):
        return
    rows = pa.Table.from_batches(given)
    known = rows["known"].to_numpy()
    suspects = [Suspect(*span, known=True) for span in list_intervals(rows.filter(rows["known"]))]
    order = pc.sort_indices(rows.select(["file", "place"]), [("file", "ascending"), ("place", "ascending")])
    verdicts = pa.array(classify(rows, order.to_numpy(), known, *contents(suspects)), pa.int8())
    judged = rows.select(["part", "file", "place"]).append_column("verdict", verdicts)
    yield from judged.filter(pc.not_equal(verdicts, IS_NEW)).to_batches()
