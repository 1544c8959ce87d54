"""What every test may use: the seed of this run, a real MicroPython, a Spark session, and to be a coroutine.

Nothing but what `wire` and `flash_store` are tested with is imported here, so that their tests run without the rest.
"""

import fcntl
import gc
import os
import random
import re
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.coroutines import pytest_pyfunc_call
from tools.cli.paths import cache_directory
from tools.lab.micropython import MicroPython, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling

__all__ = ["pytest_pyfunc_call"]

LONG = ("tests/tools/lab/", "tests/house/test_bootstrap.py", "tests/uplink/test_remote.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of the random tests (default: a new one each run)")


def pytest_configure(config: pytest.Config) -> None:
    # How long a machine takes says nothing about what is tested.
    settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("holdfast")
    if config.option.seed is None:
        given = getattr(config, "workerinput", {})  # from the process that started this one
        config.option.seed = given.get("seed", random.SystemRandom().randrange(2**32))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives a process of the run the seed that the header names."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (repeat this run with --seed {config.option.seed})"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Lets one process of a run collect first, and then all others together.

    In a new checkout pytest compiles every file of tests, for 13 s; the others find what the first has compiled.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return (yield)
    with Path(tempfile.gettempdir(), f"holdfast-tests-{run}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            Path(lock.name).unlink(missing_ok=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests that need Spark first, since together they take longest, and then the files of other long ones:
    what is left for the end is short, so that all processes end at once."""
    items.sort(key=lambda item: (not _needs_spark(item.path), not item.nodeid.startswith(LONG)))


def pytest_collection_finish() -> None:
    """Hides all that exists now from the garbage collector: each collection looked through a million objects of the
    tests themselves, for up to 0.1 s."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Says how many processes ``--numprocesses auto`` starts: for part of its time a test waits for other processes."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadFileScheduling | None":
    """Lets ``--dist loadfile`` run the tests that need Spark in two processes, not in one for each file, and those of
    the house in one.

    A Java that is warm does in 5 s what takes a new one 20 s, and all of them in one process would end last. The house
    reads and parses each file once.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Shared(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if file.startswith("tests/house/") and file not in LONG:
                return "the house"
            if not _needs_spark(config.rootpath / file):
                return file
            return "queries by Spark" if "quer" in file else "tables by Spark"

    return Shared(config, log)


@cache
def _needs_spark(file: Path) -> bool:
    return (
        file.suffix == ".py"
        and re.search(r"""\b(SparkSession|Lake)\b|\busefixtures\("spark"\)""", file.read_text()) is not None
    )


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
def spark() -> "Iterator[SparkSession]":
    """The one Spark session of this test process. It compiles no plan to Java code: each query here comes once, and
    of some rows."""
    from cloud import open_session

    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    session = open_session(cache_directory(), settings=interpreted, s3=True)
    yield session
    session.stop()
