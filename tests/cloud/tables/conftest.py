from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cloud.lake import Lake


@pytest.fixture
def lake(spark: SparkSession, landing: Path, folder: Path) -> Lake:
    return Lake(spark, landing, folder)
