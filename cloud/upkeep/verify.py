"""Counts the tables again: against the manifests, against the ledger, and against each other.

Each check counts faults, and each adds a row to the table `checks`. Rows of a batch that was interrupted do not count
yet, and are left out.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cloud.job.landed import check_size
from cloud.job.lock import only_job
from cloud.job.plan import find_missing, list_landed
from cloud.landing import intervals, manifest
from cloud.landing.intervals import Interval
from cloud.landing.manifest import ManifestError
from cloud.spark.session import generated_code, open_session
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.data_file import read_columns
from cloud.tables.ledger import known_of
from cloud.tables.schema import (
    BATCHES,
    BRONZE_MESSAGES,
    CHECKS,
    INGESTED,
    LANDING_FILES,
    LEDGER,
    QUARANTINE,
    READINGS,
    TABLES,
    Table,
)
from cloud.tables.tables import Tables, require_tables
from cloud.transforms.rows import CONFLICT, DECODED, UNDECODABLE
from cloud.transforms.verdicts.classify import Known, known_intervals
from cloud.upkeep.checksums import StoredFile, prove_bytes
from cloud.upkeep.forget import read_forgotten
from cloud.upkeep.numbers import Counted, find_numbers

_MESSAGES = {
    BRONZE_MESSAGES: Counted(0),
    READINGS: Counted(0, key="record"),
    QUARANTINE: Counted(0, kind=UNDECODABLE),
}
"""The tables with messages, and which of their rows are counted, up to a batch that is not known here."""


DIGESTS = "each data file has a digest in its name"
"""The check that does not hold where files are not proved. Nothing says that they are damaged."""


class Check(NamedTuple):
    """What was checked, of which table, how many faults there are, and the first of them.

    Without a fault `detail` says what was left out, if anything was.
    """

    check: str
    table: str
    faults: int
    detail: str | None = None

    @property
    def holds(self) -> bool:
        """Whether there is no fault."""
        return self.faults == 0

    @property
    def is_unproved(self) -> bool:
        """Whether it found no damage, and files of which nothing could prove that there is none."""
        return self.check == DIGESTS and not self.holds


def verify(
    spark: SparkSession | None,
    landing: Path | str,
    tables: Path | str,
    *,
    fresh_s: float = 3600,
    full: bool = False,
    seal: bool = False,
    cache: Path | None = None,
) -> list[Check]:
    """Counts the tables again, and adds a row for each check to the table `checks`.

    fresh_s: for how long (seconds) a message may be in a landing file before it is in the tables.
    full: reads the bytes of all data files and landing files. Otherwise it reads a sample, another one each time.
    seal: reads the bytes of all, and gives data files without a digest names with their SHA-256, unless there is a
        fault. The digests are those from before the checks: what changes a file meanwhile is a fault of the next run.
    `ingest` explains the other arguments. Raises NoTables, JobRunning, NewerTables, OlderTables, OSError,
    SparkMissing.
    """
    landed = open_storage(landing)
    require_tables(tables)
    spark = spark or open_session(cache)
    with only_job(tables) as hold, generated_code(spark, False):
        opened = hold.open_tables(spark, creating=False)
        began = datetime.now(UTC)
        checks = list(_Verifier(opened, landed, full=full, seal=seal).checks(fresh_s))
        rows = [(one.check, one.table, one.holds, one.faults, one.detail, began) for one in checks]
        opened.append_values(CHECKS, rows, None)
    return checks


class _Verifier:
    """The checks of one run."""

    def __init__(self, tables: Tables, landing: Storage, *, full: bool, seal: bool) -> None:
        self._full = full or seal
        self._seal = seal
        self._tables = tables
        self._landing = landing
        self._counting = tables.last_counting()
        self._numbers: dict[Table, Known] = {}

    def checks(self, fresh_s: float) -> Iterator[Check]:
        """Yields each check; seals data files at the end."""
        sealing = {table: self._tables.compute_digests(table) if self._seal else {} for table in TABLES}
        is_sound = True
        for check in self._counts(fresh_s):
            is_sound = is_sound and check.holds
            yield check
        for table, digests in sealing.items():
            sealed = self._tables.seal(table, digests) if is_sound else 0
            bare = [f"{file.place} has none" for file in self._tables.without_digest(table)]
            yield _check(DIGESTS, table, bare, f"{sealed} files were sealed" if sealed else None)

    def _counts(self, fresh_s: float) -> Iterator[Check]:
        """Yields the other checks. Where a data file is missing, or not as it was written, no table can be counted."""
        for look in (self._files, self._bytes):
            files = [look(table) for table in TABLES]
            yield from files
            if not all(check.holds for check in files):
                return
        for table in TABLES:
            yield self._complete(table)
        for table in _MESSAGES:
            self._numbers[table] = yield from self._number(table)
        yield from self._against_ledger()
        yield from self._against_each_other()
        yield from self._against_batches()
        yield from self._against_manifests(fresh_s)

    def _files(self, table: Table) -> Check:
        faults = []
        for file in self._tables.files(table):
            try:
                size = self._tables.of(table).size(file.place)
            except FileNotFoundError:
                size = None
            if size != file.size:
                faults.append(f"{file.place}: " + ("missing" if size is None else f"{size} of {file.size} bytes"))
        return _check("data files are there, with their sizes", table, faults)

    def _complete(self, table: Table) -> Check:
        """Checks that no row lacks a value that each row has."""
        required = [name for name in table.arrow_schema.names if table.column(name).required]
        lacking = reduce(or_, (pc.field(name).is_null() for name in required))
        files = self._tables.files(table)
        rows = self._tables.dataset(table, files).count_rows(filter=lacking) if files else 0
        return Check("no required value missing", table.name, rows)

    def _number(self, table: Table) -> Generator[Check, None, Known]:
        """Returns the identities in a table as intervals, and checks that each row is there once."""
        found = find_numbers(self._tables, table, _MESSAGES[table]._replace(last_batch=self._counting))
        yield Check("each row once", table.name, found.more, found.first)
        return found.identities

    def _bytes(self, table: Table) -> Check:
        folder = self._tables.of(table)
        files = [StoredFile(folder, file.place, file.size, file.sha256) for file in self._tables.files(table)]
        return self._prove("data files have the bytes that were written", table, files)

    def _prove(self, what: str, table: Table, files: list[StoredFile]) -> Check:
        proof = prove_bytes(files, full=self._full)
        return _check(what, table, proof.faults, proof.remark)

    # Against the ledger and each other

    def _against_ledger(self) -> Iterator[Check]:
        rows = self._tables.rows(LEDGER, ["origin", "epoch", "lo", "hi"])
        arrived = known_intervals(rows)
        overlapping = sum(pc.subtract(rows["hi"], pc.subtract(rows["lo"], 1)).to_pylist()) - _count(arrived)
        yield Check("each number in one interval", LEDGER.name, overlapping)
        messages, expected = self._numbers[BRONZE_MESSAGES], _without(arrived, read_forgotten(self._tables))
        yield _differ("no message that the ledger lacks", BRONZE_MESSAGES, _without(messages, arrived))
        yield _differ("each message of the ledger", BRONZE_MESSAGES, _without(expected, messages))

    def _against_each_other(self) -> Iterator[Check]:
        messages, readings, undecodable = (self._numbers[table] for table in _MESSAGES)
        for table, numbers in ((READINGS, readings), (QUARANTINE, undecodable)):
            yield _differ("each row has its message in bronze_messages", table, _without(numbers, messages))
        both = {stream: intervals.intersect(spans, readings.get(stream, [])) for stream, spans in undecodable.items()}
        yield _differ(
            "no undecodable message has readings", QUARANTINE, {one: some for one, some in both.items() if some}
        )

    # Against the batches

    def _against_batches(self) -> Iterator[Check]:
        names = [
            "batch",
            "files",
            "rows_in",
            "new",
            "duplicates",
            "quarantined",
            "undecodable",
            "conflicts",
            "readings",
        ]
        batches = self._tables.rows(BATCHES, names, pc.field("batch") <= self._counting).to_pylist()
        yield Check("each row once", BATCHES.name, len(batches) - len({one["batch"] for one in batches}))
        unequal = [one for one in batches if one["rows_in"] != one["new"] + one["duplicates"] + one["quarantined"]]
        yield _check("rows in = new + duplicates + quarantined", BATCHES, [f"batch {one['batch']}" for one in unequal])
        forgetful = bool(read_forgotten(self._tables))
        landed = [one for one in batches if one["files"]]
        for table, expected in (
            (BRONZE_MESSAGES, {one["batch"]: one["new"] + one["undecodable"] for one in landed}),
            (READINGS, {one["batch"]: one["readings"] for one in batches}),
        ):
            found = self._rows_of_batches(table)
            wrong = [
                f"batch {batch}: {found.get(batch, 0)} rows, {wanted} were written"
                for batch, wanted in sorted(expected.items())
                if found.get(batch, 0) > wanted or (found.get(batch, 0) < wanted and not forgetful)
            ]
            wrong += [f"batch {batch} is not in batches" for batch in sorted(found.keys() - expected.keys())]
            yield _check("as many rows as each batch has written", table, wrong)
        yield _check("as many rows as each batch has written", QUARANTINE, self._in_quarantine(batches, forgetful))
        recorded = self._tables.rows(LANDING_FILES, ["batch", "rows"], pc.field("status") == INGESTED)
        by_batch: dict[int, int] = defaultdict(int)
        for batch, some in zip(recorded["batch"].to_pylist(), recorded["rows"].to_pylist(), strict=True):
            by_batch[batch] += some
        wrong = [
            f"batch {one['batch']}: {one['rows_in']} rows in, its files have {by_batch[one['batch']]}"
            for one in landed
            # No file where the batch ended before they were recorded and its checkpoint was lost.
            if by_batch[one["batch"]] not in (0, one["rows_in"])
        ]
        wrong += [
            f"batch {batch} is not in batches" for batch in sorted(by_batch.keys() - {one["batch"] for one in batches})
        ]
        yield _check("its landing files have the rows of each batch", BATCHES, wrong)

    def _in_quarantine(self, batches: list[dict[str, int]], forgetful: bool) -> list[str]:
        """Returns what is wrong with the numbers of conflicts, which stay, and of undecodable messages, which leave."""
        rows = self._tables.rows(QUARANTINE, ["batch", "kind"], pc.field("batch") <= self._counting)
        found = Counter(zip(rows["kind"].to_pylist(), rows["batch"].to_pylist(), strict=True))
        wrong = [
            f"batch {one['batch']}: {there} conflicts, {one['conflicts']} were written"
            for one in batches
            if (there := found[CONFLICT, one["batch"]]) > one["conflicts"]
            or (there < one["conflicts"] and not forgetful)
        ]
        kinds = Counter(rows["kind"].to_pylist())
        put = sum(one["undecodable"] if one["files"] else -one["new"] for one in batches)
        there = kinds[UNDECODABLE] - kinds[DECODED]
        if there > put or (there < put and not forgetful):
            wrong.append(f"{there} undecodable messages wait, {put} were written and not decoded since")
        return wrong

    def _rows_of_batches(self, table: Table) -> dict[int, int]:
        found: dict[int, int] = defaultdict(int)
        for file in self._tables.files(table):
            batches = self._tables.read_file(table, file, ["batch"])["batch"]
            for one in batches.value_counts().to_pylist():
                if one["values"] <= self._counting:
                    found[one["values"]] += one["counts"]
        return found

    # Against the manifests

    def _against_manifests(self, fresh_s: float) -> Iterator[Check]:
        columns = ["file", "lander", "number", "rows", "sha256"]
        ingested = self._tables.rows(LANDING_FILES, columns, pc.field("status") == INGESTED)
        by_name = {one["file"]: one for one in ingested.to_pylist()}
        twice = ingested.num_rows - len(by_name)
        yield Check("each file is ingested once", LANDING_FILES.name, twice)
        others: list[str] = []
        lacking: list[str] = []
        unusable: list[str] = []
        late: list[str] = []
        if self._landing.is_there():
            landed = sorted(list_landed(self._landing))
        else:
            landed, unusable = [], [f"there is no folder {self._landing}"]
        stored = []
        for file in landed:
            try:
                described = manifest.load_manifest(self._landing, file.removesuffix(".parquet"))
                if file not in by_name:
                    check_size(described, self._landing)
            except ManifestError as error:
                unusable.append(f"{file}: {error}")
                continue
            stored.append(StoredFile(self._landing, file, described.bytes, described.sha256))
            if (known := by_name.get(file)) is None:
                if (waited := self._waited_s(file)) > fresh_s:
                    late.append(f"{file} waits for {waited:.0f} s")
            elif (known["rows"], known["sha256"]) != (described.rows, described.sha256):
                others.append(f"{file} is not the file that was ingested")
            elif _count(_without(streams := described.streams(), known_of(self._tables, (one for one, _ in streams)))):
                lacking.append(f"{file} has messages that the ledger lacks")
        yield _check("each manifest is the one that was ingested", LANDING_FILES, others)
        yield _check("the messages of each manifest", LEDGER, lacking)
        yield _check("landing files can be used", LANDING_FILES, unusable)
        yield self._prove("the bytes of landing files are those of their manifests", LANDING_FILES, stored)
        missing = find_missing(ingested, [file for file in landed if file not in by_name])
        yield _check("no landing file is missing", LANDING_FILES, [reason for _, reason in missing])
        yield _check("messages are in the tables in time", LANDING_FILES, late)

    def _waited_s(self, file: str) -> float:
        """Returns for how long the oldest message of a landing file has waited, by the lander's clock."""
        try:
            landed = read_columns(self._landing, file, ["landed_ms"])["landed_ms"]
        except (pa.ArrowException, OSError, ValueError):
            return 0.0
        return time.time() - (pc.min(landed).as_py() or 0) / 1000


def _check(what: str, table: Table, faults: list[str], remark: str | None = None) -> Check:
    return Check(what, table.name, len(faults), faults[0] if faults else remark)


def _differ(what: str, table: Table, numbers: Known) -> Check:
    """Returns a check that has the numbers as its faults."""
    first = next(iter(sorted(numbers.items())), None)
    detail = None
    if first:
        (origin, epoch), ((lo, hi), *_) = first
        detail = f"{origin} {epoch:08x} {lo}" + (f" to {hi}" if hi > lo else "")
    return Check(what, table.name, _count(numbers), detail)


def _without(some: Known, others: Known) -> Known:
    rest = {stream: intervals.subtract(spans, others.get(stream, [])) for stream, spans in some.items()}
    return {stream: spans for stream, spans in rest.items() if spans}


def _count(known: dict[tuple[str, int], list[Interval]]) -> int:
    return sum(map(intervals.count, known.values()))
