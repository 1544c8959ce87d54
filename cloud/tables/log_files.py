"""The files of a table's log on a local disk, and what a power cut has cut off of them.

delta-rs refuses a log with such a file. Only names, and whether a file is whole, count here: delta-rs reads the rest.
"""

import re

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cloud.storage.durable_file import sync
from cloud.storage.local import LocalStorage

LAST_CHECKPOINT = "_last_checkpoint"
_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint(\.\d{10}\.\d{10})?\.parquet")


class LogFiles:
    """The files of a log, by their versions."""

    def __init__(self, folder: LocalStorage) -> None:
        self._folder = folder

    def has_empty_commit(self, version: int) -> bool:
        return self._folder.has(commit_name(version)) and not self._folder.size(commit_name(version))

    def commits_behind_checkpoint(self) -> list[int]:
        """Returns the versions of the commits that no checkpoint sums up."""
        checkpoint = max((int(name[:20]) for name in self._checkpoints()), default=-1)
        return [version for version in self._commits() if version > checkpoint]

    def first_cut(self) -> int | None:
        """Returns the version of the first commit that is cut off; None without one."""
        return next((one for one in self._commits() if not self._is_whole(one)), None)

    def mend(self) -> None:
        """Removes what is cut off, where the log goes on without. Raises OSError."""
        self._remove(LAST_CHECKPOINT)  # a hint alone: without it the log is listed
        checkpoints = self._checkpoints()
        unreadable = [name for name in checkpoints if not _is_parquet(self._folder.path(name))]
        if self._folder.has(commit_name(0)) or len(unreadable) < len(checkpoints):
            for name in unreadable:
                self._remove(name)
        if (cut := self.first_cut()) is None:
            return
        behind = [version for version in self._commits() if version > cut]
        if not any(map(self._is_ours, behind)):
            for version in [*reversed(behind), cut]:
                self.remove_commit(version)

    def remove_commit(self, version: int) -> None:
        self._remove(commit_name(version))

    def _remove(self, name: str) -> None:
        self._folder.remove(name)
        sync(self._folder.place)

    def _commits(self) -> list[int]:
        return sorted(int(name[:20]) for name in self._folder.names() if _COMMIT.fullmatch(name))

    def _checkpoints(self) -> list[str]:
        return [name for name in self._folder.names() if _CHECKPOINT.fullmatch(name)]

    def _is_ours(self, version: int) -> bool:
        return b'"holdfast"' in self._folder.read(commit_name(version))

    def _is_whole(self, version: int) -> bool:
        """Whether each line of a commit is JSON, and the first commit describes the table."""
        content = self._folder.read(commit_name(version))
        try:
            for line in content.splitlines():
                msgspec.json.decode(line)
        except msgspec.DecodeError:
            return False
        return bool(content) and (version > 0 or b'"metaData"' in content)


def commit_name(version: int) -> str:
    """Returns the name of a commit's file."""
    return f"{version:020}.json"


def _is_parquet(path: str) -> bool:
    """Whether a file can be read from its beginning to its end."""
    try:
        pq.read_table(path)
    except (pa.ArrowException, OSError):
        return False
    return True
