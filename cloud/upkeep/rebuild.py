"""Makes all tables anew from the landing files, and puts them in the place of the old ones."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cloud.job.lock import only_job
from cloud.job.plan import list_landed
from cloud.job.run import Report, ingest
from cloud.spark.session import generated_code, open_session
from cloud.storage.durable_file import sync
from cloud.storage.local import LocalStorage
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
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

    In an object store nothing can be renamed: the new tables stay in TABLES.rebuilt, and the old ones where they are.

    It may be killed at any time and called again. What was forgotten stays so. It has the arguments and errors of
    `ingest`. Raises CannotRebuild, too.
    """
    landed, folder = open_storage(landing), open_storage(tables)
    new, old = _beside(folder, REBUILT), _beside(folder, REPLACED)
    spark = spark or open_session(cache)
    if isinstance(folder, LocalStorage) and folder.place.exists() and not folder.place.is_dir():
        raise CannotRebuild(f"{folder} is no folder")
    if has_tables(old) and (has_tables(folder) or not has_tables(new)):
        raise CannotRebuild(f"{old} is there, the tables of an earlier rebuild: move it away or delete it")
    with ExitStack() as locks:
        source = Tables(spark, folder if has_tables(folder) else old)
        held: set[str] = set()
        if has_tables(folder):
            locks.enter_context(only_job(folder))
            held = _ingested(source)
        _refuse_without(held - set(list_landed(landed)), landed)
        report = ingest(spark, landed.place, new.place, decoders=decoders)
        _refuse_without({file for file, _ in report.set_aside} & held, landed)
        with only_job(new) as hold, generated_code(spark, False):
            made = hold.open_tables(spark)
            if source.exists(FORGOTTEN):
                forget_again(made, read_forgotten(source))
        if isinstance(folder, LocalStorage):
            _exchange(folder.place, Path(new.place), Path(old.place))
    return report


def _beside(folder: Storage, ending: str) -> Storage:
    """Returns the folder beside the tables that has this ending."""
    path, question, query = str(folder.place).partition("?")
    return open_storage(f"{path.rstrip('/')}.{ending}{question}{query}")


def _exchange(tables: Path, new: Path, old: Path) -> None:
    if tables.exists():
        tables.rename(old)
    new.rename(tables)
    sync(tables.parent)


def _ingested(tables: Tables) -> set[str]:
    """Returns the names of the landing files whose messages are in the tables."""
    ingested = tables.rows(LANDING_FILES, ["file"], pc.field("status") == INGESTED)
    return set(ingested["file"].to_pylist())


def _refuse_without(gone: set[str], landing: Storage) -> None:
    if gone:
        raise CannotRebuild(
            f"{len(gone)} landing files that the tables hold cannot be used in {landing}, the first is {min(gone)}: "
            "tables that are made anew would lack their messages"
        )
