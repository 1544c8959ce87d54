"""The views over the tables: their SQL is in views.sql, in the words that Spark SQL and DuckDB share."""

import re
from pathlib import Path

from cloud.tables.schema import LEDGER, TABLES, Table

VIEWS_FILE = Path(__file__).with_name("views.sql")
_VIEW = re.compile(r"^CREATE OR REPLACE VIEW (\w+) AS\n(.*?);$", re.MULTILINE | re.DOTALL)


def name_in_sql(table: Table) -> str:
    """Returns the name that a table has in SQL: `ledger` is the view that merges the intervals of the table."""
    return "ledger_rows" if table is LEDGER else table.name


def views() -> dict[str, str]:
    """Returns the query of each view by its name; a view comes before the views that build on it."""
    return dict(_VIEW.findall(VIEWS_FILE.read_text()))


def view_names() -> list[str]:
    """Returns the names of all tables and views that a query may use, without `ledger_rows`."""
    return [*dict.fromkeys([*(table.name for table in TABLES), *views()])]
