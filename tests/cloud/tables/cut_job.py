"""Cutting a job off after one of its writes."""

import pytest
from pyspark.sql import DataFrame

from cloud.tables import (
    BATCHES,
    BRONZE_MESSAGES,
    LANDING_FILES,
    LEDGER,
    QUARANTINE,
    READINGS,
    Table,
    Tables,
    Transaction,
)
from tests.cloud.lake import Lake

IN_ORDER = (BRONZE_MESSAGES, READINGS, QUARANTINE, BATCHES, LEDGER, LANDING_FILES)


class Cut(Exception):
    """The job ends here."""


def cut_after(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the job until a new batch has written that table."""
    latest = max(Tables(lake.spark, lake.folder).last_batch(one) for one in IN_ORDER)
    append = Tables.append

    def append_and_end(tables: Tables, to: Table, rows: DataFrame, transaction: Transaction | None) -> None:
        append(tables, to, rows, transaction)
        if to is table and transaction and transaction.number > latest:
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "append", append_and_end)
        with pytest.raises(Cut):
            lake.ingest()
