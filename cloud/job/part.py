"""A part of a batch: landing files, or data files of `quarantine`, that one Spark task works on."""

import msgspec
from pyspark.sql import DataFrame

from cloud.job.plan import Again, Plan
from cloud.landing.manifest import LandingFile
from cloud.storage.storage import Storage
from cloud.tables.tables import Tables

PART_ROWS = 250_000
"""The most rows of a part, unless one landing file has more."""
LEAST_ROWS = 10_000
"""The fewest rows that are worth a further part."""


class Part(msgspec.Struct, frozen=True):
    """What a task has to do: its number, the batch, the folders, the landing files, and the data files of `quarantine`
    whose undecodable messages it decodes again."""

    number: int
    batch: int
    planned_ms: int
    landing: str
    tables: str
    files: list[LandingFile]
    again: list[str] = []


def divide(plan: Plan, landing: Storage, tables: Tables) -> list[Part]:
    """Returns the plan's files in parts of about the same size: for each core at least one, with enough rows."""
    cores = tables.spark.sparkContext.defaultParallelism
    size = min(PART_ROWS, max(LEAST_ROWS, -(-plan.rows // cores)))
    parts: list[tuple[list[LandingFile], list[str]]] = [([], [])]
    rows = 0
    every: list[LandingFile | Again] = [*plan.files, *plan.again]
    for file in every:
        if rows and rows + file.rows // 2 > size:
            parts.append(([], []))
            rows = 0
        if isinstance(file, Again):
            parts[-1][1].append(file.file)
        else:
            parts[-1][0].append(file)
        rows += file.rows
    places = str(landing.place), str(tables.folder)
    return [Part(number, plan.batch, plan.planned_ms, *places, *files) for number, files in enumerate(parts)]


def gather_parts(frame: DataFrame, parts: list[Part]) -> DataFrame:
    """Returns the rows so that the task of each part has those with its number in the column `part`."""
    return frame.coalesce(1) if len(parts) == 1 else frame.repartitionById(len(parts), "part")
