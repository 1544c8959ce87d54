"""Ends a job after one of its writes."""

from collections.abc import Callable, Iterable

import pytest

from cloud.tables.data_file import DataFile
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, LANDING_FILES, LEDGER, QUARANTINE, READINGS, Table
from cloud.tables.tables import Tables, Transaction
from tests.cloud.lake import Lake

IN_ORDER = (BRONZE_MESSAGES, READINGS, QUARANTINE, BATCHES, LEDGER, LANDING_FILES)


class Cut(Exception):
    """Raised where the job is to end."""


def cut_after(
    table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch, run: Callable[[], object] | None = None
) -> None:
    """Runs the job, or `run`, until a new batch has written that table."""
    latest = max((row["batch"] or 0 for one in IN_ORDER for row in lake.rows(one.name)), default=0)
    append = Tables.append

    def append_and_end(tables: Tables, to: Table, files: Iterable[DataFile], transaction: Transaction | None) -> None:
        append(tables, to, files, transaction)
        if to is table and transaction and transaction.number > latest:
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "append", append_and_end)
        with pytest.raises(Cut):
            (run or lake.ingest)()
