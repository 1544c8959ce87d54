"""One Spark session and one mosquitto for all tests of the cloud."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.spark import open_session
from tests.support.mosquitto import mosquitto
from tools.paths import cache_directory


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(cache_directory())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mosquitto without limits."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the job puts its tables."""
    return tmp_path / "tables"
