"""Landing folders as a source: each file is proved against its manifest, and a stream reads each file once.

An offset of a stream names the files that were read, as intervals of the numbers that a start of a lander gave them. So
a file that comes late, as from a copy, is read too, and a file that is gone is noticed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from cloud.job.landed import read_landing_file
from cloud.landing import intervals
from cloud.landing.file import FileNumber, parse_stem
from cloud.landing.intervals import Intervals
from cloud.landing.manifest import ManifestError, load_manifest
from cloud.source.wanted import Wanted
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.schema import BRONZE_MESSAGES
from cloud.transforms.rows import bronze_rows, read_times

COLUMNS = [name for name in BRONZE_MESSAGES.column_names if name not in ("batch", BRONZE_MESSAGES.partition)]
"""A message has the columns of `bronze_messages`, but no batch."""
SCHEMA = pa.schema([BRONZE_MESSAGES.arrow_schema.field(name) for name in COLUMNS])
PARTITION_BYTES = 16 << 20
"""The most bytes of landing files that a task reads, unless a single one has more."""
BATCH_ROWS = 20_000

Offset = dict[str, str]
"""For each start of a lander, as LANDER-BOOT, the numbers of its files: "1-5 7-9"."""


class LandedFiles(InputPartition):
    """Landing files for one task: the folder, and their names without the ending."""

    def __init__(self, place: str, stems: Sequence[str]) -> None:
        self.place = place
        self.stems = stems


class Messages(NamedTuple):
    """How messages are read: the columns, and which of them are wanted."""

    columns: list[str]
    wanted: Wanted

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the messages of landing files; none for what Spark makes of no partitions.

        Raises ManifestError for a file that is not what its manifest says.
        """
        if not isinstance(partition, LandedFiles):
            return
        folder = open_storage(partition.place)
        for stem in partition.stems:
            try:
                found = read_landing_file(load_manifest(folder, stem), folder)
            except ManifestError as error:
                raise ManifestError(f"{folder}: {stem}.parquet: {error}") from None
            rows = bronze_rows(read_times(found, None, f"{stem}.parquet", 0)).select(COLUMNS).cast(SCHEMA)
            if (expression := self.wanted.expression) is not None:
                rows = rows.filter(expression)
            yield from rows.select(self.columns).to_batches(BATCH_ROWS)


class LandingReader(DataSourceReader):
    """Reads the messages in all landing files that are in a folder now."""

    def __init__(self, place: str, messages: Messages) -> None:
        self._place = place
        self._messages = messages

    def partitions(self) -> Sequence[InputPartition]:
        folder = open_storage(self._place)
        sizes = _landed(folder)
        if (origin := self._messages.wanted.origin) is not None:
            manifests = ((name, load_manifest(folder, name.stem)) for name in sizes)
            sizes = {name: sizes[name] for name, one in manifests if origin in {row[0] for row in one.intervals}}
        return _partitions(self._place, sizes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._messages.read(partition)


class LandingStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the messages of each landing file once, in the order of the files' numbers."""

    def __init__(self, place: str, messages: Messages, files_max: int) -> None:
        """files_max: the most landing files of a batch of the stream."""
        self._place = place
        self._messages = messages
        self._files_max = files_max
        self._last: Offset | None = None

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._files_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._all()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        new = _numbers(start, self._all() if self._last is None else self._last)
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        return _add(start, new)

    def reportLatestOffset(self) -> Offset:
        return self._all()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        sizes = _landed(open_storage(self._place))
        wanted = _numbers(start, end)
        if gone := [name.stem for name in wanted if name not in sizes]:
            raise ManifestError(f"{self._place}: {gone[0]}.parquet is gone, which this stream has not read yet")
        return _partitions(self._place, {name: sizes[name] for name in wanted})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._messages.read(partition)

    def _all(self) -> Offset:
        return _add({}, _landed(open_storage(self._place)))


def _landed(folder: Storage) -> dict[FileNumber, int]:
    """Returns the sizes of the landing files that have a manifest, in bytes. Raises FileNotFoundError, OSError."""
    if not folder.is_there():
        raise FileNotFoundError(f"the landing folder {folder} does not exist")
    sizes = {entry.name: entry.size for entry in folder.walk()}
    named = (parse_stem(name.removesuffix(".json")) for name in sizes if name.endswith(".json"))
    return {name: sizes.get(f"{name.stem}.parquet", 0) for name in sorted(filter(None, named), key=_order)}


def _partitions(place: str, sizes: dict[FileNumber, int]) -> list[LandedFiles]:
    parts: list[list[str]] = []
    filled = PARTITION_BYTES
    for name, size in sizes.items():
        if filled + size > PARTITION_BYTES:
            parts.append([])
            filled = 0
        parts[-1].append(name.stem)
        filled += size
    return [LandedFiles(place, stems) for stems in parts]


def _order(name: FileNumber) -> tuple[int, str, int]:
    return name.number, name.lander, name.boot


def _numbers(start: Offset, end: Offset) -> list[FileNumber]:
    """Returns the files that are in one offset and not in the one before, in the order of their numbers."""
    found = []
    for key, text in end.items():
        lander, _, boot = key.rpartition("-")
        for lo, hi in intervals.subtract(_parse(text), _parse(start.get(key, ""))):
            found += [FileNumber(lander, int(boot, 16), number) for number in range(lo, hi + 1)]
    return sorted(found, key=_order)


def _add(offset: Offset, names: Iterable[FileNumber]) -> Offset:
    """Returns the offset behind these files too."""
    spans: dict[str, Intervals] = defaultdict(list)
    for name in names:
        spans[f"{name.lander}-{name.boot:08x}"].append((name.number, name.number))
    merged = {key: intervals.merge([*_parse(offset.get(key, "")), *found]) for key, found in spans.items()}
    return {**offset, **{key: " ".join(f"{lo}-{hi}" for lo, hi in found) for key, found in merged.items()}}


def _parse(text: str) -> Intervals:
    return [(int(lo), int(hi)) for lo, _, hi in (part.partition("-") for part in text.split())]
