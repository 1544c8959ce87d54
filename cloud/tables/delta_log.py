"""The log of a Delta table: what the table holds, and commits that are on the disk before they count.

The job commits small appends many times a day. Here a commit is one JSON file, written, synced and then linked to its
name, which takes milliseconds. Spark, delta-rs and every other engine read the same log.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

import re
import time
import uuid
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from msgspec import structs

from cloud.storage.place import open_storage
from cloud.storage.storage import Storage, StoreError
from cloud.tables import log_checkpoint

LOG_FOLDER = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_VERSION = re.compile(r"\d{20}")
_CHECKPOINT_COMMITS = 50
_ENGINE = "Holdfast"
FENCE = "holdfast-job"
"""The application whose transactions are the generations of jobs that have taken over from another."""
SHA256 = "holdfast.sha256"
TOMBSTONES_MS = 7 * 86_400_000
"""For so long a checkpoint names files that were removed, as Delta does by default."""
LOG_S = 30 * 86_400
"""For so long commits stay, as Delta keeps them by default."""


class JobRunning(Exception):
    """Another job is working on these tables."""


class DataFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Parquet file of the table, relative to its folder. `stats` is JSON: how many rows, and the columns' limits.

    `tags` has the SHA-256 of all its bytes under SHA256, in hexadecimal digits, unless an earlier version or another
    program has written the file.
    """

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    stats: str | None = None
    tags: dict[str, str] | None = None

    @property
    def place(self) -> str:
        """The path with its percent signs decoded."""
        return unquote(self.path)

    @property
    def rows(self) -> int:
        """The number of rows, as the statistics tell it; 0 if they do not."""
        return int(msgspec.json.decode(self.stats).get("numRecords", 0)) if self.stats else 0

    def limits(self, column: str) -> tuple[Any, Any] | None:
        """Returns the lowest and the highest value of a column; None where the file does not tell."""
        stats = msgspec.json.decode(self.stats) if self.stats else {}
        lowest, highest = (stats.get(key, {}).get(column) for key in ("minValues", "maxValues"))
        return None if lowest is None or highest is None else (lowest, highest)

    def full_limits(self) -> dict[str, tuple[Any, Any]]:
        """Returns the lowest and the highest value of each column that has a value in each row."""
        stats = msgspec.json.decode(self.stats) if self.stats else {}
        lowest, highest = stats.get("minValues", {}), stats.get("maxValues", {})
        full = [name for name, nulls in stats.get("nullCount", {}).items() if nulls == 0]
        return {name: (lowest[name], highest[name]) for name in full if name in lowest and name in highest}


class DeltaLog:
    """The log in a table's folder, as far as it was read. `version` is the last commit's; -1 without one."""

    def __init__(self, folder: Path | Storage, *, read_only: bool = False, generation: int | None = None) -> None:
        """Reads the log. Raises OSError, and JobRunning as `commit` does.

        read_only: what a power cut has cut off stays, and is as if it had never been.
        generation: the job's generation, in an object store.
        """
        self.folder = open_storage(folder)
        self._log = self.folder.child(LOG_FOLDER)
        self._read_only = read_only
        self._generation = generation
        self.version = -1
        self.files: dict[str, DataFile] = {}
        self._removed: dict[str, dict[str, Any]] = {}
        self._removed_before: list[pa.ChunkedArray] = []
        self.transactions: dict[str, int] = {}
        self.metadata: dict[str, Any] = {}
        self.protocol: dict[str, Any] = {}
        self.refresh()

    @property
    def reader_version(self) -> int:
        """The version of Delta's protocol that a reader needs."""
        return int(self.protocol.get("minReaderVersion", 1))

    @property
    def removed(self) -> dict[str, dict[str, Any]]:
        """The actions that removed files which the log still names, by the files' places."""
        for action in chain.from_iterable(part.to_pylist(maps_as_pydicts="strict") for part in self._removed_before):
            if (place := unquote(action["path"])) not in self.files:
                self._removed.setdefault(place, action)
        self._removed_before = []
        return self._removed

    def refresh(self) -> None:
        """Reads what was committed since the last look."""
        listed = self._begin() if self.version < 0 else []
        sound = all(map(self._take, self._log.read_all(listed)))
        while sound and (content := self._read(_commit_name(self.version + 1))) is not None:
            sound = self._take(content)
        overtaker = self.transactions.get(FENCE, -1)
        if self._generation is not None and overtaker > self._generation:
            raise JobRunning(f"job {overtaker} has taken over the tables from this one, which was silent for too long")

    def commit(self, actions: Iterable[dict[str, Any]], operation: str) -> None:
        """Adds a commit, which is durable when this returns. Raises OSError.

        If another program commits at the same time, this commit follows that one: it must fit behind any other. Raises
        JobRunning if that was a later job, which has taken over.
        """
        actions = list(actions)
        while not self._create(actions, operation):
            self.refresh()

    def seal(self, digests: Mapping[str, str]) -> int:
        """Notes the SHA-256 of files that have none, by their places, in one commit. Returns of how many.

        A file that another program has removed meanwhile stays removed. Raises as `commit` does.
        """
        while True:
            self.refresh()
            bare = [self.files[place] for place in digests if place in self.files]
            bare = [file for file in bare if SHA256 not in (file.tags or {})]
            sealed = [structs.replace(file, tags={**(file.tags or {}), SHA256: digests[file.place]}) for file in bare]
            if not sealed or self._create([add(file, data_change=False) for file in sealed], "SEAL"):
                return len(sealed)

    def _create(self, actions: list[dict[str, Any]], operation: str) -> bool:
        """Adds the next commit. Returns whether no other program has taken its version. Raises OSError."""
        info = {"timestamp": time.time_ns() // 1_000_000, "operation": operation, "engineInfo": _ENGINE}
        info |= {"operationParameters": {}, "isBlindAppend": False, "txnId": str(uuid.uuid4())}
        content = b"\n".join(map(msgspec.json.encode, [{"commitInfo": info}, *actions])) + b"\n"
        if not self._log.create(_commit_name(self.version + 1), content):
            return False
        for action in actions:
            self._apply(action)
        self.version += 1
        if self.version and self.version % _CHECKPOINT_COMMITS == 0:
            self.write_checkpoint()
        return True

    def write_checkpoint(self) -> None:
        """Sums up the log in a file, and deletes what is older than Delta's retention time. Raises OSError."""
        before_ms = time.time() * 1000 - TOMBSTONES_MS
        actions: list[dict[str, Any]] = [{"protocol": self.protocol}, {"metaData": self.metadata}]
        actions += [{"txn": {"appId": app, "version": version}} for app, version in self.transactions.items()]
        actions += [add(file, data_change=False) for file in self.files.values()]
        actions += [
            {"remove": action} for action in self.removed.values() if (action["deletionTimestamp"] or 0) > before_ms
        ]
        self._log.write(f"{self.version:020}.checkpoint.parquet", log_checkpoint.encode(actions))
        self._log.write(_LAST_CHECKPOINT, msgspec.json.encode({"version": self.version, "size": len(actions)}))
        self._delete_old()

    def _delete_old(self) -> None:
        """Deletes what is before the newest checkpoint that is older than LOG_S: later versions do not need it."""
        found = [(entry, _VERSION.match(entry.name)) for entry in self._log.walk()]
        numbered = [(int(match[0]), entry) for entry, match in found if match]
        before_s = time.time() - LOG_S
        old = [
            version
            for version, entry in numbered
            if entry.modified_s < before_s and _CHECKPOINT_NAME.fullmatch(entry.name)
        ]
        for version, entry in numbered:
            if old and version < max(old):
                self._log.remove(entry.name)

    def _read(self, name: str) -> bytes | None:
        try:
            return self._log.read(name)
        except FileNotFoundError:
            return None

    def _take(self, content: bytes) -> bool:
        """Takes over the next commit. Returns whether it is whole."""
        actions = _parse(content)
        if actions is None:
            # Only the last commit can be cut off: by a power cut before another program synced it.
            if not self._read_only:
                self._log.remove(_commit_name(self.version + 1))
            return False
        for action in actions:
            self._apply(action)
        self.version += 1
        return True

    def _begin(self) -> list[str]:
        """Takes over the newest checkpoint that can be read, and removes corrupt ones. Returns the names of the commits
        behind it that a listing shows."""
        last = self._read(_LAST_CHECKPOINT)
        try:
            hinted = int(msgspec.json.decode(last)["version"]) if last else -1
            names = self._names(after=f"{hinted:020}") if last else self._names()
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            names = self._names()
        checkpoints = _find_checkpoints(names)
        if last and (len(checkpoints) != 1 or not self._take_checkpoint(*checkpoints.popitem())):
            names = self._names()
            self._take_newest(_find_checkpoints(names))
        elif not last:
            self._take_newest(checkpoints)
        commits = set(names)
        version = self.version
        while _commit_name(version + 1) in commits:
            version += 1
        return [_commit_name(number) for number in range(self.version + 1, version + 1)]

    def _take_newest(self, checkpoints: dict[int, list[str]]) -> None:
        for version, parts in sorted(checkpoints.items(), reverse=True):
            if self._take_checkpoint(version, parts):
                return
            if not (self._log.has(_commit_name(0)) or min(checkpoints) < version):
                raise OSError(f"{self._log}: {parts[0]}, the only checkpoint of the log, cannot be read")
            if not self._read_only:
                for name in (*parts, _LAST_CHECKPOINT):
                    self._log.remove(name)

    def _take_checkpoint(self, version: int, parts: list[str]) -> bool:
        """Takes over a checkpoint. Returns whether it can be read."""
        try:
            found = [log_checkpoint.parse(self._log.read(part)) for part in parts]
        except StoreError:
            raise
        except (pa.ArrowException, KeyError, OSError):
            return False
        for actions, removed in found:
            for action in actions:
                self._apply(action)
            self._removed_before.append(removed)
        self.version = version
        return True

    def _names(self, after: str = "") -> list[str]:
        try:
            return self._log.names(after)
        except FileNotFoundError:
            return []

    def _apply(self, action: dict[str, Any]) -> None:
        if add := action.get("add"):
            file = DataFile(
                add["path"],
                add["partitionValues"],
                add["size"],
                add["modificationTime"],
                add.get("stats"),
                add.get("tags"),
            )
            self.files[file.place] = file
            self._removed.pop(file.place, None)
        elif remove := action.get("remove"):
            self.files.pop(unquote(remove["path"]), None)
            self._removed[unquote(remove["path"])] = remove
        elif txn := action.get("txn"):
            self.transactions[txn["appId"]] = txn["version"]
        elif metadata := action.get("metaData"):
            self.metadata = metadata
        elif protocol := action.get("protocol"):
            self.protocol = protocol


def add(file: DataFile, data_change: bool = True) -> dict[str, Any]:
    """Returns the action that adds a file. `data_change` is false if it only holds rows of removed files."""
    return {"add": {**msgspec.to_builtins(file), "dataChange": data_change}}


def remove(file: DataFile, data_change: bool = True) -> dict[str, Any]:
    """Returns the action that removes a file."""
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": time.time_ns() // 1_000_000,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": file.partition_values,
            "size": file.size,
        }
    }


def transaction(app_id: str, version: int) -> dict[str, Any]:
    """Returns the action by which a repeated append is recognised."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": time.time_ns() // 1_000_000}}


def _commit_name(version: int) -> str:
    return f"{version:020}.json"


def _find_checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """Returns the files of each checkpoint by its version."""
    found: dict[int, list[str]] = {}
    for name in sorted(names):
        if match := _CHECKPOINT_NAME.fullmatch(name):
            found.setdefault(int(match[1]), []).append(name)
    return found


def _parse(content: bytes) -> list[dict[str, Any]] | None:
    """Returns the actions of a commit; None if it is cut off."""
    try:
        actions = [msgspec.json.decode(line) for line in content.splitlines()]
    except msgspec.DecodeError:
        return None
    return actions or None
