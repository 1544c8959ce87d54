"""Data files on a full disk: an error that says so, and no file."""

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud.storage.local import LocalStorage
from cloud.tables.data_file import write_rows
from cloud.tables.schema import LEDGER

ROWS = LEDGER.of_values([(f"device-{place}", "00000007", place, place, 1, 1) for place in range(1000)])


@contextmanager
def disk_with(size: int) -> Iterator[None]:
    """Has a write beyond this size fail in each file, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_full_disk_is_an_error_of_the_system_at_each_byte_and_leaves_no_file(tmp_path: Path) -> None:
    folder = LocalStorage(tmp_path)
    whole = write_rows(folder, LEDGER, 1, ROWS).size
    (tmp_path / "whole").mkdir()
    assert write_rows(LocalStorage(tmp_path / "whole"), LEDGER, 1, ROWS).size == whole
    before = sorted(tmp_path.rglob("*"))
    for size in (*range(0, whole, 97), whole - 1):
        with disk_with(size), pytest.raises(OSError, match="File too large") as raised:
            write_rows(folder, LEDGER, 1, ROWS)
        assert Path(raised.value.filename).parent == tmp_path
        gc.collect()  # pyarrow's writers say in their last moment that they could not be closed
    assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]
