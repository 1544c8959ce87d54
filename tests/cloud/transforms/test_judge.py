"""What of a batch is new, on frames of a few rows, beside a model that is a dictionary."""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud.landing.intervals import Interval
from cloud.transforms.verdicts.classify import CONFLICT, CONTENT, DUPLICATE, IDENTITY, NEW, Suspect
from cloud.transforms.verdicts.judge import FINDINGS, MESSAGES, compare, judge

Span = tuple[str, str, int, int]
Message = tuple[str, int, int, str, bytes]


def table(rows: Iterable[tuple[object, ...]], columns: dict[str, pa.DataType]) -> pa.Table:
    schema = pa.schema(columns.items())
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


class Ledger(NamedTuple):
    """A ledger of a few intervals, all of the same batch."""

    spans: list[tuple[str, int, int]]

    def load(self, origins: pa.Array) -> pa.Table:
        rows = [(origin, "00000001", lo, hi) for origin, lo, hi in self.spans if origin in origins.to_pylist()]
        return table(rows, {"origin": pa.string(), "epoch": pa.string(), "lo": pa.int64(), "hi": pa.int64()})

    def batches_of(self, rows: pa.Table, suspects: list[Suspect]) -> list[Interval]:
        return [(3, 4)] if rows.num_rows else []


def found(
    spark: SparkSession, landed: Sequence[Span], known: Iterable[tuple[str, int, int]] = (), tasks: int = 1
) -> list[tuple[str, str, str, int, int]]:
    """Returns kind, file, origin, lo and hi of what is found. `landed` are kind and file, origin, lo and hi."""
    rows = [(*kind.split(" "), None, origin, 1, lo, hi) for kind, origin, lo, hi in landed]
    frame = spark.createDataFrame([(kind, 0, file, *rest) for kind, file, *rest in rows], FINDINGS)
    judged = compare(frame, Ledger(list(known)), tasks).collect()
    return sorted((one.kind, one.file or "", one.origin or "", one.lo, one.hi) for one in judged)


def test_with_an_empty_ledger_everything_is_new_and_nothing_suspect(spark: SparkSession) -> None:
    landed = [("landed f1", "garage", 1, 5), ("landed f2", "garage", 6, 9), ("landed f1", "cellar", 1, 3)]
    assert found(spark, landed) == [("new", "", "cellar", 1, 3), ("new", "", "garage", 1, 9)]


@pytest.mark.parametrize("tasks", [1, 2])
def test_suspect_numbers_are_told_by_file_and_are_known_or_twice(spark: SparkSession, tasks: int) -> None:
    landed = [("landed f1", "garage", 1, 10), ("landed f2", "garage", 8, 14), ("repeated f3", "attic", 2, 4)]
    assert found(spark, landed, [("garage", 9, 9), ("garage", 20, 30), ("attic", 4, 9)], tasks) == [
        *[("brought", "", "", 3, 4)] * tasks,
        ("known", "f1", "garage", 9, 9),
        ("known", "f2", "garage", 9, 9),
        ("known", "f3", "attic", 4, 4),
        ("new", "", "attic", 2, 3),
        ("new", "", "garage", 1, 8),
        ("new", "", "garage", 10, 14),
        ("twice", "f1", "garage", 8, 8),
        ("twice", "f1", "garage", 10, 10),
        ("twice", "f2", "garage", 8, 8),
        ("twice", "f2", "garage", 10, 10),
        ("twice", "f3", "attic", 2, 3),
    ]


def test_first_and_last_number_that_there_can_be_are_judged(spark: SparkSession) -> None:
    last = 2**63 - 1
    landed = [("landed f1", "a", 0, 0), ("landed f1", "a", last, last), ("landed f2", "a", last, last)]
    assert found(spark, landed, [("a", 0, 0)]) == [
        ("brought", "", "", 3, 4),
        ("known", "f1", "a", 0, 0),
        ("new", "", "a", last, last),
        ("twice", "f1", "a", last, last),
        ("twice", "f2", "a", last, last),
    ]


def test_other_findings_stay(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("refused", 0, "f1", "it is gone", None, None, None, None)], FINDINGS)
    assert compare(frame, Ledger([]), 1).collect() == frame.collect()


def contents(messages: Iterable[Message]) -> pa.Table:
    types = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.binary())
    return table(messages, dict(zip([*IDENTITY, *CONTENT], types, strict=True)))


@pytest.mark.parametrize("tasks", [1, 2])
def test_random_batches_agree_with_a_dictionary(spark: SparkSession, seed: int, tasks: int) -> None:
    """The first content of an identity is new, or it is stored. Another one is a conflict once, over all batches."""
    choose = random.Random(seed)

    def message() -> Message:
        identity = choose.choice("abc"), choose.choice((1, 2)), choose.randint(1, 40)
        return *identity, choose.choice("ttu"), choose.choice((b"x", b"y", b"z"))

    stored = list({one[:3]: one for one in (message() for _ in range(50)) if one[2] > 20}.values())
    genuine = {one[:3]: one[3:] for one in stored}
    conflicts = list({one for one in (message() for _ in range(80)) if one[:3] in genuine and one not in stored})
    gone = {one[:3] for one in stored if one[2] > 35}  # known to the ledger, and no longer stored
    seen = {*conflicts, *stored}
    landed, expected = [], {}
    for place in range(300):
        one = message()
        is_known = any(one[:3] == each[:3] for each in stored)
        first = genuine.setdefault(one[:3], one[3:])
        verdict = DUPLICATE if one in seen or one[:3] in gone else NEW if first == one[3:] else CONFLICT
        seen.add(one)
        landed.append((place % 2, f"f{place // 100}", place % 100, is_known, *one))
        if verdict != NEW:
            expected[landed[-1][:3]] = verdict
    choose.shuffle(landed)
    kept = [contents(one for one in stored if one[:3] not in gone), contents(conflicts)]
    judged = judge(spark.createDataFrame(landed, MESSAGES), lambda _: tuple(kept), tasks).collect()
    assert {(row.part, row.file, row.place): row.verdict for row in judged} == expected
