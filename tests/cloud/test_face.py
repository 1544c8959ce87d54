"""`cloud` as a library: what a notebook or a scheduler imports and calls."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import cloud
from cloud import Report, ingest
from tests.cloud.messages import land, row


def test_every_name_of_the_face_is_there_and_no_other() -> None:
    assert all(getattr(cloud, name).__name__ == name for name in cloud.__all__)
    with pytest.raises(AttributeError, match="no attribute 'landing_gear'"):
        _ = cloud.landing_gear


def test_a_lander_needs_no_pyspark() -> None:
    program = "import sys, cloud; before = set(sys.modules); cloud.land; print(len(before & {'paho', 'pyspark'}))"
    program += "; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]


def test_landed_messages_are_taken_into_tables_once(landing: Path, folder: Path, spark: SparkSession) -> None:
    land(landing, [row(1), row(2)])
    assert ingest(spark, str(landing), str(folder)) == Report(1, 1, rows_in=2, new=2, readings=4)
    assert ingest(None, landing, folder) == Report()


def test_ingest_of_a_missing_landing_folder_raises_and_makes_no_tables(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the landing folder"):
        ingest(None, tmp_path / "landing", tmp_path / "tables")
    assert list(tmp_path.iterdir()) == []
