"""Reads the tables as another engine does, and checks them against the landed rows."""

import json
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from cloud.job.run import Report, ingest
from cloud.landing.file import Row
from cloud.transforms.senml import NotSenml, resolve

Identity = tuple[str, int, int]
Content = tuple[str, bytes]


class Lake(NamedTuple):
    """A landing folder and its tables."""

    spark: SparkSession
    landing: Path
    folder: Path

    def ingest(self) -> Report:
        return ingest(self.spark, self.landing, self.folder)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Returns the rows of a table by Delta's log and the Parquet files that it names."""
        files: dict[str, dict[str, str]] = {}
        for action in self._log(name):
            if add := action.get("add"):
                files[unquote(add["path"])] = dict(add["partitionValues"])
            elif remove := action.get("remove"):
                files.pop(unquote(remove["path"]), None)
        return [
            {**row, **{column: date.fromisoformat(value) for column, value in partition.items()}}
            for path, partition in files.items()
            for row in pq.ParquetFile(self.folder / name / path).read().to_pylist()
        ]

    def _log(self, name: str) -> Iterator[dict[str, Any]]:
        """Yields the actions of the last checkpoint of the table's log, and of the commits after it."""
        log = self.folder / name / "_delta_log"
        version = -1
        if (last := log / "_last_checkpoint").exists():
            version = json.loads(last.read_text())["version"]
            checkpoint = pq.ParquetFile(log / f"{version:020}.checkpoint.parquet")
            yield from checkpoint.read(["add", "remove"]).to_pylist()
        for commit in sorted(log.glob("[0-9]*.json")):
            if int(commit.stem) > version:
                yield from map(json.loads, commit.read_text().splitlines())

    def check(self, landed: Iterable[Row]) -> None:
        """Asserts that the tables hold each message once. `landed` are all rows that ever landed, in order."""
        genuine: dict[Identity, Content] = {}
        conflicts: set[tuple[Identity, Content]] = set()
        for row in landed:
            identity = row.origin, row.epoch, row.seq
            content = content_of(row)
            if genuine.setdefault(identity, content) != content:
                conflicts.add((identity, content))
        bronze = [(_identity(row), (row["topic"], row["payload"])) for row in self.rows("bronze_messages")]
        assert sorted(bronze) == sorted(genuine.items())
        resolved = {identity: _resolve(payload) for identity, (_, payload) in genuine.items()}
        readings = [(_identity(row), row["record"]) for row in self.rows("readings")]
        assert sorted(readings) == sorted(
            (identity, number) for identity, count in resolved.items() for number in range(count or 0)
        )
        quarantine = sorted(
            (row["kind"], _identity(row), (row["topic"], row["payload"])) for row in self.rows("quarantine")
        )
        undecodable = [("undecodable", one, genuine[one]) for one, count in resolved.items() if count is None]
        assert quarantine == sorted([*undecodable, *(("conflict", *conflict) for conflict in conflicts)])
        self._check_ledger(genuine)
        self._check_batches(len(genuine), len(undecodable), len(conflicts))

    def _check_ledger(self, genuine: Iterable[Identity]) -> None:
        """Asserts that each arrived number is in one interval, and no other number is."""
        spans = self.rows("ledger")
        numbers = [
            (row["origin"], int(row["epoch"], 16), seq) for row in spans for seq in range(row["lo"], row["hi"] + 1)
        ]
        assert sorted(numbers) == sorted(genuine)

    def _check_batches(self, messages: int, undecodable: int, conflicts: int) -> None:
        batches = self.rows("batches")
        files = [row for row in self.rows("landing_files") if row["status"] == "ingested"]
        for batch in batches:
            assert batch["rows_in"] == batch["new"] + batch["duplicates"] + batch["quarantined"]
            taken = [file["rows"] for file in files if file["batch"] == batch["batch"]]
            # Empty when the batch ended just before, and its checkpoint was lost: a later batch took its files again.
            assert taken == [] or sum(taken) == batch["rows_in"]
        assert len({batch["batch"] for batch in batches}) == len(batches)
        assert len({file["file"] for file in files}) == len(files)
        assert sum(batch["new"] + batch["undecodable"] for batch in batches) == messages
        assert sum(batch["undecodable"] for batch in batches) == undecodable
        assert sum(batch["conflicts"] for batch in batches) == conflicts


def commit_by_another(table: Path, *actions: dict[str, Any]) -> None:
    """Adds a commit to the log of a table, as another program does."""
    log = table / "_delta_log"
    version = 1 + max(int(path.stem) for path in log.glob("[0-9]*.json"))
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def description_of(table: Path) -> dict[str, Any]:
    """Returns the action that describes a table, in its first commit."""
    actions = map(json.loads, (table / "_delta_log" / f"{0:020}.json").read_text().splitlines())
    return next(action for action in actions if "metaData" in action)


def content_of(row: Row) -> Content:
    """Returns what is the same where a message comes again."""
    return row.topic, row.payload


def _identity(row: dict[str, Any]) -> Identity:
    return row["origin"], int(row["epoch"], 16), row["seq"]


def _resolve(payload: bytes) -> int | None:
    try:
        return len(resolve(payload))
    except NotSenml:
        return None
