"""A medium that fails to sync: what it failed for was not stored, and is not in the way of what comes after it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store import MESSAGES
from gateway.store.database import Database
from gateway.store.repair import repair
from gateway.store.sqlite.folder import take_folder
from tests.gateway.store.support import messages_in
from tests.gateway.support import ROOT
from tools.lab import strace


class Store:
    """A store's process, whose syncs fail while ``strace`` is attached to it.

    Args:
        folder: the store's.
    """

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.gateway.store.sqlite.failing_sync", str(folder)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._line() == "open"

    def commit(self, count: int, size: int) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count} {size}\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    try:
        strace.check()
    except strace.StraceUnavailable as error:
        pytest.skip(str(error))
    store = Store(tmp_path)
    yield store
    store.kill()


def commit_in_vain(store: Store, counts: list[int]) -> None:
    command = ["strace", "-p", str(store.process.pid), *strace.tampering_with_syncs("error=EIO")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr is not None
        if "attached" not in (said := tracing.stderr.readline()):
            pytest.skip(said)
        for count in counts:
            assert store.commit(count, 1500) == "disk I/O error"
        tracing.terminate()


@pytest.mark.parametrize("counts", [[40], [40, 20], [20, 40], [1]])
def test_a_kill_behind_commits_whose_sync_failed_loses_nothing(tmp_path: Path, store: Store, counts: list[int]) -> None:
    for _ in range(5):
        assert store.commit(1, 100) == "ok"
    commit_in_vain(store, counts)
    assert store.commit(1, 100) == "ok"
    store.kill()
    with closing(take_folder(tmp_path)) as taken:
        Database(tmp_path / MESSAGES, "gw", taken).close()
    assert [len(message.payload) for _, message in messages_in(tmp_path)] == [100] * 6
    assert repair(tmp_path, "gw", []).damage == []
