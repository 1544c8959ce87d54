"""``holdfast query``: rows from the tables, for people and for pipes."""

import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, partial
from math import isfinite
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cloud import BadQuery, NoTables, OpenTables, Result, SparkMissing, has_tables, view_names
from tools.cli.columns import printable
from tools.cli.failure import fail, failing_on
from tools.cli.paths import cache_directory, demo_directory, state_directory
from tools.cli.tables.folders import TablesFolder, without_options
from tools.cli.tables.interval import parse_interval

_PIPE_WIDTH = 100_000
_PLOT_COLUMNS, _PLOT_LINES = 100, 20
_BELOW_A_PLOT = 3  # its key, and the prompt of the shell
_DEVICES = """
    SELECT origin, count(*) AS readings, min(event_time) AS first, max(event_time) AS last
    FROM readings GROUP BY origin ORDER BY origin"""
Ask: TypeAlias = Callable[[str], Result]


def query(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="A query in SQL. Without it, the tables and devices are listed."),
    ] = None,
    tables: TablesFolder = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array with one object for each row.")] = False,
    as_plot: Annotated[bool, typer.Option("--plot", help="Draw a chart of the first column and the numbers.")] = False,
    with_files: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME=FILE", help="A CSV or Parquet file as a table; may be given again."),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="INTERVAL", parser=parse_interval, help="Ask again each INTERVAL, such as 5s, until Ctrl-C."
        ),
    ] = None,
    by_spark: Annotated[bool, typer.Option("--spark", help="Let Spark answer, in Spark SQL, and not DuckDB.")] = False,
) -> None:
    """Print the rows that a query selects from the tables. Nothing is changed: statements that write are refused."""
    folder = tables or _default_tables()
    if as_csv + as_json + as_plot > 1:
        fail("query", "--csv, --json and --plot exclude each other")
    if (as_csv or as_plot) and sql is None:
        fail("query", "--csv and --plot need SQL")
    beside = _parse_files(with_files or [])
    if beside and by_spark:
        fail("query", "--with is for DuckDB, and not for --spark")
    with failing_on(OSError, command="query"):
        if not has_tables(folder):
            fail(
                "query",
                f"no tables in {without_options(folder)}; `holdfast demo` and `holdfast cloud ingest` make some",
            )
    show = _print_csv if as_csv else _print_json if as_json else _print_plot if as_plot else _print_rows
    while True:
        with (
            failing_on(BadQuery, NoTables, SparkMissing, OSError, command="query"),
            _engine(folder, by_spark, beside) as ask,
        ):
            answers = [_count_rows(ask), ask(_DEVICES)] if sql is None else [ask(sql)]
        if watch and sys.stdout.isatty():
            Console().clear()
        if sql is None:
            _print_overview(answers[0], answers[1], as_json)
        else:
            show(answers[0])
        if watch is None:
            return
        sys.stdout.flush()
        time.sleep(watch)


@contextmanager
def _engine(folder: Path | str, by_spark: bool, beside: dict[str, Path]) -> Iterator[Ask]:
    """Gives a function that returns the rows of a query."""
    if by_spark:
        yield _spark(folder)
    else:
        with OpenTables(folder, beside) as tables:
            yield tables.select


def _spark(folder: Path | str) -> Ask:
    """Returns a function that has Spark answer. A statement that does more than read is refused before Spark looks at
    the tables, which takes it some seconds.
    """
    # pyspark takes longer to import than DuckDB to answer.
    from cloud import check_reads_only, open_session, open_views, select

    session = open_session(cache_directory(), s3=str(folder).startswith("s3://"))
    open_once = cache(partial(open_views, session, folder))

    def ask(sql: str) -> Result:
        check_reads_only(session, sql)
        open_once()
        return select(session, sql)

    return ask


def _parse_files(texts: list[str]) -> dict[str, Path]:
    """Returns the files of NAME=FILE by their names."""
    files = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not (equals and name and file):
            fail("query", f"--with {text}: it is not NAME=FILE")
        files[name] = Path(file)
    return files


def _count_rows(ask: Ask) -> Result:
    """Returns each table and view with its number of rows."""
    counts = [f"SELECT '{name}' AS name, count(*) AS rows FROM {name}" for name in view_names()]
    return Result(["table", "rows"], ask(" UNION ALL ".join(counts)).rows)


def _default_tables() -> Path:
    """The tables of this machine; if there are none, the last demo's."""
    ours = state_directory() / "tables"
    return ours if has_tables(ours) else demo_directory() / "tables"


def _print_overview(tables: Result, devices: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"tables": _objects(tables), "devices": _objects(devices)}))
    else:
        _print_table(tables)
        _print_table(devices)


def _print_json(result: Result) -> None:
    lines = ",\n ".join(json.dumps(row, allow_nan=False) for row in _objects(result))
    print(f"[{lines}]")


def _print_csv(result: Result) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_plain(value) for value in row] for row in result.rows)


def _print_plot(result: Result) -> None:
    from tools.cli.tables.plot import NoPlot, plot  # plotext would make every query a quarter of a second longer

    width, height = get_terminal_size((_PLOT_COLUMNS, _PLOT_LINES))
    with failing_on(NoPlot, command="query"):
        print(plot(result, width, max(height - _BELOW_A_PLOT, _PLOT_LINES)))


def _print_rows(result: Result) -> None:
    _print_table(result)
    print(f"{len(result.rows)} row{'' if len(result.rows) == 1 else 's'}")


def _print_table(result: Result) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)
    table = Table()
    for number, column in enumerate(result.columns):
        numeric = any(isinstance(row[number], int | float | Decimal) for row in result.rows)
        table.add_column(_cell(column), justify="right" if numeric else "left", overflow="fold")
    for row in result.rows:
        table.add_row(*("" if value is None else _cell(value) for value in row))
    console.print(table)


def _cell(value: object) -> str:
    """A value for the terminal: a device chooses its texts, and is not to command the terminal with them."""
    return escape("\n".join(map(printable, str(_plain(value)).expandtabs().split("\n"))))


def _objects(result: Result) -> list[dict[str, object]]:
    """Rows for JSON, which has neither NaN nor infinities. Ends the command if an object would have a key twice."""
    if twice := [name for name, count in Counter(result.columns).items() if count > 1]:
        fail("query", f"two columns are called {twice[0]!r}, and an object has a key once: name one of them with AS")
    return [dict(zip(result.columns, map(_finite, map(_plain, row)), strict=True)) for row in result.rows]


def _finite(value: object) -> object:
    """Returns a plain value with null in the place of NaN and the infinities."""
    match value:
        case float():
            return value if isfinite(value) else None
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
    return value


def _plain(value: object) -> object:
    """A value for JSON and CSV: times as ISO 8601 in UTC, bytes as text if they are UTF-8."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return float(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return f"0x{value.hex()}"
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
        case date():
            return value.isoformat()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return str(value)
