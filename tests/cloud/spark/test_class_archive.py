"""A session takes Java's classes from an archive, and starts without one where there is none."""

import os
from pathlib import Path

import pytest

from cloud.spark.class_archive import archive_options
from cloud.spark.jars import delta_jars
from cloud.spark.java import find_java
from tools.cli.paths import cache_directory


@pytest.mark.usefixtures("spark")
def test_a_session_takes_its_classes_from_the_archive() -> None:
    java = find_java()
    first, *_ = archive_options(java, delta_jars(java, cache_directory()), cache_directory()).split()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    maps = [Path(f"/proc/{child}/maps").read_text() for child in children]
    assert any(first.removeprefix("-XX:SharedArchiveFile=") in mapped for mapped in maps)


def test_a_jar_that_was_fetched_again_gets_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes none that was made with the former one."""
    monkeypatch.setattr("sys.executable", "/bin/false")  # the archives stay empty
    jar = tmp_path / "some.jar"
    for mtime_s in (1, 1, 2):
        jar.touch()
        os.utime(jar, (mtime_s, mtime_s))
        archive_options(find_java(), [jar], tmp_path)
    assert len(list(tmp_path.glob("classes-*.jsa"))) == 2


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
