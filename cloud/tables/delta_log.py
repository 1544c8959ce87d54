"""The log of a Delta table: what the table holds, and commits that are on the disk before they count.

The job commits small appends many times a day. Here a commit is one JSON file, written, synced and then linked to its
name, which takes milliseconds. Spark, delta-rs and every other engine read the same log.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cloud.storage.durable_file import hidden_name, sync, write_synced

LOG_FOLDER = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_ENGINE = "Holdfast"


class DataFile(msgspec.Struct, frozen=True, rename="camel"):
    """A Parquet file of the table, relative to its folder. `stats` is JSON: how many rows, and the columns' limits."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    stats: str | None = None

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
    """The log in a table's folder, as far as it was read. `version` is that of the last commit; -1 without one."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        """Reads the log. Raises OSError.

        read_only: what a power cut has cut off stays, and is as if it had never been.
        """
        self.folder = folder
        self._log = folder / LOG_FOLDER
        self._read_only = read_only
        self.version = -1
        self.files: dict[str, DataFile] = {}
        self.removed: dict[str, int] = {}
        """When each file was removed that the log still names (Unix time, ms)."""
        self.transactions: dict[str, int] = {}
        self.metadata: dict[str, Any] = {}
        self.reader_version = 1
        self.refresh()

    def refresh(self) -> None:
        """Reads what was committed since the last look."""
        if self.version < 0:
            self._read_checkpoint()
        while (path := self._commit_path(self.version + 1)).exists():
            actions = _parse(path.read_bytes())
            if actions is None:
                # Only the last commit can be cut off: by a power cut before another program synced it.
                if not self._read_only:
                    path.unlink()
                    sync(self._log)
                break
            for action in actions:
                self._apply(action)
            self.version += 1

    def commit(self, actions: Iterable[dict[str, Any]], operation: str) -> None:
        """Adds a commit, which is on the disk when this returns. Raises OSError.

        If another program commits at the same time, this commit follows that one: it must fit behind any other.
        """
        actions = list(actions)
        info = {"timestamp": time.time_ns() // 1_000_000, "operation": operation, "engineInfo": _ENGINE}
        lines = [{"commitInfo": {**info, "operationParameters": {}, "isBlindAppend": False}}, *actions]
        content = b"\n".join(map(msgspec.json.encode, lines)) + b"\n"
        self._log.mkdir(parents=True, exist_ok=True)
        while not self._link(self._commit_path(self.version + 1), content):
            self.refresh()
        for action in actions:
            self._apply(action)
        self.version += 1

    def sync_last(self) -> None:
        """Syncs what another program wrote with the last commit: its data files, checksum and checkpoint."""
        self.refresh()
        if self.version < 0:
            return
        paths = [path for path in self._log.glob(f"{self.version:020}.*") if path.is_file()]
        paths += [path for path in [self._log / _LAST_CHECKPOINT] if path.exists()]
        commit = self._commit_path(self.version)
        if commit.exists():
            added = [action["add"] for action in _parse(commit.read_bytes()) or [] if "add" in action]
            paths += [self.folder / unquote(add["path"]) for add in added]
        for path in paths:
            sync(path)
        for folder in {path.parent for path in paths} | {self.folder, self.folder.parent}:
            sync(folder)

    def _link(self, path: Path, content: bytes) -> bool:
        """Puts a file on the disk under its name; returns False if the name is taken."""
        hidden = hidden_name(path)
        try:
            write_synced(hidden, content)
            os.link(hidden, path)
        except FileExistsError:
            return False
        finally:
            hidden.unlink(missing_ok=True)
        sync(self._log)
        if self.version < 0:
            sync(self.folder)
            sync(self.folder.parent)
        return True

    def _commit_path(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _read_checkpoint(self) -> None:
        """Takes over the newest checkpoint that can be read, if there is one, and removes corrupt ones."""
        found: dict[int, list[Path]] = {}
        for path in self._log.glob("*.checkpoint*.parquet"):
            if match := _CHECKPOINT_NAME.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        for version, parts in sorted(found.items(), reverse=True):
            try:
                tables = [pq.read_table(path) for path in parts]
            except (pa.ArrowException, OSError):
                if not (self._commit_path(0).exists() or min(found) < version):
                    raise
                if not self._read_only:
                    for path in parts:
                        path.unlink()
                    (self._log / _LAST_CHECKPOINT).unlink(missing_ok=True)
                    sync(self._log)
                continue
            for row in (row for table in tables for row in table.to_pylist(maps_as_pydicts="strict")):
                self._apply({name: action for name, action in row.items() if action is not None})
            self.version = version
            return

    def _apply(self, action: dict[str, Any]) -> None:
        if add := action.get("add"):
            file = DataFile(add["path"], add["partitionValues"], add["size"], add["modificationTime"], add.get("stats"))
            self.files[file.place] = file
            self.removed.pop(file.place, None)
        elif remove := action.get("remove"):
            self.files.pop(unquote(remove["path"]), None)
            self.removed[unquote(remove["path"])] = remove.get("deletionTimestamp") or 0
        elif txn := action.get("txn"):
            self.transactions[txn["appId"]] = txn["version"]
        elif metadata := action.get("metaData"):
            self.metadata = metadata
        elif protocol := action.get("protocol"):
            self.reader_version = protocol["minReaderVersion"]


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


def _parse(content: bytes) -> list[dict[str, Any]] | None:
    """Returns the actions of a commit; None if it is cut off."""
    try:
        actions = [msgspec.json.decode(line) for line in content.splitlines()]
    except msgspec.DecodeError:
        return None
    return actions or None
