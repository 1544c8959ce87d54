"""The Spark session: finds a Java and Delta's jars, and has settings for many small jobs on few cores."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cloud.spark.class_archive import archive_options
from cloud.spark.jars import delta_jars, s3_jars
from cloud.spark.java import SparkMissing, find_java, make_java_home

_LOG_SETTINGS = Path(__file__).with_name("log4j2.xml")

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # No port of the session is reachable from another machine, and Spark prints nothing.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    # One file for each task that shuffles, not 200: what the views shuffle is small.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    # The view `gaps` becomes some 300 pieces of Java code. Spark keeps 100, and would compile all of them each time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.driver.memory": "2g",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.page.write-checksum.enabled": "true",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other engines do not read Spark's default as UTC
}
_LOGGING = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
# Java's quick compiler alone: most runs end before the thorough one would pay for itself. By default it then has 48 MB
# for compiled code. Some queries fill them, and Java compiles the same code again and again.
QUICK_JAVA = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m {_LOGGING}"
# Both compilers and a collector for all cores: a plain copy of rows by Spark is four times as fast once it is warm.
LONG_JAVA = f"-XX:+UseParallelGC -XX:ReservedCodeCacheSize=240m {_LOGGING}"


def open_session(
    cache: Path | None = None,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    long_run: bool = False,
    s3: bool = False,
) -> SparkSession:
    """Returns the process's active Spark session, or starts one that reads and writes Delta tables.

    cache: the folder for Delta's jars and Java's wrapper; without it `$XDG_CACHE_HOME/holdfast`, or
        `~/.cache/holdfast`. The first start on a machine fetches the jars from Maven Central.
    master: Spark's master, such as "spark://host:7077"; by default all cores of this machine.
    settings: settings of Spark, which take the place of ours.
    long_run: whether Java should get faster with time, and not start quickly.
    s3: whether Spark itself has to read URLs of S3, as `open_views` does. It takes more jars.

    In a program that `spark-submit` started, its master and settings take the place of ours, too; it has its jars from
    there (`--packages`).

    Raises SparkMissing when there is no Java, when the jars cannot be fetched, and when Spark does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    _keep_quiet()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        given = _given_to_spark_submit()
        return _start({**SETTINGS, **given, **(settings or {})}, master or given.get("spark.master"), "spark-submit")
    java = find_java()
    jars, more = delta_jars(java, cache), s3_jars(java, cache) if s3 else []
    _set_environment()
    options = [LONG_JAVA if long_run else QUICK_JAVA, archive_options(java, jars, cache)]
    first = {
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
    }
    if master and not master.startswith("local"):
        # Executors are other programs: they fetch the jars from here, and import what this program imports.
        more = [*jars, *more]
        first["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    if more:
        first["spark.jars"] = ",".join(map(str, more))
    with _java_home(make_java_home(java, cache)):
        return _start({**SETTINGS, **first, **(settings or {})}, master, f"{java.program} (Java {java.version})")


def _start(settings: Mapping[str, str], master: str | None, by: str) -> SparkSession:
    builder = SparkSession.Builder().master(master or "local[*]").appName("holdfast")
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkMissing(f"Spark did not start with {by}: {error}") from error


def _given_to_spark_submit() -> dict[str, str]:
    """Returns the settings of the program that `spark-submit` started. Its Java runs already."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


@contextmanager
def generated_code(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Sets, while it is open, whether Spark compiles its plans to Java code. It pays from some 100,000 rows on."""
    settings = {
        "spark.sql.codegen.wholeStage": str(wanted).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if wanted else "NO_CODEGEN",
    }
    before = {key: spark.conf.get(key) or "" for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def _keep_quiet() -> None:
    """Silences loggers that print the whole trace of each error that is raised."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


@contextmanager
def _java_home(folder: Path) -> Iterator[None]:
    """Sets JAVA_HOME for Spark's launcher. Programs that this one starts later look for a Java by themselves."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(folder)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _set_environment() -> None:
    """Sets the variables that Spark's launcher and its Python workers read."""
    ours = str(Path(__file__).resolve().parents[2])
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
