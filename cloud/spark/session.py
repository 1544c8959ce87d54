"""The Spark session: found Java, cached jars, Delta tables, and settings for many small jobs on few cores."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cloud.jars import delta_jars
from cloud.java import find_java, make_java_home

_LOG_SETTINGS = Path(__file__).with_name("log4j2.xml")

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Nothing of a session is reachable from elsewhere, and nothing is printed that is not ours.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A batch holds thousands of rows far more often than billions: few partitions, and plans made once.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's own default is not UTC to others
    # Python's garbage collector looks at every object of a batch again and again.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
# The quick compiler alone: most runs end before the thorough one has earned its time back.
JAVA_OPTIONS = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"


class SparkMissing(Exception):
    """Spark did not start; the text says why."""


def open_session(cache: Path) -> SparkSession:
    """The process's session; starts it when there is none.

    Raises JavaMissing, JarsMissing or SparkMissing. `cache` is a folder for Delta's jars and Java's wrapper.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    _keep_quiet()
    java = find_java()
    jars = delta_jars(java, cache)
    _set_environment(make_java_home(java, cache))
    builder = SparkSession.Builder().master("local[*]").appName("holdfast")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars)))
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkMissing(f"Spark did not start with {java.program} (Java {java.version}): {error}") from error


@contextmanager
def generated_code(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Whether Spark compiles its plans to Java code: that pays for itself from some 100,000 rows on."""
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
    """These print the whole trace of what is raised as well."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _set_environment(java_home: Path) -> None:
    """What Spark's launcher and its Python workers read."""
    ours = str(Path(__file__).resolve().parents[1])
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
