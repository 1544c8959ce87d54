"""Makes all tables anew from the landing files, and puts them in the place of the old ones."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cloud.spark.session import generated_code, open_session
from cloud.storage.durable_file import sync
from cloud.tables.job import Report, ingest, only_job
from cloud.tables.plan import list_landed
from cloud.tables.schema import FORGOTTEN, INGESTED, LANDING_FILES
from cloud.tables.tables import Tables, has_tables
from cloud.upkeep.forget import forget_again, read_forgotten

REBUILT = "rebuilt"
REPLACED = "replaced"


class CannotRebuild(Exception):
    """The tables cannot be made anew: landing files are gone, or an older rebuild is in the way. The tables are as they
    were."""


def rebuild(
    spark: SparkSession | None,
    landing: Path | str,
    tables: Path | str,
    *,
    cache: Path | None = None,
    decoders: Iterable[Path | str] = (),
) -> Report:
    """Makes the tables anew from all landing files. The old ones are in the folder TABLES.replaced then.

    It may be killed at any time and called again. What was forgotten stays so. Arguments and errors are those of
    `ingest`. Raises CannotRebuild, too.
    """
    landing, tables = Path(landing).absolute(), Path(tables).absolute()
    new, old = tables.with_name(f"{tables.name}.{REBUILT}"), tables.with_name(f"{tables.name}.{REPLACED}")
    spark = spark or open_session(cache)
    if old.exists() and (tables.exists() or not new.exists()):
        raise CannotRebuild(f"{old} is there, the tables of an earlier rebuild: move it away or delete it")
    with ExitStack() as locks:
        held: set[str] = set()
        if has_tables(tables):
            locks.enter_context(only_job(tables))
            held = _ingested(spark, tables)
        _refuse_without(held - set(list_landed(landing)), landing)
        report = ingest(spark, landing, new, decoders=decoders)
        _refuse_without({file for file, _ in report.set_aside} & held, landing)
        with only_job(new), generated_code(spark, False):
            forgotten = Tables(spark, tables if tables.exists() else old)
            if forgotten.exists(FORGOTTEN):
                forget_again(Tables(spark, new), read_forgotten(forgotten))
        if tables.exists():
            tables.rename(old)
        new.rename(tables)
        sync(tables.parent)
    return report


def _ingested(spark: SparkSession, tables: Path) -> set[str]:
    """Returns the names of the landing files whose messages are in the tables."""
    ingested = Tables(spark, tables).rows(LANDING_FILES, ["file"], pc.field("status") == INGESTED)
    return set(ingested["file"].to_pylist())


def _refuse_without(gone: set[str], landing: Path) -> None:
    if gone:
        raise CannotRebuild(
            f"{len(gone)} landing files that the tables hold cannot be used in {landing}, the first is {min(gone)}: "
            "tables that are made anew would lack their messages"
        )
