"""Keeps tables and landing folder small: few files in order of devices, no old files, no landing files without use."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cloud.job.lock import only_job
from cloud.landing import intervals, manifest
from cloud.landing.file import FileNumber, parse_stem
from cloud.landing.manifest import Manifest, ManifestError
from cloud.spark.session import generated_code, open_session
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables import ledger
from cloud.tables.data_file import DataFile
from cloud.tables.schema import (
    BATCHES,
    BRONZE_MESSAGES,
    CHECKS,
    FORGOTTEN,
    INGESTED,
    LANDING_FILES,
    QUARANTINE,
    READINGS,
    STATEMENT_TABLES,
    TABLES,
)
from cloud.tables.tables import Tables, require_tables
from cloud.upkeep.forget import forget

GROUP_BYTES = 64 << 20
"""The most bytes of small files that become one. A file of half this size is left as it is."""
GROUP_ROWS = 1_000_000
VACUUM_S = 7 * 86_400
"""For so long the files of older versions stay: as long as Delta's own VACUUM leaves them."""
ORDER = {
    BRONZE_MESSAGES: ("origin", "epoch", "seq"),
    READINGS: ("device", "event_time"),
    QUARANTINE: ("kind", "origin", "epoch", "seq"),
}
"""The order of rows in a file. Readers skip the parts of a file that hold other devices or times."""


class Upkeep(msgspec.Struct):
    """What one run did: `merged` files became `written` ones, and `deleted` files were no longer needed.

    `forgotten` and `landing_files` count deleted messages and deleted landing files.

    `kept_back` says why landing files stay that are old enough: a line for each lander.
    """

    merged: int = 0
    written: int = 0
    deleted: int = 0
    forgotten: int = 0
    landing_files: int = 0
    kept_back: list[str] = msgspec.field(default_factory=list)


def maintain(
    spark: SparkSession | None,
    landing: Path | str,
    tables: Path | str,
    *,
    landing_days: float | None = None,
    devices: Iterable[str] = (),
    cache: Path | None = None,
) -> Upkeep:
    """Makes large files of small ones, deletes files that no version of the last seven days needs, and forgets devices.

    It may be killed at any time.

    spark, cache: as `ingest` takes them.
    landing_days: deletes landing files that the tables have held for this number of days, except files that a
        lander needs. With None all stay.
    devices: devices whose messages and readings are deleted.

    Raises NoTables, JobRunning, NewerTables, OSError, SparkMissing.
    """
    landed = open_storage(landing)
    require_tables(tables)
    spark = spark or open_session(cache)
    upkeep = Upkeep()
    with only_job(tables) as hold, generated_code(spark, False):
        opened = hold.open_tables(spark)
        upkeep.forgotten = sum(forget(opened, device) for device in devices)
        for table, order in ORDER.items():
            for files in _groups(opened.files(table)):
                rows = opened.read_files(table, files).sort_by([(name, "ascending") for name in order])
                opened.replace(table, files, rows)
                upkeep.merged += len(files)
                upkeep.written += 1
        for table in (LANDING_FILES, BATCHES, FORGOTTEN, CHECKS, *STATEMENT_TABLES):
            opened.compact(table, least=2)
        for table in ledger.MERGING:
            ledger.merge(opened, table, least=2)
        upkeep.deleted = sum(opened.vacuum(table, VACUUM_S) for table in TABLES)
        if landing_days is not None:
            _delete_landing_files(opened, landed, timedelta(days=landing_days), upkeep)
    return upkeep


def _groups(files: list[DataFile]) -> Iterator[list[DataFile]]:
    """Yields the small files that become one, each time at least two of one partition."""
    partitions: dict[tuple[str | None, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < GROUP_BYTES // 2:
            partitions[tuple(file.partition.values())].append(file)
    for small in partitions.values():
        group: list[DataFile] = []
        for file in sorted(small, key=lambda one: one.modified_ms):
            full = sum(one.size for one in group) + file.size > GROUP_BYTES
            if group and (full or sum(one.rows for one in group) + file.rows > GROUP_ROWS):
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


# Landing files


def _delete_landing_files(tables: Tables, landing: Storage, age: timedelta, upkeep: Upkeep) -> None:
    """Deletes the landing files that the tables have held for ``age``, except files that their lander needs."""
    before = datetime.now(UTC) - age
    condition = (pc.field("status") == INGESTED) & (pc.field("recorded_at") < before)
    rows = tables.rows(LANDING_FILES, ["file", "sha256"], condition)
    held = dict(zip(rows["file"].to_pylist(), rows["sha256"].to_pylist(), strict=True))
    for lander, numbers in sorted(_landers(landing).items()):
        newest = max(numbers, key=lambda one: one.number)
        old = [one for one in numbers if f"{one.stem}.parquet" in held]
        try:
            needed = _first_needed(manifest.load_manifest(landing, newest.stem))
        except ManifestError as error:
            if old:
                upkeep.kept_back.append(f"{lander}: {newest.stem}.json, its newest, says nothing: {error}")
            continue
        for one in old:
            if one.number < needed and _is_held(tables, landing, one, held[f"{one.stem}.parquet"], upkeep):
                # The manifest last: without it, a landing file that is left would belong to nothing.
                landing.remove(f"{one.stem}.parquet")
                landing.remove(f"{one.stem}.json")
                upkeep.landing_files += 1


def _landers(landing: Storage) -> dict[str, list[FileNumber]]:
    """Returns the numbers of each lander's manifests. Raises OSError."""
    landers: dict[str, list[FileNumber]] = defaultdict(list)
    for path in map(Path, landing.names()):
        if path.suffix == ".json" and (number := parse_stem(path.stem)):
            landers[number.lander].append(number)
    return landers


def _first_needed(newest: Manifest) -> int:
    """Returns the number from which on a lander needs its files, by its newest manifest."""
    return min(newest.number, newest.own.unconfirmed_from) if newest.own else newest.number


def _is_held(tables: Tables, landing: Storage, one: FileNumber, sha256: str, upkeep: Upkeep) -> bool:
    """Whether the ledger has all that the manifest lists, and the manifest belongs to the file that was taken in."""
    try:
        described = manifest.load_manifest(landing, one.stem)
    except ManifestError as error:
        upkeep.kept_back.append(f"{one.lander}: {error}")
        return False
    streams = described.streams()
    known = ledger.known_of(tables, (origin for origin, _ in streams))
    rest = {stream: intervals.subtract(spans, known.get(stream, [])) for stream, spans in streams.items()}
    if described.sha256 != sha256 or any(rest.values()):
        upkeep.kept_back.append(f"{one.lander}: {described.file} is not the file that the tables hold")
        return False
    return True
