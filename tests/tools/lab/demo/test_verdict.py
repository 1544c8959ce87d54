from pyspark.sql import SparkSession

from tools.lab.demo.verdict import Verdict, judge
from tools.lab.journal import Made


def verdict_of(spark: SparkSession, stored: list[tuple[str, int, int, int]], made: list[Made]) -> Verdict:
    """`stored` are rows of the table: origin, epoch, seq, record."""
    schema = "origin string, epoch string, seq long, record int"
    rows = [(origin, f"{epoch:08x}", seq, record) for origin, epoch, seq, record in stored]
    spark.createDataFrame(rows, schema).createOrReplaceTempView("readings")
    spark.createDataFrame([(2,), (1,)], "duplicates long").createOrReplaceTempView("batches")
    return judge(spark, made)


def test_what_was_made_and_is_in_the_table_once_holds(spark: SparkSession) -> None:
    verdict = verdict_of(
        spark, [("a", 1, 1, 0), ("a", 1, 1, 1), ("a", 1, 2, 0)], [Made("a", 1, 1, 2), Made("a", 1, 2, 1)]
    )
    assert verdict.holds
    assert verdict.origins == [("a", 3, 3, 0, 0, 0)]
    assert verdict.removed == 3


def test_a_reading_that_is_not_in_the_table_is_missing(spark: SparkSession) -> None:
    verdict = verdict_of(spark, [("a", 1, 1, 0)], [Made("a", 1, 1, 2), Made("a", 1, 2, 1), Made("b", 9, 1, 4)])
    assert not verdict.holds
    assert {origin.origin: origin.missing for origin in verdict.origins} == {"a": 2, "b": 4}


def test_a_reading_that_is_in_the_table_again_is_twice(spark: SparkSession) -> None:
    verdict = verdict_of(spark, [("a", 1, 1, 0), ("a", 1, 1, 0)], [Made("a", 1, 1, 1)])
    assert not verdict.holds
    assert verdict.total("twice") == 1


def test_one_missing_is_not_made_up_for_by_one_that_is_twice(spark: SparkSession) -> None:
    verdict = verdict_of(spark, [("a", 1, 1, 0), ("a", 1, 1, 0)], [Made("a", 1, 1, 1), Made("a", 1, 2, 1)])
    assert (verdict.total("missing"), verdict.total("twice")) == (1, 1)


def test_a_reading_in_hand_at_a_power_cut_is_shown_as_uncounted(spark: SparkSession) -> None:
    verdict = verdict_of(spark, [("a", 1, 1, 0), ("a", 1, 2, 0)], [Made("a", 1, 1, 1)])
    assert verdict.holds
    assert verdict.origins == [("a", 1, 2, 0, 0, 1)]


def test_nothing_made_proves_nothing(spark: SparkSession) -> None:
    assert not verdict_of(spark, [], []).holds
