"""The tables and views of what landed, in DuckDB: by the job's own code, without Spark, files and Delta."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from cloud.job.links import find_links
from cloud.landing.file import Row, join
from cloud.landing.intervals import merge
from cloud.queries.views import VIEWS_FILE, name_in_sql
from cloud.tables.schema import CROSSINGS, LEDGER, LINKS, STATEMENT_TABLES, TABLES
from cloud.transforms.statements import find_statements, read_statements
from tools.lab.torture.proof.history import Stream

BATCH = 1


def open_tables(rows: Sequence[Row], views: str = "") -> duckdb.DuckDBPyConnection:
    """Returns a DuckDB with the tables that the job makes of landed messages, but for their readings, and the views.

    Args:
        rows: the messages.
        views: the SQL of the views, if it is not that of ``views.sql``.
    """
    landed = join(rows)
    links, crossings = find_links(landed, BATCH)
    stated = read_statements(landed, find_statements(landed), BATCH)
    if stated.problems:
        raise ValueError(f"a statement is not believed: {next(iter(stated.problems.values()))}")
    filled: dict[str, pa.Table] = {LINKS.name: links, CROSSINGS.name: crossings}
    for table in STATEMENT_TABLES:
        if found := stated.rows[table.name]:
            filled[table.name] = table.of_values(found)
    filled[LEDGER.name] = LEDGER.of_values(_intervals(rows))
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        engine.register(name_in_sql(table), filled.get(table.name, table.empty()))
    engine.execute(views or VIEWS_FILE.read_text())
    return engine


def gaps_in(engine: duckdb.DuckDBPyConnection) -> dict[Stream, list[tuple[int, int]]]:
    """Returns the gaps of each origin's epoch."""
    found: dict[Stream, list[tuple[int, int]]] = defaultdict(list)
    for origin, epoch, lo, hi in engine.execute("SELECT origin, epoch, lo, hi FROM gaps ORDER BY ALL").fetchall():
        found[origin, int(epoch, 16)].append((lo, hi))
    return found


def verdicts_in(engine: duckdb.DuckDBPyConnection) -> dict[str, set[tuple[Any, ...]]]:
    """Returns what the views say of each origin: its gaps with their reasons, its completeness, what was left out."""
    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for view in ("gaps", "completeness", "left_out"):
        for origin, *verdict in engine.execute(f"SELECT * FROM {view}").fetchall():
            found[origin].add((view, *verdict))
    return found


def _intervals(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    seqs: dict[Stream, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        seqs[row.origin, row.epoch].append((row.seq, row.seq))
    return [
        (origin, f"{epoch:08x}", lo, hi, BATCH, BATCH)
        for (origin, epoch), some in seqs.items()
        for lo, hi in merge(some)
    ]
