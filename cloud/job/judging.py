"""Judges a batch in Spark: the intervals of its manifests by the ledger's, and the rows in suspect intervals by the
messages that are stored. The driver gets names of files and numbers of batches alone.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cloud.job.births import birth_topics
from cloud.job.landed import load_planned, read_landing_file
from cloud.job.part import Part, gather_parts
from cloud.job.plan import SetAside
from cloud.landing import intervals
from cloud.landing.intervals import Interval
from cloud.landing.manifest import ManifestError
from cloud.spark.tasks import Batches, map_batches, map_items
from cloud.storage.place import open_storage
from cloud.tables import ledger
from cloud.tables.data_file import DataFile, slices
from cloud.tables.schema import BRONZE_MESSAGES, QUARANTINE, Table
from cloud.tables.tables import TableFolder, Tables
from cloud.transforms.rows import CONFLICT, read_epochs
from cloud.transforms.verdicts.classify import CONTENT, IDENTITY, Suspect, find_within
from cloud.transforms.verdicts.judge import (
    BIRTH,
    BROUGHT,
    FINDINGS,
    KNOWN,
    LANDED,
    MESSAGES,
    REFUSED,
    REPEATED,
    TWICE,
    compare,
    findings,
    judge,
)


class Compared(NamedTuple):
    """What is found of a batch as a whole: landing files that cannot be used; the batches that brought known messages,
    none if nothing is suspect; the topics of births that may explain messages."""

    refused: list[SetAside]
    brought: list[Interval]
    births: list[str]


def find_intervals(tables: Tables, batch: int, parts: list[Part]) -> DataFrame:
    """Returns FINDINGS of the batch: which of its intervals are new, and which are suspect."""
    listed = map_items(tables.spark, parts, _list_intervals, FINDINGS)
    return compare(listed, ledger.before(tables, batch), len(parts))


def collect(found: DataFrame) -> Compared:
    """Returns what the findings of a batch tell of it as a whole."""
    rows = found.where(f"kind IN ('{REFUSED}', '{BIRTH}', '{BROUGHT}')").collect()
    return Compared(
        sorted(SetAside(row.file, row.note) for row in rows if row.kind == REFUSED),
        intervals.merge((row.lo, row.hi) for row in rows if row.kind == BROUGHT),
        sorted({row.note for row in rows if row.kind == BIRTH}),
    )


def find_verdicts(tables: Tables, found: DataFrame, brought: list[Interval], parts: list[Part]) -> DataFrame:
    """Returns VERDICTS of the batch's rows that are not new. `brought` are the batches that brought known ones."""
    before = pc.field("batch") < parts[0].batch
    stored = [
        _Stored(str(tables.folder), table, _files_of(tables, table, batches), condition)
        for table, batches, condition in (
            (BRONZE_MESSAGES, brought, before),
            (QUARANTINE, [(0, parts[0].batch - 1)], before & (pc.field("kind") == CONFLICT)),
        )
    ]
    suspects = gather_parts(found.where(f"kind IN ('{KNOWN}', '{TWICE}')"), parts)
    messages = map_batches(suspects, partial(_read_suspects, parts), MESSAGES)
    return judge(messages, partial(_read_stored, stored), len(parts))


def _list_intervals(part: Part) -> Batches:
    """Yields FINDINGS: the intervals in the manifests of a part."""
    landing = open_storage(part.landing)
    rows: list[tuple[object, ...]] = []
    for file in part.files:
        try:
            described = load_planned(file, landing)
        except ManifestError as error:
            rows.append((REFUSED, part.number, file.file, str(error), *[None] * 4))
            continue
        kind = LANDED if described.rows == sum(hi - lo + 1 for *_, lo, hi in described.intervals) else REPEATED
        rows += [(kind, part.number, file.file, None, *interval) for interval in described.intervals]
    quarantine = open_storage(part.tables).child(QUARANTINE.name)
    for folder, names in ((landing, [file.file for file in part.files]), (quarantine, part.again)):
        topics = set().union(*(birth_topics(folder, name) for name in names))
        rows += [(BIRTH, part.number, None, topic, *[None] * 4) for topic in topics]
    yield from findings(rows)


def _read_suspects(parts: list[Part], batches: Batches) -> Batches:
    """Yields the MESSAGES in suspect intervals. The task that takes a file in refuses it if it does not prove."""
    suspects: dict[tuple[int, str], list[Suspect]] = defaultdict(list)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("part", "file", "kind", "origin", "epoch", "lo", "hi"))
        for part, file, kind, origin, epoch, lo, hi in zip(*columns, strict=True):
            suspects[part, file].append(Suspect(origin, epoch, lo, hi, known=kind == KNOWN))
    planned = {(part.number, file.file): file for part in parts for file in part.files}
    for (number, name), some in suspects.items():
        landing = open_storage(parts[number].landing)
        try:
            rows = read_landing_file(load_planned(planned[number, name], landing), landing).select(
                [*IDENTITY, *CONTENT]
            )
        except ManifestError:
            continue
        rows = rows.select([*IDENTITY, *CONTENT])
        within = find_within(rows, some)
        (places,) = np.nonzero(within >= 0)
        known = np.array([suspect.known for suspect in some])[within[places]]
        found = rows.take(pa.array(places)).add_column(0, "known", pa.array(known))
        found = found.add_column(0, "place", pa.array(places, pa.int32()))
        for field, value in (("file", pa.scalar(name)), ("part", pa.scalar(number, pa.int32()))):
            found = found.add_column(0, field, pa.repeat(value, len(places)))
        yield from slices(found)


class _Stored(NamedTuple):
    """The rows of a table that meet a condition, and the files in which they may be."""

    place: str
    table: Table
    files: list[DataFile]
    condition: pc.Expression

    def read(self, known: list[Suspect]) -> pa.Table:
        """Returns identity, topic and payload of the messages in suspect intervals, which are in their order."""
        wanted = self.condition & pc.field("origin").isin(pa.array({one.origin for one in known}, pa.string()))
        columns = [*IDENTITY, *CONTENT]
        found = [read_epochs(self.table.empty().select(columns))]
        for file in _may_hold(self.files, known):
            rows = read_epochs(TableFolder(self.place).read_files(self.table, [file], columns, wanted))
            found.append(rows.filter(pa.array(find_within(rows, known) >= 0)))
        return pa.concat_tables(found)


def _read_stored(stored: list[_Stored], known: list[Suspect]) -> tuple[pa.Table, ...]:
    return tuple(one.read(known) for one in stored)


def _files_of(tables: Tables, table: Table, batches: list[Interval]) -> list[DataFile]:
    """Returns the files whose statistics permit rows of these batches, and conflicts if they are of `quarantine`.

    The ledger joins the intervals of many batches, so the suspects alone would leave thousands of files to read.
    """
    found = []
    for file in tables.files(table):
        limits = file.full_limits()
        lowest, _ = limits.get("kind", ("", ""))
        if intervals.intersect(batches, [limits.get("batch", (0, 1 << 62))]) and lowest <= CONFLICT:
            found.append(file)
    return found


def _may_hold(files: list[DataFile], known: list[Suspect]) -> Iterator[DataFile]:
    """Yields the files whose statistics permit messages in suspect intervals, which are in their order."""
    origins = [suspect.origin for suspect in known]
    lows, highs = (np.array([getattr(suspect, end) for suspect in known], np.int64) for end in ("lo", "hi"))
    for file in files:
        limits = file.full_limits()
        first, last = limits.get("origin", ("", None))
        some = slice(bisect_left(origins, first), len(origins) if last is None else bisect_right(origins, last))
        low, high = limits.get("seq", (0, 1 << 62))
        if ((lows[some] <= high) & (low <= highs[some])).any():
            yield file
