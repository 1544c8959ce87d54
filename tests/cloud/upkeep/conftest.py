import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cloud.lake import Lake
from tests.cloud.messages import land, row

LANDED = [*(row(seq) for seq in range(1, 7)), row(2), row(3, content=b"another"), row(7, content=b"no SenML")]


@pytest.fixture(scope="session")
def three_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Returns tables that have all of LANDED. No test changes them."""
    place = tmp_path_factory.mktemp("lake")
    (place / "landing").mkdir()
    lake = Lake(spark, place / "landing", place / "tables")
    for rows in (LANDED[:3], LANDED[3:6], LANDED[6:]):
        land(lake.landing, rows)
        lake.ingest()
    return lake


@pytest.fixture
def lake(three_batches: Lake, landing: Path, folder: Path) -> Lake:
    """Returns a copy of the tables of three batches."""
    shutil.copytree(three_batches.landing, landing, dirs_exist_ok=True)
    shutil.copytree(three_batches.folder, folder)
    return Lake(three_batches.spark, landing, folder)
