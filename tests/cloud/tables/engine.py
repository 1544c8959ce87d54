"""Queries of the same tables and views by different engines."""

from typing import Any

import duckdb
from deltalake import DeltaTable

from cloud import open_views
from cloud.queries.views import VIEWS_FILE
from cloud.tables.schema import LEDGER, TABLES
from tests.cloud.lake import Lake


class Engine:
    """Queries by Spark or by DuckDB."""

    def __init__(self, name: str, lake: Lake) -> None:
        self._lake = lake
        self._duckdb = duckdb.connect() if name == "duckdb" else None
        if self._duckdb is None:
            open_views(lake.spark, lake.folder)
            return
        self._duckdb.execute("SET TimeZone = 'UTC'")
        for table in TABLES:
            name = "ledger_rows" if table is LEDGER else table.name
            self._duckdb.register(name, DeltaTable(lake.folder / table.name).to_pyarrow_table())
        self._duckdb.execute(VIEWS_FILE.read_text())

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found = self._lake.spark.sql(sql).toArrow() if self._duckdb is None else self._duckdb.sql(sql).to_arrow_table()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows
