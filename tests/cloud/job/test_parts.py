"""A batch of several parts, whose messages meet in Spark's shuffles, comes to the same as one of a single part."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from cloud.job.judging import Compared, collect
from cloud.job.run import Report
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row


def test_messages_that_repeat_in_other_parts_and_batches_are_taken_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.job.part.PART_ROWS", 4)
    first = [[row(seq, origin) for seq in range(1, 4)] for origin in ("attic", "cellar", "garage")]
    again = [row(3, "attic"), row(2, "cellar", b"other"), row(4, "garage")]
    land(lake.landing, *first, again)
    assert lake.ingest() == Report(1, 4, rows_in=12, new=10, duplicates=1, quarantined=1, readings=20)
    late = [[row(4, "garage"), row(5, "garage"), row(1, "attic")], [row(5, "garage"), row(2, "cellar", b"other")]]
    land(lake.landing, *late)
    assert lake.ingest() == Report(1, 2, rows_in=5, new=1, duplicates=4, readings=2)
    lake.check([one for some in (*first, again, *late) for one in some])


def test_batch_of_many_parts_adds_one_file_to_the_ledger(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch to come opens every file of it."""
    monkeypatch.setattr("cloud.job.part.PART_ROWS", 2)
    for batch in range(2):
        land(lake.landing, *[[row(2 * batch + 1, origin), row(2 * batch + 2, origin)] for origin in "abcdef"])
        assert lake.ingest().new == 12
    assert len(list((lake.folder / "ledger").rglob("*.parquet"))) == 2


def collect_without_file(found: DataFrame, path: Path) -> Compared:
    """Compares, as the job does, and then empties the file. Some birth is wanted, so that verdicts are kept."""
    compared = collect(found)
    path.write_bytes(b"")
    return compared._replace(births=["spBv1.0/site/NBIRTH/node"])


def test_file_that_cannot_be_read_while_it_is_judged_is_taken_by_the_next_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(seq) for seq in range(1, 4)]
    land(lake.landing, rows)
    lake.ingest()
    (described,) = land(lake.landing, [*rows, row(4)], lander="second")
    path = lake.landing / described.file
    content = path.read_bytes()

    def bring_back(*arguments: Any) -> None:
        arguments[3].count()  # the verdicts, which are kept
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr("cloud.job.batch.find_births", bring_back)
        patch.setattr("cloud.job.batch.collect", lambda found: collect_without_file(found, path))
        with pytest.raises(OSError, match="the next run takes it"):
            lake.ingest()
    assert lake.ingest() == Report(1, 1, rows_in=4, new=1, duplicates=3, readings=2)
    lake.check([*rows, *rows, row(4)])


def test_landing_file_that_is_exchanged_between_judging_and_taking_in_loses_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(seq) for seq in range(1, 4)]
    (described,) = land(lake.landing, rows)
    path: Path = lake.landing / described.file
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("cloud.job.batch.find_births", lambda *_: path.write_bytes(content[:-1] + b"?") and None)
        report = lake.ingest()
    assert (report.new, [file for file, _ in report.set_aside]) == (0, [described.file])
    assert lake.rows("bronze_messages") == []
    path.write_bytes(content)
    assert lake.ingest().new == 3
    lake.check(rows)
