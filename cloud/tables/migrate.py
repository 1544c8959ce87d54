"""Makes the tables, and brings those of an older version to the columns of this one, each in one commit."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cloud.storage.durable_file import sync
from cloud.tables.schema import (
    ARRIVALS,
    BATCHES,
    CHECKS,
    LANDING_FILES,
    LEDGER,
    READINGS,
    TABLES,
    VERSION,
    VERSION_PROPERTY,
    Table,
    protocol,
)
from cloud.tables.tables import Tables, metadata

_NOT_NEEDED = (LANDING_FILES, ARRIVALS, CHECKS)
_HAVING_EPOCH = {"bronze_messages", "readings", "quarantine", "ledger"}


class NewerTables(Exception):
    """The tables have a version that this program does not know. Nothing was written."""


class OlderTables(Exception):
    """The tables have an earlier version, or some do not exist yet. Nothing was written."""


def require_current(tables: Tables) -> None:
    """Raises OlderTables or NewerTables unless each table is there and has VERSION, for a command that only looks.

    Raises FileNotFoundError when a table is gone, as `migrate` does.
    """
    _refuse_newer(tables)
    old = {table.name: _version(tables, table) for table in TABLES if tables.exists(table)}
    old = {name: version for name, version in old.items() if version < VERSION}
    if not old:
        _refuse_lost(tables)
    missing = [table.name for table in TABLES if not tables.exists(table) and table is not CHECKS]
    if old or missing:
        which = [f"of schema version {min(old.values())}: {', '.join(old)}"] if old else []
        which += [f"not there yet: {', '.join(missing)}"] if missing else []
        raise OlderTables(
            f"the tables in {tables.folder} are not all of schema version {VERSION} ({'; '.join(which)}), and this "
            "command changes no table: a run of `holdfast cloud ingest` brings them to it"
        )


def migrate(tables: Tables) -> None:
    """Brings every table that exists to VERSION, and makes the others. Raises NewerTables, and FileNotFoundError when a
    table is gone.

    It may be killed at any time: the next run migrates the tables that are left.
    """
    old = [table for table in TABLES if tables.exists(table) and _version(tables, table) < VERSION]
    _refuse_newer(tables)
    if not old:
        _refuse_lost(tables)
    tables.create_missing()
    for table in sorted(old, key=lambda one: one is BATCHES):  # `readings` are migrated by the help of `batches`
        if _version(tables, table) >= 2:  # later versions add tables, and columns that older rows have not
            tables.commit(table, [protocol(), metadata(table, tables.metadata(table)["id"])], "UPGRADE")
            continue
        rows = _from_version_1(tables, table)
        writer = rows.select(table.column_names).write.format("delta").mode("overwrite").option("overwriteSchema", True)
        writer = writer.partitionBy(table.partition) if table.partition else writer
        folder = Path(tables.folder) / table.name
        writer.save(str(folder))
        for path in (*folder.rglob("*"), folder, folder.parent):
            sync(path)  # Spark leaves what it writes in the system's cache
        tables.seal(table, tables.compute_digests(table))
        tables.commit(table, [protocol(), metadata(table, tables.metadata(table)["id"])], "UPGRADE")


def _refuse_newer(tables: Tables) -> None:
    if newer := [table.name for table in TABLES if tables.exists(table) and _version(tables, table) > VERSION]:
        raise NewerTables(f"the tables {', '.join(newer)} were written by a later version of Holdfast")


def _refuse_lost(tables: Tables) -> None:
    """Raises FileNotFoundError if a table is gone beside others with rows. An empty one in its place would hide that.

    The job finds the rows of `landing_files` again, does what it does without those of `arrivals`, and no answer needs
    those of `checks`.
    """
    lost = [one.name for one in TABLES if not tables.exists(one) and one not in _NOT_NEEDED]
    if lost and any(tables.files(table) for table in TABLES):
        raise FileNotFoundError(
            f"the table {', '.join(lost)} is gone from {tables.folder}, and others with rows are there: "
            "bring it back from a copy, or make all tables anew with `holdfast cloud rebuild`"
        )


def _version(tables: Tables, table: Table) -> int:
    return int(tables.metadata(table).get("configuration", {}).get(VERSION_PROPERTY, 1))


def _from_version_1(tables: Tables, table: Table) -> DataFrame:
    """Returns the rows of a table of version 1 with the columns of this version.

    Also of a table that the job was killed after: it has the new columns, and not yet the new version.
    """
    rows = tables.read(table)
    if table.name in _HAVING_EPOCH and dict(rows.dtypes)["epoch"] == "bigint":
        rows = rows.withColumn("epoch", sf.lpad(sf.lower(sf.hex("epoch")), 8, "0"))
    return _ADDED.get(table.name, lambda _, same: same)(tables, rows)


def _add_to_ledger(_: Tables, rows: DataFrame) -> DataFrame:
    return rows.withColumn("first_batch", sf.col("batch")) if "first_batch" not in rows.columns else rows


def _add_to_readings(tables: Tables, rows: DataFrame) -> DataFrame:
    if "historical" not in rows.columns:
        rows = rows.withColumn("historical", sf.lit(None).cast("boolean"))
    if "event_time" in rows.columns:
        return rows
    dates = tables.read(BATCHES).select("batch", sf.to_date("planned_at").alias("ingest_date"))
    rows = rows.join(sf.broadcast(dates), "batch", "left")
    told = sf.col("time").isNotNull()
    plausible = (
        told & (sf.col("time") >= "2001-01-01") & (sf.col("time") <= sf.current_timestamp() + sf.expr("INTERVAL 1 DAY"))
    )
    arrived = sf.coalesce("received_at", sf.to_timestamp("event_date"))
    by_arrival = sf.when(sf.isnotnull("received_at"), "gateway").otherwise("landing")
    rows = rows.withColumn("event_time", sf.when(plausible, sf.col("time")).otherwise(arrived))
    rows = rows.withColumn("event_time_by", sf.when(plausible, "device").otherwise(by_arrival))
    rows = rows.withColumn("quality", sf.when(told & ~plausible, "wrong time").otherwise("good"))
    rows = rows.withColumn("ingest_date", sf.coalesce("ingest_date", sf.current_date()))
    return rows.withColumn("event_date", sf.to_date("event_time"))


_ADDED: dict[str, Callable[[Tables, DataFrame], DataFrame]] = {
    LEDGER.name: _add_to_ledger,
    READINGS.name: _add_to_readings,
}
