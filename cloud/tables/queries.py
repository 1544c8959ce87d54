"""The tables as SQL views: docs/reference/tables.md lists them with their columns."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cloud.tables import JOB_LOCK, LEDGER, TABLES, Tables
from cloud.transforms.utc import ANCHORS, TIMELINE

_LEDGER_ROWS = "ledger_rows"
# By the grammar of Spark's own parser: SELECT, WITH, VALUES, TABLE and FROM; and two that describe.
_READING = {"StatementDefaultContext", "DescribeRelationContext", "DescribeQueryContext"}
_EXPLAIN = "ExplainContext"
_CALLING_JAVA = ("reflect", "java_method", "try_reflect")
_VIEWS = {
    # What arrived, as few intervals as there can be: a new one begins where nothing before reaches.
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
    "gaps": """
        SELECT origin, epoch, hi + 1 AS lo, following - 1 AS hi, following - hi - 1 AS missing
        FROM (SELECT *, lead(lo) OVER (PARTITION BY origin, epoch ORDER BY lo) AS following FROM ledger)
        WHERE following IS NOT NULL""",
    "completeness": """
        SELECT origin, epoch, min(lo) AS first, max(hi) AS last, sum(hi - lo + 1) AS arrived,
            max(hi) - min(lo) + 1 - sum(hi - lo + 1) AS missing,
            sum(hi - lo + 1) / (max(hi) - min(lo) + 1) AS share
        FROM ledger GROUP BY origin, epoch""",
    "anchors": ANCHORS,
    "timeline": TIMELINE,
}
_DEVICES = """
    SELECT origin, count(*) AS readings, min(time) AS first, max(time) AS last
    FROM readings GROUP BY origin ORDER BY origin"""


class NoTables(Exception):
    """There are no tables in the folder."""


class BadQuery(Exception):
    """The SQL is not one statement that only reads, or Spark does not accept it; the text is one line that says why."""


class Result(NamedTuple):
    """Column names, and rows of plain Python values; times are in UTC."""

    columns: list[str]
    rows: list[tuple[object, ...]]


def open_views(spark: SparkSession, folder: Path) -> list[str]:
    """Makes the tables in `folder` views of the session; returns their names. Raises NoTables."""
    if not has_tables(folder):
        raise NoTables(f"there are no tables in {folder}")
    tables = Tables(spark, folder.absolute())
    for table in TABLES:
        # Delta deletes from, updates and merges into a view of a table alone; of a table with a condition it does not.
        rows = tables.read(table).where(sf.lit(True))
        rows.createOrReplaceTempView(_LEDGER_ROWS if table is LEDGER else table.name)
    for name, sql in _VIEWS.items():
        spark.sql(sql).createOrReplaceTempView(name)
    return [*dict.fromkeys([*(table.name for table in TABLES), *_VIEWS])]


def has_tables(folder: Path) -> bool:
    """Whether a job has worked there, though it may have had nothing to write yet; needs no Spark."""
    return (folder / JOB_LOCK).exists() or any((folder / table.name / "_delta_log").is_dir() for table in TABLES)


def select(spark: SparkSession, sql: str) -> Result:
    """What a statement that only reads gives. Raises BadQuery for any other, and nothing of it is carried out."""
    try:
        _check_reads_only(spark, sql)
        return _collect(spark.sql(sql))
    except PySparkException as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise BadQuery(text[0]) from None


def _check_reads_only(spark: SparkSession, sql: str) -> None:
    """Raises BadQuery, or what Spark's parser raises. Its grammar has one rule for all queries, and only for them."""
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
    """Each view with its number of rows."""
    return select(
        spark, " UNION ALL ".join(f"SELECT '{name}' AS table, count(*) AS rows FROM {name}" for name in views)
    )


def list_devices(spark: SparkSession) -> Result:
    """Each origin with its readings and the time of its first and last one."""
    return select(spark, _DEVICES)


def _collect(frame: DataFrame) -> Result:
    # By Arrow, because collect() turns timestamps into the local time of this machine, without saying so.
    arrow: pa.Table = frame.toArrow()
    columns = [column.to_pylist() for column in arrow.columns]
    return Result(arrow.column_names, list(zip(*columns, strict=True)) if columns else [])
