from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cloud.lake import Lake
from tests.cloud.messages import land, row

LANDED = [*(row(seq) for seq in range(1, 7)), row(2), row(3, content=b"another"), row(7, content=b"no SenML")]


@pytest.fixture
def lake(spark: SparkSession, landing: Path, folder: Path) -> Lake:
    """Returns tables of three batches, which have all of LANDED."""
    lake = Lake(spark, landing, folder)
    for rows in (LANDED[:3], LANDED[3:6], LANDED[6:]):
        land(landing, rows)
        lake.ingest()
    return lake
