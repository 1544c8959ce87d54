"""One mosquitto for all tests of the cloud, and folders for landing files and tables."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cloud.lake import Lake
from tests.cloud.object_store import Server
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.object_store import KEYS

os.environ.update(KEYS)  # Spark's tasks have the environment in which the session of all tests began


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Runs a mosquitto without limits; returns its port."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns the folder for the tables; the job makes it."""
    return tmp_path / "tables"


@pytest.fixture
def lake(spark: SparkSession, landing: Path, folder: Path) -> Lake:
    return Lake(spark, landing, folder)


@pytest.fixture
def server() -> Iterator[Server]:
    """Runs an object store with an empty bucket."""
    server = Server()
    server.start()
    yield server
    server.process.stop()
