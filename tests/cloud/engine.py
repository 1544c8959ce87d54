"""Queries of the same tables and views by different engines."""

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from cloud import open_views
from cloud.queries.views import VIEWS_FILE, name_in_sql
from cloud.tables.schema import TABLES
from tests.cloud.lake import Lake


def open_duckdb(folder: Path) -> duckdb.DuckDBPyConnection:
    """Returns a DuckDB that has the tables as delta-rs reads them, and the views."""
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        engine.register(name_in_sql(table), DeltaTable(folder / table.name).to_pyarrow_table())
    engine.execute(VIEWS_FILE.read_text())
    return engine


class Engine:
    """Queries by Spark or by DuckDB."""

    def __init__(self, name: str, lake: Lake) -> None:
        self._lake = lake
        self._duckdb = open_duckdb(lake.folder) if name == "duckdb" else None
        if self._duckdb is None:
            open_views(lake.spark, lake.folder)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found = self._lake.spark.sql(sql).toArrow() if self._duckdb is None else self._duckdb.sql(sql).to_arrow_table()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows
