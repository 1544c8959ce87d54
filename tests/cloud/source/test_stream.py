"""The streams of the source, as Spark calls them: each landing file and each batch once, and nothing left out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from cloud import ingest, maintain
from cloud.landing.manifest import ManifestError
from cloud.source.source import HoldfastSource
from tests.cloud.messages import land, row

Batch = list[tuple[str, int]]


def open_stream(place: Path, **options: str) -> DataSourceStreamReader:
    """Returns the stream as a start of a query makes it."""
    source = HoldfastSource({"path": str(place), **options})
    return source.streamReader(source.schema())


def read(stream: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any]) -> Batch:
    """Returns the identities between two offsets."""
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    rows = [one for batch in batches if isinstance(batch, pa.RecordBatch) for one in batch.to_pylist()]
    return sorted((one["origin"], one["seq"]) for one in rows)


class Query:
    """A query over a stream with a checkpoint: the last offset, which is JSON there. Each `run` is a start."""

    def __init__(self, place: Path, **options: str) -> None:
        self._place = place
        self._options = options
        self._checkpoint = json.dumps(open_stream(place, **options).initialOffset())

    def run(self) -> list[Batch]:
        """Reads what there is now, and returns the identities of each batch."""
        return list(self._batches())

    def _batches(self) -> Iterator[Batch]:
        stream = open_stream(self._place, **self._options)
        assert isinstance(stream, SupportsTriggerAvailableNow)
        stream.prepareForTriggerAvailableNow()
        while True:
            start = json.loads(self._checkpoint)
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            if end == start:
                return
            yield read(stream, start, end)
            self._checkpoint = json.dumps(end)


def test_each_landing_file_is_read_once_in_the_order_of_their_numbers(landing: Path) -> None:
    land(landing, [row(1), row(1, "cellar")], [row(2)], [row(3)])
    query = Query(landing, maxFilesPerTrigger="2")
    assert query.run() == [[("cellar", 1), ("garage", 1), ("garage", 2)], [("garage", 3)]]
    assert query.run() == []
    land(landing, [row(4)], boot=2)
    land(landing, [row(5)], lander="lander-2")
    assert query.run() == [[("garage", 4), ("garage", 5)]]


def test_landing_file_that_comes_late_is_read(landing: Path) -> None:
    land(landing, [row(1)], [row(2)], [row(3)])
    late = [landing / f"lander-1-00000001-00000002.{ending}" for ending in ("parquet", "json")]
    contents = [path.read_bytes() for path in late]
    for path in late:
        path.unlink()
    query = Query(landing)
    assert query.run() == [[("garage", 1), ("garage", 3)]]
    for path, content in zip(late, contents, strict=True):
        path.write_bytes(content)
    assert query.run() == [[("garage", 2)]]


def test_landing_file_that_is_gone_before_its_batch_was_read_again_is_named(landing: Path) -> None:
    land(landing, [row(1)], [row(2)])
    stream = open_stream(landing)
    end = stream.latestOffset({}, stream.getDefaultReadLimit())
    for ending in ("parquet", "json"):
        (landing / f"lander-1-00000001-00000002.{ending}").unlink()
    with pytest.raises(ManifestError, match=r"lander-1-00000001-00000002\.parquet is gone"):
        read(open_stream(landing), {}, end)


def test_origin_of_a_stream_leaves_other_messages_out(landing: Path) -> None:
    land(landing, [row(1), row(1, "cellar")])
    assert Query(landing, origin="cellar").run() == [[("cellar", 1)]]


def test_each_batch_of_a_table_is_read_once_also_after_files_became_one(
    spark: SparkSession, landing: Path, folder: Path
) -> None:
    land(landing, [row(1), row(2)])
    ingest(spark, landing, folder)
    query = Query(folder, table="bronze_messages")
    assert query.run() == [[("garage", 1), ("garage", 2)]]
    land(landing, [row(2), row(3)], boot=2)
    ingest(spark, landing, folder)
    maintain(spark, landing, folder)
    assert query.run() == [[("garage", 3)]]
    assert query.run() == []


def test_batch_that_does_not_count_yet_is_not_read(spark: SparkSession, landing: Path, folder: Path) -> None:
    land(landing, [row(1)])
    ingest(spark, landing, folder)
    land(landing, [row(2)], boot=2)
    logs = [folder / name / "_delta_log" for name in ("ledger", "landing_files")]
    known = {place: {path.name for path in place.iterdir()} for place in logs}
    ingest(spark, landing, folder)
    for place in logs:
        for name in {path.name for path in place.iterdir()} - known[place]:
            (place / name).unlink()  # as if the job had been killed before these commits
    assert Query(folder, table="readings").run() == [[("garage", 1), ("garage", 1)]]


def test_table_whose_rows_change_is_no_stream(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ledger cannot be read as a stream, as its rows change"):
        open_stream(tmp_path, table="ledger")
