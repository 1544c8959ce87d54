"""Verdicts beside a model that is a dictionary."""

import random
from collections.abc import Sequence

from pyspark.sql import SparkSession

from cloud.transforms.classify import CONFLICT, DUPLICATE, NEW, Suspect, classify

ROWS = "origin STRING, epoch BIGINT, seq BIGINT, payload BINARY, file STRING, row BIGINT"
MESSAGES = "origin STRING, epoch BIGINT, seq BIGINT, payload BINARY"
Message = tuple[str, int, int, bytes]


def verdicts(
    spark: SparkSession,
    arrived: Sequence[Message],
    suspects: Sequence[Suspect],
    stored: Sequence[Message] = (),
    conflicts: Sequence[Message] = (),
) -> list[str]:
    """Returns the verdicts in the order of arrival; Spark gets the rows in two files and in another order."""
    rows = [(*message, f"file-{number // 7}", number % 7) for number, message in enumerate(arrived)]
    frame = spark.createDataFrame(random.Random(1).sample(rows, len(rows)), ROWS)
    judged = classify(
        frame, suspects, spark.createDataFrame(stored, MESSAGES), spark.createDataFrame(conflicts, MESSAGES)
    )
    found = sorted((row.file, row.row, row.verdict) for row in judged.collect())
    assert len(found) == len(arrived)
    return [verdict for *_, verdict in found]


def test_without_suspects_all_is_new(spark: SparkSession) -> None:
    assert verdicts(spark, [("a", 1, 1, b"x"), ("a", 1, 2, b"y")], []) == [NEW, NEW]


def test_first_of_an_identity_is_new_and_the_rest_are_duplicates_or_conflicts(spark: SparkSession) -> None:
    arrived = [("a", 1, 5, b"x"), ("a", 1, 5, b"y"), ("a", 1, 5, b"x"), ("a", 1, 5, b"y"), ("a", 1, 6, b"x")]
    suspects = [Suspect("a", 1, 5, 5, known=False)]
    assert verdicts(spark, arrived, suspects) == [NEW, CONFLICT, DUPLICATE, DUPLICATE, NEW]


def test_known_identity_is_judged_by_the_stored_payload(spark: SparkSession) -> None:
    arrived = [("a", 1, 1, b"other"), ("a", 1, 1, b"x"), ("a", 1, 2, b"gone"), ("b", 1, 1, b"x"), ("a", 2, 1, b"x")]
    suspects = [Suspect("a", 1, 1, 2, known=True)]
    stored = [("a", 1, 1, b"x"), ("a", 1, 3, b"gone"), ("b", 1, 1, b"?")]
    assert verdicts(spark, arrived, suspects, stored) == [CONFLICT, DUPLICATE, DUPLICATE, NEW, NEW]


def test_conflict_is_found_once_over_batches(spark: SparkSession) -> None:
    arrived = [("a", 1, 1, b"y"), ("a", 1, 1, b"z")]
    suspects = [Suspect("a", 1, 1, 1, known=True)]
    assert verdicts(spark, arrived, suspects, [("a", 1, 1, b"x")], [("a", 1, 1, b"y")]) == [DUPLICATE, CONFLICT]


def test_random_batches_agree_with_a_dictionary(spark: SparkSession, seed: int) -> None:
    choose = random.Random(seed)

    def message() -> Message:
        return choose.choice("ab"), choose.choice((1, 2)), choose.randint(1, 12), choose.choice((b"x", b"y", b"z"))

    stored = list({one[:3]: one for one in (message() for _ in range(10)) if one[2] > 6}.values())
    genuine = {one[:3]: one[3] for one in stored}
    conflicts = list(
        {one for one in (message() for _ in range(10)) if one[:3] in genuine and genuine[one[:3]] != one[3]}
    )
    seen = set(conflicts) | set(stored)
    arrived = [message() for _ in range(60)]
    expected = []
    for one in arrived:
        first = genuine.setdefault(one[:3], one[3])
        verdict = DUPLICATE if one in seen else NEW if first == one[3] else CONFLICT
        seen.add(one)
        expected.append(verdict)
    suspects = [Suspect(*one[:3], one[2], known=True) for one in stored]
    rest = {one[:3] for one in arrived} - {one[:3] for one in stored}
    suspects += [Suspect(*identity, identity[2], known=False) for identity in rest]
    assert verdicts(spark, arrived, suspects, stored, conflicts) == expected
