"""The ledger: the sequence numbers of each (origin, epoch) that the tables hold, as intervals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pyspark.sql import functions as sf

from cloud.landing import intervals
from cloud.landing.intervals import Interval, Intervals
from cloud.landing.manifest import Manifest, Stream
from cloud.tables.tables import LEDGER, Tables
from cloud.transforms.classify import Suspect

Known: TypeAlias = dict[Stream, Intervals]


def load(tables: Tables, manifests: Iterable[Manifest], before: int) -> Known:
    """Returns the intervals of the manifests' origins that were in the ledger before the batch of this number."""
    if not tables.exists(LEDGER):
        return {}
    origins = sorted({origin for manifest in manifests for origin, *_ in manifest.intervals})
    rows = tables.read(LEDGER).where((sf.col("batch") < before) & sf.col("origin").isin(origins))
    collected: dict[Stream, list[Interval]] = defaultdict(list)
    for row in rows.select("origin", "epoch", "lo", "hi").collect():
        collected[row.origin, row.epoch].append((row.lo, row.hi))
    return {stream: intervals.merge(spans) for stream, spans in collected.items()}


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


def _landed(manifests: Sequence[Manifest]) -> dict[Stream, list[Interval]]:
    """Returns the intervals of all files together. They may overlap and are in no order."""
    landed: dict[Stream, list[Interval]] = defaultdict(list)
    for manifest in manifests:
        for stream, spans in manifest.streams().items():
            landed[stream] += spans
    return landed
