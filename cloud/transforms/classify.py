"""Which rows of a batch are new: by the ledger's intervals and the batch itself, without state and without horizon.

Only rows in a suspect interval are shuffled; all others are new by their number alone.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from cloud.ledger import Suspect

NEW = "new"
DUPLICATE = "duplicate"
CONFLICT = "conflict"

IDENTITY = ["origin", "epoch", "seq"]
_SUSPECT_COLUMNS = "origin STRING, epoch BIGINT, lo BIGINT, hi BIGINT, known BOOLEAN"


def classify(rows: DataFrame, suspects: Sequence[Suspect], stored: DataFrame, conflicts: DataFrame) -> DataFrame:
    """Adds `verdict`. Rows are ordered by their `file` and `row`; the first with an identity is the genuine one.

    `stored` are the messages and `conflicts` the conflicting ones of earlier batches, by identity and payload.
    The genuine payload is the stored one if there is one. A row with another payload is a conflict the first time,
    and a duplicate when that payload was put aside before.
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
    """Joins rows with the one span that their identity lies in; keeps the rows' columns and `known`."""
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
