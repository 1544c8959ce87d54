"""The verdict: compares the devices' counts with the rows in the tables."""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import SparkSession

from tools.lab.journal import Made


class OriginVerdict(NamedTuple):
    """The readings of one origin: the device's count, the rows in the table, and the difference.

    ``uncounted`` are in the table although the device had not counted them: they were in its hand, stored but not
    yet counted, when its power was cut.
    """

    origin: str
    made: int
    in_table: int
    missing: int
    twice: int
    uncounted: int


class Verdict(NamedTuple):
    """All origins, and the number of repeated messages that the job removed."""

    origins: list[OriginVerdict]
    removed: int

    def total(self, column: str) -> int:
        return sum(getattr(origin, column) for origin in self.origins)

    @property
    def holds(self) -> bool:
        return self.total("made") > 0 and self.total("missing") == 0 and self.total("twice") == 0


COMPARE = """
WITH stored AS (
  SELECT origin, epoch, seq, count(*) AS rows, count(DISTINCT record) AS records
  FROM readings WHERE origin IN (SELECT origin FROM made) GROUP BY origin, epoch, seq
), compared AS (
  SELECT origin, coalesce(made.readings, 0) AS made, coalesce(rows, 0) AS rows, coalesce(records, 0) AS records,
         made.readings IS NULL AS uncounted
  FROM made FULL OUTER JOIN stored USING (origin, epoch, seq)
)
SELECT origin, sum(made) AS made, sum(records) AS in_table, sum(greatest(made - records, 0)) AS missing,
       sum(rows - records) AS twice, sum(IF(uncounted, records, 0)) AS uncounted
FROM compared GROUP BY origin ORDER BY origin
"""


def judge(spark: SparkSession, made: Iterable[Made]) -> Verdict:
    """Compares messages by identity; the Spark session has the tables as views."""
    schema = "origin string, epoch string, seq long, readings long"
    rows = [(one.origin, f"{one.epoch:08x}", one.seq, one.readings) for one in made]
    spark.createDataFrame(rows, schema).createOrReplaceTempView("made")
    origins = [OriginVerdict(*row) for row in spark.sql(COMPARE).collect()]
    removed = spark.sql("SELECT coalesce(sum(duplicates), 0) FROM batches").collect()[0][0]
    return Verdict(origins, removed)
