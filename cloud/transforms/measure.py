"""From judged and decoded messages to the rows of the data tables, and to the counts that prove them."""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from cloud.transforms.classify import CONFLICT, DUPLICATE, NEW

UNDECODABLE = "undecodable"


class Counts(NamedTuple):
    """The rows of a batch by kind. `new` ones were decoded; `readings` are their records."""

    new: int
    duplicates: int
    undecodable: int
    conflicts: int
    readings: int

    @property
    def quarantined(self) -> int:
        return self.undecodable + self.conflicts


def count(messages: DataFrame) -> Counts:
    """One pass over the batch."""
    kinds = {
        "new": _is(NEW) & sf.isnull("problem"),
        "duplicates": _is(DUPLICATE),
        "undecodable": _is(NEW) & sf.isnotnull("problem"),
        "conflicts": _is(CONFLICT),
    }
    counts = [sf.count_if(condition).alias(kind) for kind, condition in kinds.items()]
    readings = sf.coalesce(sf.sum(sf.when(sf.isnotnull("records"), sf.size("records"))), sf.lit(0))
    return Counts(*messages.agg(*counts, readings).collect()[0])


def bronze_rows(messages: DataFrame) -> DataFrame:
    """Every message with a new identity, decodable or not."""
    return messages.where(_is(NEW))


def reading_rows(messages: DataFrame) -> DataFrame:
    """A row for each record. The event date is the device's own where it has one, else that of the arrival."""
    records = messages.select("*", sf.posexplode("records").alias("record", "measured"))
    flat = records.select("*", "measured.*").withColumn("device", sf.coalesce("device", "origin"))
    return flat.withColumn("event_date", sf.to_date(sf.coalesce("time", "received_at", "landed_at")))


def quarantine_rows(messages: DataFrame) -> DataFrame:
    """What a person has to look at, with the reason and the raw payload."""
    conflict = sf.lit("the same identity came before with another payload")
    aside = messages.where(_is(CONFLICT) | sf.isnotnull("problem"))
    return aside.withColumn("kind", sf.when(_is(CONFLICT), CONFLICT).otherwise(UNDECODABLE)).withColumn(
        "reason", sf.when(_is(CONFLICT), conflict).otherwise(sf.col("problem"))
    )


def _is(verdict: str) -> Column:
    return sf.col("verdict") == verdict
