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
from cloud.storage.storage import Storage
from cloud.tables.schema import TABLES, Table
from cloud.tables.tables import TableFolder, require_tables

# Rules of the grammar of Spark's parser: the first is SELECT, WITH, VALUES, TABLE and FROM, the others are DESCRIBE.
_READING = {"StatementDefaultContext", "DescribeRelationContext", "DescribeQueryContext"}
_EXPLAIN = "ExplainContext"
_CALLING_JAVA = ("reflect", "java_method", "try_reflect")


def open_views(spark: SparkSession, folder: Path | str) -> list[str]:
    """Makes the tables in `folder` views of the session, and returns the names of all views.

    Raises NoTables, OSError, and SparkMissing in a session without Delta Lake, or without what reads the tables' URL.
    """
    require_tables(folder)
    tables = TableFolder(folder)
    try:
        for table in TABLES:
            # Delta would change the table by a plain view of it. It refuses a view with a condition.
            rows = _rows(spark, tables, table).where(sf.lit(True))
            rows.createOrReplaceTempView(name_in_sql(table))
    except Py4JJavaError as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            missing = "has no Delta Lake; cloud.open_session() starts one that has"
        elif "ClassNotFoundException" in str(error) or "UnsupportedFileSystemException" in str(error):
            missing = f"cannot read {tables.storage}; for S3, cloud.open_session(s3=True) starts one that can"
        else:
            raise
        raise SparkMissing(f"this Spark session {missing}") from None
    for name, sql in views().items():
        # Spark writes the seed into the code that it makes, and would compile each query anew. DuckDB takes no seed.
        spark.sql(sql.replace("random()", "random(0)")).createOrReplaceTempView(name)
    return view_names()


def _rows(spark: SparkSession, tables: TableFolder, table: Table) -> DataFrame:
    """Returns the table's rows, and an empty frame when it does not exist yet."""
    if not tables.exists(table):
        return spark.createDataFrame([], table.sql_columns)
    url, options = _place(tables.of(table))
    return spark.read.format("delta").options(**options).load(url)


def _place(folder: Storage) -> tuple[str, dict[str, str]]:
    """Returns where Spark finds a folder, and what s3a has to know of its store. Keys are in the environment, or the
    machine has a role."""
    if not folder.uri.startswith("s3://"):
        return folder.uri, {}
    options = {"fs.s3a.input.stream.type": "classic"}  # the default one needs a second Netty beside Spark's
    store = folder.delta_options
    if endpoint := store.get("endpoint"):
        options |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    if region := store.get("region"):
        options["fs.s3a.endpoint.region"] = region
    return folder.uri.replace("s3://", "s3a://", 1), options


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
