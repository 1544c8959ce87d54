"""One mosquitto for all tests of the cloud, and where landing files and tables lie."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mosquitto import mosquitto


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
