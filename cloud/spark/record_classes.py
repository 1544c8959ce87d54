"""The program whose classes Java archives: ``python -m cloud.spark.record_classes CACHE``."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from cloud.spark.session import open_session

_END_S = 300


def record(cache: Path) -> None:
    """Runs a session that loads what most sessions need. Java writes the archive when it ends."""
    spark = open_session(cache)
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(3).selectExpr("id", "CAST(id AS STRING) AS name")
        rows.mapInArrow(_pass_on, rows.schema).write.format("delta").save(folder)
        read = spark.read.format("delta").load(folder)
        read.groupBy("name").count().join(read, "name").orderBy("id").toArrow()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_S)


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    record(Path(sys.argv[1]))
