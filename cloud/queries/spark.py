"""SQL over the tables and views in a Spark session."""

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cloud.queries.result import BadQuery, Result, collect, first_line
from cloud.queries.views import name_in_sql, view_names, views
from cloud.spark.java import SparkMissing
from cloud.storage.place import is_url
from cloud.storage.storage import StoreError
from cloud.tables.schema import TABLES, Table
from cloud.tables.tables import TableFolder, require_tables

# Rules of the grammar of Spark's parser: the first is SELECT, WITH, VALUES, TABLE and FROM, the others are DESCRIBE.
_READING = {"StatementDefaultContext", "DescribeRelationContext", "DescribeQueryContext"}
_EXPLAIN = "ExplainContext"
_CALLING_JAVA = ("reflect", "java_method", "try_reflect")


def open_views(spark: SparkSession, folder: Path | str) -> list[str]:
    """Makes the tables in `folder` views of the session, and returns the names of all views.

    Raises NoTables, SparkMissing in a session without Delta Lake, and OSError for a URL: Spark itself reads tables in
    local folders alone.
    """
    require_tables(folder)
    tables = TableFolder(folder)
    try:
        for table in TABLES:
            # Delta would change the table by a plain view of it. It refuses a view with a condition.
            rows = _rows(spark, tables, table).where(sf.lit(True))
            rows.createOrReplaceTempView(name_in_sql(table))
    except Py4JJavaError as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise SparkMissing("this Spark session has no Delta Lake; cloud.open_session() starts one that has") from None
    for name, sql in views().items():
        spark.sql(sql).createOrReplaceTempView(name)
    return view_names()


def _rows(spark: SparkSession, tables: TableFolder, table: Table) -> DataFrame:
    """Returns the table's rows, and an empty frame when it does not exist yet."""
    if is_url(str(tables.folder)):
        raise StoreError(f"{tables.storage}: Spark itself reads tables in local folders alone")
    if not tables.exists(table):
        return spark.createDataFrame([], table.sql_columns)
    return spark.read.format("delta").load(tables.of(table).path(""))


def select(spark: SparkSession, sql: str) -> Result:
    """Returns the rows of a statement that only reads. Raises BadQuery for any other one, which is not carried out."""
    check_reads_only(spark, sql)
    try:
        return collect(spark.sql(sql).toArrow())  # collect() turns timestamps into the local time of this machine
    except PySparkException as error:
        raise BadQuery(first_line(error)) from None


def check_reads_only(spark: SparkSession, sql: str) -> None:
    """Raises BadQuery unless the SQL only reads, by the rules of Spark's own grammar. No view has to be open."""
    try:
        _check(spark, sql)
    except PySparkException as error:
        raise BadQuery(first_line(error)) from None


def _check(spark: SparkSession, sql: str) -> None:
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
