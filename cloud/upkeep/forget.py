"""Forgets a device: deletes its messages and readings. The ledger keeps the numbers, so that nothing comes again."""

from collections import defaultdict
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing import intervals
from cloud.landing.intervals import Interval
from cloud.landing.manifest import list_intervals
from cloud.tables.data_file import DataFile
from cloud.tables.schema import BRONZE_MESSAGES, FORGOTTEN, QUARANTINE, READINGS, Table
from cloud.tables.tables import Tables
from cloud.transforms.rows import read_epochs, write_epochs
from cloud.transforms.verdicts.classify import IDENTITY, Known, Suspect, find_within


def forget(tables: Tables, device: str) -> int:
    """Deletes the messages that have a reading of the device, or have it as their origin. Returns how many.

    It may be killed at any time, and carried out again.
    """
    is_its_own = (pc.field("device") == device) | (pc.field("origin") == device)
    found = [tables.rows(READINGS, IDENTITY, is_its_own)]
    found += [tables.rows(table, IDENTITY, pc.field("origin") == device) for table in (BRONZE_MESSAGES, QUARANTINE)]
    listed = list_intervals(with_numbers(pa.concat_tables(found)))
    if not listed:
        return 0
    _note(tables, listed)
    # The readings last: they name the messages.
    forgotten = [delete(tables, table, listed) for table in (BRONZE_MESSAGES, QUARANTINE, READINGS)]
    return forgotten[0]


def read_forgotten(tables: Tables) -> Known:
    """Returns the intervals of the messages that were forgotten, for each stream."""
    rows = tables.rows(FORGOTTEN, ["origin", "epoch", "lo", "hi"])
    spans: dict[tuple[str, int], list[Interval]] = defaultdict(list)
    for origin, epoch, lo, hi in zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True):
        spans[origin, int(epoch, 16)].append((lo, hi))
    return {stream: intervals.merge(some) for stream, some in spans.items()}


def forget_again(tables: Tables, forgotten: Known) -> None:
    """Deletes from tables that were made anew what was forgotten before."""
    listed = [(*stream, lo, hi) for stream, spans in sorted(forgotten.items()) for lo, hi in spans]
    if listed:
        _note(tables, listed)
        for table in (BRONZE_MESSAGES, QUARANTINE, READINGS):
            delete(tables, table, listed)


def with_numbers(rows: pa.Table) -> pa.Table:
    """Returns rows of a table with their epochs as numbers."""
    return read_epochs(rows)


def delete(tables: Tables, table: Table, listed: list[tuple[str, int, int, int]]) -> int:
    """Deletes the rows of these intervals (origin, epoch, lo, hi). Returns how many."""
    suspects = [Suspect(*one, known=True) for one in listed]
    origins = {origin for origin, *_ in listed}

    def is_listed(rows: pa.Table) -> pa.Array:
        return pa.array(find_within(with_numbers(rows), suspects) >= 0)

    def may_hold(file: DataFile) -> bool:
        limits = file.limits("origin")
        return limits is None or any(limits[0] <= origin <= limits[1] for origin in origins)

    return tables.delete(table, IDENTITY, is_listed, may_hold)


def _note(tables: Tables, listed: list[tuple[str, int, int, int]]) -> None:
    now = datetime.now(UTC)
    epochs = write_epochs(pa.array([epoch for _, epoch, *_ in listed], pa.int64())).to_pylist()
    rows = [(origin, epoch, lo, hi, now) for (origin, _, lo, hi), epoch in zip(listed, epochs, strict=True)]
    tables.append_values(FORGOTTEN, rows, None)
