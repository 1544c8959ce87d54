"""A session takes Java's classes from an archive, and starts without one where there is none."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud.spark.class_archive import archive_options
from cloud.spark.jars import delta_jars
from cloud.spark.java import find_java
from tools.cli.paths import cache_directory


def test_a_session_takes_its_classes_from_the_archive(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    java = jvm.java.lang
    options = java.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    (archive,) = (option.partition("=")[2] for option in options if option.startswith("-XX:SharedArchiveFile="))
    assert archive in Path(f"/proc/{java.ProcessHandle.current().pid()}/maps").read_text()


@pytest.mark.usefixtures("spark")
def test_a_session_starts_without_an_archive_that_cannot_be_made_and_does_not_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = find_java()
    (
        tmp_path / delta_jars(java, cache_directory())[0].parent.name
    ).mkdir()  # no session begins with jars that are cut off
    assert archive_options(java, [], tmp_path) == ""
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert archive_options(java, [], tmp_path) == ""
    (empty,) = tmp_path.glob("classes-*.jsa")
    assert empty.stat().st_size == 0


def test_a_session_starts_without_an_archive_if_the_cache_is_read_only() -> None:
    assert archive_options(find_java(), [], Path("/proc")) == ""
