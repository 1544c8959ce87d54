"""A batch of several parts, whose messages meet in Spark's shuffles, comes to the same as one of a single part."""

from pathlib import Path

import pytest

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
