"""Takes a part of a batch in: a Spark task reads its landing files, decodes their messages, and writes the data files.

A task proves each landing file against its manifest: its size, its SHA-256, its columns, and that its rows have the
identities that the manifest lists. What it writes counts only when the driver commits it; a task that dies leaves
files that no table knows.
"""

import gc
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cloud.job.landed import load_planned, read_landing_file
from cloud.job.links import find_links, has_links
from cloud.job.part import Part, gather_parts
from cloud.landing.manifest import ManifestError
from cloud.spark.tasks import Batches, map_batches, map_items
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.data_file import DataFile, DataFileWriter, read_columns
from cloud.tables.schema import (
    BRONZE_MESSAGES,
    CROSSINGS,
    DATA_TABLES,
    LINKS,
    QUARANTINE,
    READINGS,
    STATEMENT_TABLES,
    Table,
)
from cloud.tables.tables import Tables
from cloud.transforms.rows import CONFLICT as CONFLICT_KIND
from cloud.transforms.rows import (
    CONFLICT_REASON,
    DECODED,
    UNDECODABLE,
    Landed,
    bronze_rows,
    decode,
    quarantine_rows,
    read_epochs,
    read_quarantine,
    read_times,
    reading_rows,
)
from cloud.transforms.statements import find_statements, read_statements
from cloud.transforms.verdicts.classify import CONFLICT, DUPLICATE, NEW, Numbers

CHUNK_ROWS = 20_000
CHUNK_BYTES = 16 << 20
DECODED_BYTES = 2 << 20
"""The most bytes of payloads that are decoded at once, unless a single one has more: that may be a million readings of
two bytes each, which take hundreds of megabytes until they are written."""
Verdicts: TypeAlias = dict[str, tuple[Numbers, Numbers]]
"""The rows of each landing file that are not simply new: their places in the file, and their verdicts."""
Decoder: TypeAlias = Callable[[Landed], Landed]
"""What adds `records` and problems to messages."""


class Done(msgspec.Struct):
    """What a task did. `files` has the data files by table. `refused` has the landing files that do not prove, with the
    reason: then nothing was written. `failure` says why the task could not write."""

    files: dict[str, list[DataFile]] = {}
    new: int = 0
    duplicates: int = 0
    undecodable: int = 0
    conflicts: int = 0
    readings: int = 0
    statements: int = 0
    refused: list[tuple[str, str]] = []
    failure: str | None = None


def take_in(part: Part, verdicts: Verdicts, decoder: Decoder = decode) -> Done:
    """Does what the part says. Never raises for what is in a landing file, or for a disk that is full."""
    done = Done()
    landing, tables = open_storage(part.landing), open_storage(part.tables)
    work = _Writers(part, tables, decoder)
    gc.disable()  # nothing here makes cycles, and the collector would look through every record again and again
    try:
        for file in part.files:
            try:
                rows = read_landing_file(load_planned(file, landing), landing)
            except ManifestError as error:
                done.refused.append((file.file, str(error)))
                continue
            if not done.refused:
                _take_file(rows, file.file, part, verdicts, work, done)
        for name in part.again:
            _take_again(read_undecodable(tables.child(QUARANTINE.name), name), part, work, done)
        done.files = {} if done.refused else work.close()
    except OSError as error:
        done.failure = f"{error.strerror}: {error.filename or tables}" if error.strerror else str(error)
    finally:
        gc.enable()
        if not done.files:
            work.discard()
    return done


def _take_file(rows: pa.Table, file: str, part: Part, verdicts: Verdicts, work: "_Writers", done: Done) -> None:
    of_row = np.full(rows.num_rows, NEW)
    if file in verdicts:
        places, found = verdicts[file]
        of_row[places] = found
    done.duplicates += int(np.count_nonzero(of_row == DUPLICATE))
    taken = rows.filter(pa.array(of_row != CONFLICT)) if (of_row == CONFLICT).any() else rows
    if has_links(taken):
        links, crossings = find_links(taken, part.batch)
        work.write(LINKS, links)
        work.write(CROSSINGS, crossings)
    problems = _take_statements(rows, of_row, work, done)
    rows = rows.drop_columns("via")
    for first, length in _chunks(rows, CHUNK_BYTES):
        landed = read_times(rows.slice(first, length), part.planned_ms, file, part.batch)
        landed = landed.add_problems(
            {place - first: problems[place] for place in problems if first <= place < first + length}
        )
        verdict = of_row[first : first + length]
        _take_chunk(landed if (verdict == NEW).all() else _pick(landed, verdict, NEW), work, done)
        if (verdict == CONFLICT).any():
            conflicts = _pick(landed, verdict, CONFLICT)
            reasons = pa.repeat(pa.scalar(CONFLICT_REASON), len(conflicts.messages))
            work.write(QUARANTINE, quarantine_rows(conflicts, CONFLICT_KIND, reasons))
            done.conflicts += len(conflicts.messages)


def _take_again(rows: pa.Table, part: Part, work: "_Writers", done: Done) -> None:
    """Decodes messages of `quarantine` again. Messages that have no problem now are noted there as decoded."""
    for first, length in _chunks(rows, DECODED_BYTES):
        some = rows.slice(first, length)
        stated = dict.fromkeys(find_statements(some).tolist(), "what routes state is judged once, as it lands")
        decoded = work.decoder(read_quarantine(some, part.batch).add_problems(stated))
        readings = reading_rows(decoded)
        if len(readings):
            work.write(READINGS, readings)
        sound = pc.is_null(decoded.problems)
        count = pc.sum(sound).as_py()
        if count:
            reasons = pa.repeat(pa.scalar(f"decoded by batch {part.batch}"), count)
            work.write(QUARANTINE, quarantine_rows(decoded.take(pc.indices_nonzero(sound)), DECODED, reasons))
        done.new += count
        done.undecodable += length - count
        done.readings += len(readings)


def read_undecodable(folder: Storage, file: str) -> pa.Table:
    """Returns the undecodable messages in a data file of `quarantine`, the epoch as a number."""
    rows = read_columns(folder, file, filters=pc.field("kind") == UNDECODABLE)
    return read_epochs(rows)


def _take_statements(rows: pa.Table, of_row: Numbers, work: "_Writers", done: Done) -> dict[int, str]:
    """Takes in what new statements say. Returns the faults of messages that only seem to be some, by their place."""
    places = find_statements(rows)
    places = places[of_row[places] == NEW]
    if not len(places):
        return {}
    stated = read_statements(rows, places, work.batch)
    for table in STATEMENT_TABLES:
        if found := stated.rows[table.name]:
            work.write(table, table.of_values(found))
    done.statements += len(places) - len(stated.problems)
    return stated.problems


def _take_chunk(landed: Landed, work: "_Writers", done: Done) -> None:
    """Takes in messages with new identities."""
    if not len(landed.messages):
        return
    work.write(BRONZE_MESSAGES, bronze_rows(landed))
    for first, length in _chunks(landed.messages, DECODED_BYTES):
        _decode(landed.slice(first, length), work, done)


def _decode(landed: Landed, work: "_Writers", done: Done) -> None:
    """Takes in the readings of messages, and sets those aside that cannot be decoded."""
    decoded = work.decoder(landed)
    readings = reading_rows(decoded)
    if len(readings):
        work.write(READINGS, readings)
    failed = pc.is_valid(decoded.problems)
    undecodable = pc.sum(failed).as_py()
    if undecodable:
        aside = decoded.take(pc.indices_nonzero(failed))
        work.write(QUARANTINE, quarantine_rows(aside, UNDECODABLE, aside.problems))
    done.new += len(landed.messages) - undecodable
    done.undecodable += undecodable
    done.readings += len(readings)


def _pick(landed: Landed, verdicts: Numbers, verdict: int) -> Landed:
    return landed.take(pa.array(np.flatnonzero(verdicts == verdict), pa.int64()))


def _chunks(rows: pa.Table, bytes_max: int) -> Iterable[tuple[int, int]]:
    """Yields (first row, number of rows) of pieces with at most ``bytes_max`` bytes of payloads, or of one row."""
    sizes = np.cumsum(pc.binary_length(rows["payload"]).to_numpy())
    first = 0
    while first < rows.num_rows:
        before = int(sizes[first - 1]) if first else 0
        fitting = int(np.searchsorted(sizes, before + bytes_max, side="right"))
        last = min(max(fitting, first + 1), first + CHUNK_ROWS, rows.num_rows)
        yield first, last - first
        first = last


class _Writers:
    """The open data file of each table that the part has rows for."""

    def __init__(self, part: Part, tables: Storage, decoder: Decoder) -> None:
        self._tables = tables
        self.decoder = decoder
        self.batch = part.batch
        self._part = part
        self._date = datetime.fromtimestamp(part.planned_ms / 1000, UTC).date()
        self._open: dict[str, DataFileWriter] = {}

    def write(self, table: Table, rows: pa.Table) -> None:
        if table.name not in self._open:
            folder = self._tables.child(table.name)
            self._open[table.name] = DataFileWriter(folder, table, self._part.batch, self._date)
        self._open[table.name].write(rows)

    def close(self) -> dict[str, list[DataFile]]:
        return {table.name: [self._open[table.name].close()] for table in DATA_TABLES if table.name in self._open}

    def discard(self) -> None:
        for writer in self._open.values():
            writer.discard()


def run_parts(tables: Tables, parts: list[Part], verdicts: DataFrame | None, decoder: Decoder = decode) -> list[Done]:
    """Takes each part in as a Spark task. `verdicts` are as `judge` returns them; None if all rows are new."""
    if verdicts is None:
        taken = map_items(tables.spark, parts, partial(_take_in, decoder, {}), "done STRING")
    else:
        empty = tables.spark.range(0, len(parts), 1, len(parts)).selectExpr(
            "int(id)", "string(NULL)", "int(NULL)", "tinyint(NULL)"
        )
        judged = gather_parts(verdicts.union(empty), parts)
        taken = map_batches(judged, partial(_take_in_judged, parts, decoder), "done STRING")
    return [msgspec.json.decode(row.done, type=Done) for row in taken.collect()]


def _take_in(decoder: Decoder, verdicts: Verdicts, part: Part) -> Batches:
    done = take_in(part, verdicts, decoder)
    yield pa.RecordBatch.from_pydict({"done": [msgspec.json.encode(done).decode()]})


def _take_in_judged(parts: list[Part], decoder: Decoder, batches: Batches) -> Batches:
    """Takes in the parts that the rows name, by the verdicts in the same rows."""
    if not (given := list(batches)):
        return
    rows = pa.Table.from_batches(given)
    for part in pc.unique(rows["part"]).to_pylist():
        judged = rows.filter((pc.field("part") == part) & pc.field("file").is_valid())
        judged = judged.group_by("file").aggregate([("place", "list"), ("verdict", "list")])
        columns = (judged["file"].to_pylist(), judged["place_list"], judged["verdict_list"])
        verdicts = {
            file: (places.values.to_numpy(), kinds.values.to_numpy())
            for file, places, kinds in zip(*columns, strict=True)
        }
        yield from _take_in(decoder, verdicts, parts[part])
