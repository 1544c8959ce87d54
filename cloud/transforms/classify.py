"""Which rows of a batch are new, by the ledger's intervals and the batch itself.

There is no state beside the tables, and a message may arrive again after any time. Only rows in a suspect interval
are shuffled: the number of any other row shows that it is new.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

NEW = "new"
DUPLICATE = "duplicate"
CONFLICT = "conflict"

IDENTITY = ["origin", "epoch", "seq"]
_SUSPECT_COLUMNS = "origin STRING, epoch BIGINT, lo BIGINT, hi BIGINT, known BOOLEAN"


class Suspect(NamedTuple):
    """An interval whose rows may not be new: it is `known` to the ledger, or more than once in the batch."""

    origin: str
    epoch: int
    lo: int
    hi: int
    known: bool


def classify(rows: DataFrame, suspects: Sequence[Suspect], stored: DataFrame, conflicts: DataFrame) -> DataFrame:
    """Adds the column `verdict`: NEW, DUPLICATE or CONFLICT.

    `stored` has identity and payload of the messages of earlier batches, `conflicts` those of their conflicts. The
    genuine payload of an identity is the stored one, else that of the first row by `file` and `row`. A row with
    another payload is a conflict the first time, and a duplicate when that payload was a conflict before.
    """
    if not suspects:
        return rows.withColumn("verdict", sf.lit(NEW))
    spans = sf.broadcast(rows.sparkSession.createDataFrame(list(suspects), _SUSPECT_COLUMNS))
    marked = _within(rows, spans, "left")
    doubtful = marked.where("known IS NOT NULL")
    touched = rows.sparkSession.createDataFrame(list(suspects), _SUSPECT_COLUMNS)
    stored = _within(stored, sf.broadcast(touched), "left_semi").withColumnRenamed("payload", "genuine")
    conflicts = _within(conflicts, sf.broadcast(touched), "left_semi").distinct().withColumn("aside", sf.lit(True))
    judged = _judge(doubtful.join(stored, IDENTITY, "left").join(conflicts, [*IDENTITY, "payload"], "left"))
    sure = marked.where("known IS NULL").withColumn("verdict", sf.lit(NEW))
    return sure.select(*rows.columns, "verdict").union(judged.select(*rows.columns, "verdict"))


def _within(rows: DataFrame, spans: DataFrame, how: str) -> DataFrame:
    """Joins rows with the one span that holds their identity. Keeps the rows' columns and `known`."""
    same = (rows.origin == spans.origin) & (rows.epoch == spans.epoch) & rows.seq.between(spans.lo, spans.hi)
    joined = rows.join(spans, same, how)
    return joined.select(rows["*"], *([spans.known] if how == "left" else []))


def _judge(doubtful: DataFrame) -> DataFrame:
    in_order = Window.partitionBy(*IDENTITY).orderBy("file", "row")
    copies = Window.partitionBy(*IDENTITY, "payload").orderBy("file", "row")
    first_payload = sf.first("payload").over(in_order)
    return (
        doubtful.withColumn("genuine", sf.coalesce("genuine", sf.when(~sf.col("known"), first_payload)))
        .withColumn("copy", sf.row_number().over(copies))
        .withColumn(
            "verdict",
            sf.when((sf.col("copy") > 1) | sf.col("genuine").isNull(), DUPLICATE)
            .when(sf.col("payload") == sf.col("genuine"), sf.when(sf.col("known"), DUPLICATE).otherwise(NEW))
            .when(sf.col("aside"), DUPLICATE)
            .otherwise(CONFLICT),
        )
    )
