"""What every test may use: the seed of this run, a real MicroPython and a Spark session."""

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cloud.spark import open_session
from tools.micropython import MicroPython, find
from tools.paths import cache_directory


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of the random tests (default: a new one each run)")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (repeat this run with --seed {config.option.seed})"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed for this test's random choices, printed with a failure."""
    number: int = request.config.option.seed
    print(f"seed: {number}")
    return number


@pytest.fixture(scope="session")
def micropython() -> MicroPython:
    """A real MicroPython; where there is none the tests that ask for it fail, saying why."""
    return find()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this test process."""
    session = open_session(cache_directory())
    yield session
    session.stop()
