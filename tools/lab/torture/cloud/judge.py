"""Holds tables against the messages of the landing files that they say they have taken in."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cloud.storage.place import open_storage
from cloud.tables.stored_table import StoredTable
from tools.lab.torture.cloud.messages import Key, by_identity

Identity = tuple[str, int, int]


def read(tables: Path | str, table: str) -> list[dict[str, Any]]:
    """Returns the rows of a table by Delta's log and the Parquet files that it names."""
    folder = open_storage(tables).child(table)
    files = (pq.ParquetFile(pa.BufferReader(folder.read(place))) for place in StoredTable(folder).files)
    return [row for file in files for row in file.read().to_pylist()]


def judge(
    tables: Path | str, files: Mapping[str, list[Key]], kinds: Mapping[Key, int | None], is_last: bool
) -> Iterator[str]:
    """Yields a sentence for each thing that is not as promised.

    files: the messages of each landing file. kinds: as a Fleet has them. is_last: all files have been taken in, and all
    that the decoder of one's own knows has been decoded.
    """
    recorded = [row["file"] for row in read(tables, "landing_files") if row["status"] == "ingested"]
    if len(set(recorded)) != len(recorded) or (is_last and set(recorded) != set(files)):
        yield f"{len(recorded)} files are ingested, {len(set(recorded))} different ones of {len(files)}"
    landed = by_identity(key for name in set(recorded) for key in files[name])
    messages = [(_identity(row), row["payload"]) for row in read(tables, "bronze_messages")]
    genuine = dict(messages)
    if len(genuine) != len(messages):
        yield f"{len(messages) - len(genuine)} messages are there twice"
    if missing := landed.keys() - genuine.keys():
        yield f"{len(missing)} messages are missing, one is {min(missing)}"
    if strange := [identity for identity, payload in messages if payload not in landed.get(identity, ())]:
        yield f"{len(strange)} messages did not land, one is {min(strange)}"
    yield from _judge_ledger(tables, set(landed))
    quarantine = read(tables, "quarantine")
    conflicts = Counter((_identity(row), row["payload"]) for row in quarantine if row["kind"] == "conflict")
    expected = Counter((one, each) for one, payloads in landed.items() for each in payloads - {genuine.get(one)})
    if conflicts != expected:
        yield f"conflicts: {(conflicts - expected) + (expected - conflicts)}"
    undecodable = Counter(_identity(row) for row in quarantine if row["kind"] != "conflict")
    readings = Counter((_identity(row), row["record"]) for row in read(tables, "readings"))
    if max(readings.values(), default=1) > 1:
        yield f"readings are there twice: {[one for one, count in readings.items() if count > 1][:3]}"
    records = Counter(identity for identity, _ in readings)
    for identity, payload in messages:
        kind = kinds[Key(*identity, payload)]
        allowed = {None: [(0, 1)], -1: [(1, 0)] if is_last else [(1, 0), (0, 1)]}.get(kind, [(kind or 0, 0)])
        if (records[identity], undecodable[identity]) not in allowed:
            found = f"{records[identity]} readings and {undecodable[identity]} rows in quarantine"
            yield f"{identity} has {found}, its kind is {kind}: {payload[:40]!r}"
    for row in read(tables, "batches"):
        if row["rows_in"] != row["new"] + row["duplicates"] + row["quarantined"]:
            yield f"batch {row['batch']} does not add up"


def _judge_ledger(tables: Path | str, landed: set[Identity]) -> Iterator[str]:
    rows = read(tables, "ledger")
    numbers = [(row["origin"], int(row["epoch"], 16), seq) for row in rows for seq in range(row["lo"], row["hi"] + 1)]
    if len(numbers) != len(set(numbers)) or set(numbers) != landed:
        yield f"the ledger has {len(numbers)} numbers, {len(landed)} have landed"


def _identity(row: dict[str, Any]) -> Identity:
    return row["origin"], int(row["epoch"], 16), row["seq"]
