"""SQL over the tables and views: docs/reference/tables.md lists them with their columns."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cloud.tables.schema import LEDGER, TABLES
from cloud.tables.tables import Tables, has_tables

_LEDGER_ROWS = "ledger_rows"
# Rules of the grammar of Spark's parser: the first is SELECT, WITH, VALUES, TABLE and FROM, the others are DESCRIBE.
_READING = {"StatementDefaultContext", "DescribeRelationContext", "DescribeQueryContext"}
_EXPLAIN = "ExplainContext"
_CALLING_JAVA = ("reflect", "java_method", "try_reflect")
ANCHORS = """
    SELECT origin, epoch, device, boot_id, uptime_ms, time, source, error_s,
        lag(uptime_ms) OVER boot AS after_ms,
        CASE WHEN lead(uptime_ms) OVER boot IS NULL THEN NULL ELSE uptime_ms END AS until_ms
    FROM (
        SELECT origin, epoch, seq, device, boot_id, max(uptime_ms) AS uptime_ms, max(time) AS time,
            max(value_string) FILTER (WHERE metric = 'clock') AS source,
            max(value) FILTER (WHERE metric = 'clock_error') AS error_s
        FROM readings
        WHERE metric IN ('clock', 'clock_error') AND event_time_by = 'device' AND boot_id IS NOT NULL
        GROUP BY origin, epoch, seq, device, boot_id)
    WHERE source IS NOT NULL
    WINDOW boot AS (PARTITION BY origin, epoch, device, boot_id ORDER BY uptime_ms, seq)"""
"""View `anchors`: the readings by which a device gives UTC to earlier ones.

A device that learns UTC sends a reading `clock`: at this uptime of this boot it was this `time`. All readings of a boot
get UTC by their distance from one of its anchors: the first one after them, where there is one, because the error grows
with the distance, and an anchor after a step of the clock would carry the step back. An anchor serves the uptimes above
`after_ms`, up to `until_ms`; null is no limit. No row of `readings` is changed.
"""

TIMELINE = """
    SELECT readings.*,
        CASE WHEN event_time_by <> 'device' AND anchors.time IS NOT NULL
            THEN anchors.time + make_dt_interval(0, 0, 0, (readings.uptime_ms - anchors.uptime_ms) / 1000)
            ELSE readings.event_time END AS utc,
        CASE WHEN event_time_by <> 'device' AND anchors.time IS NOT NULL THEN 'anchor' ELSE event_time_by END AS utc_by
    FROM readings LEFT JOIN anchors
        ON readings.event_time_by <> 'device'
        AND readings.origin = anchors.origin AND readings.epoch = anchors.epoch
        AND readings.device = anchors.device AND readings.boot_id = anchors.boot_id
        AND (after_ms IS NULL OR readings.uptime_ms > after_ms)
        AND (until_ms IS NULL OR readings.uptime_ms <= until_ms)"""
"""View `timeline`: the readings with `utc`, and `utc_by`: whether the device, an anchor, the gateway or the lander gave
it."""
_VIEWS = {
    # The fewest intervals of the numbers that arrived: one begins where no interval before it reaches.
    "ledger": f"""
        SELECT origin, epoch, min(lo) AS lo, max(hi) AS hi
        FROM (
            SELECT *, sum(CASE WHEN lo <= reached + 1 THEN 0 ELSE 1 END)
                OVER (PARTITION BY origin, epoch ORDER BY lo, hi) AS island
            FROM (
                SELECT *, max(hi) OVER (PARTITION BY origin, epoch ORDER BY lo, hi
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
                FROM {_LEDGER_ROWS}))
        GROUP BY origin, epoch, island""",
    # The numbers of an epoch begin at 1, so what is missing before the first interval is a gap as well.
    "gaps": """
        SELECT origin, epoch, before + 1 AS lo, lo - 1 AS hi, lo - before - 1 AS missing
        FROM (SELECT *, lag(hi, 1, 0) OVER (PARTITION BY origin, epoch ORDER BY lo) AS before FROM ledger)
        WHERE lo > before + 1""",
    "completeness": """
        SELECT origin, epoch, min(lo) AS first, max(hi) AS last, sum(hi - lo + 1) AS arrived,
            greatest(max(hi) - least(min(lo), 1) + 1 - sum(hi - lo + 1), 0) AS missing,
            sum(hi - lo + 1) / (max(hi) - least(min(lo), 1) + 1) AS share
        FROM ledger GROUP BY origin, epoch""",
    "anchors": ANCHORS,
    "timeline": TIMELINE,
}
_DEVICES = """
    SELECT origin, count(*) AS readings, min(event_time) AS first, max(event_time) AS last
    FROM readings GROUP BY origin ORDER BY origin"""


class NoTables(Exception):
    """The folder holds no tables."""


class BadQuery(Exception):
    """The SQL is not one statement that only reads, or Spark refuses it. The text is one line with the reason."""


class Result(NamedTuple):
    """Column names, and rows of plain Python values. Times are in UTC."""

    columns: list[str]
    rows: list[tuple[object, ...]]


def open_views(spark: SparkSession, folder: Path | str) -> list[str]:
    """Makes the tables in `folder` views of the session, and returns the names of all views. Raises NoTables."""
    folder = Path(folder)
    if not has_tables(folder):
        raise NoTables(f"there are no tables in {folder}")
    tables = Tables(spark, folder.absolute())
    for table in TABLES:
        # Delta would delete from, update and merge into a plain view of a table. It refuses a view with a condition.
        rows = tables.read(table).where(sf.lit(True))
        rows.createOrReplaceTempView(_LEDGER_ROWS if table is LEDGER else table.name)
    for name, sql in _VIEWS.items():
        spark.sql(sql).createOrReplaceTempView(name)
    return [*dict.fromkeys([*(table.name for table in TABLES), *_VIEWS])]


def select(spark: SparkSession, sql: str) -> Result:
    """Returns the rows of a statement that only reads. Raises BadQuery for any other one, which is not carried out."""
    try:
        _check_reads_only(spark, sql)
        return _collect(spark.sql(sql))
    except PySparkException as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise BadQuery(text[0]) from None


def _check_reads_only(spark: SparkSession, sql: str) -> None:
    """Raises BadQuery or a PySparkException unless the SQL only reads, by the rules of Spark's own grammar."""
    java: Any = spark._jvm
    session = spark._jsparkSession.sessionState()
    grammar, antlr = java.org.apache.spark.sql.catalyst.parser, java.org.antlr.v4.runtime
    lexer = grammar.SqlBaseLexer(grammar.UpperCaseCharStream(antlr.CharStreams.fromString(sql)))
    parser = grammar.SqlBaseParser(antlr.CommonTokenStream(lexer))
    for part in (lexer, parser):
        part.removeErrorListeners()
    tree = parser.singleStatement()
    if parser.getNumberOfSyntaxErrors():
        session.sqlParser().parsePlan(sql)  # raises, unless it is a script or one of Delta's own statements
        kind = None
    else:
        statement = tree.statement()
        kind = statement and statement.getClass().getSimpleName()
        if kind == _EXPLAIN:
            kind = statement.statement().getClass().getSimpleName()
    if kind not in _READING:
        reading = "SELECT, WITH, VALUES, TABLE, FROM, DESCRIBE, EXPLAIN"
        raise BadQuery(f"{sql.split()[0]} is refused: a query only reads ({reading})")
    if antlr.tree.xpath.XPath.findAll(tree, "//transformClause", parser).size():
        raise BadQuery("TRANSFORM is refused: a query starts no programs")
    builtin, system = java.scala.Option.apply("builtin"), java.scala.Option.apply("system")
    for name in _CALLING_JAVA:
        function = java.org.apache.spark.sql.catalyst.FunctionIdentifier(name, builtin, system)
        session.functionRegistry().dropFunction(function)


def count_rows(spark: SparkSession, views: list[str]) -> Result:
    """Returns each view with its number of rows."""
    return select(
        spark, " UNION ALL ".join(f"SELECT '{name}' AS table, count(*) AS rows FROM {name}" for name in views)
    )


def list_devices(spark: SparkSession) -> Result:
    """Returns each origin with its number of readings and the times of the first and the last."""
    return select(spark, _DEVICES)


def _collect(frame: DataFrame) -> Result:
    # By Arrow, because collect() silently turns timestamps into the local time of this machine.
    arrow: pa.Table = frame.toArrow()
    columns = [column.to_pylist() for column in arrow.columns]
    return Result(arrow.column_names, list(zip(*columns, strict=True)) if columns else [])
