"""The identities of tables are counted as intervals, beside a model that is a dictionary."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from cloud import verify
from cloud.tables.data_file import write_rows
from cloud.tables.schema import BRONZE_MESSAGES, READINGS, Table
from cloud.tables.tables import Tables
from cloud.upkeep.numbers import count_rows
from tests.cloud.lake import Lake


def test_intervals_have_exactly_the_identities_and_the_rows_that_are_there_more_than_once(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        count = dice.randint(1, 60)
        rows = [
            (dice.choice("ab"), dice.choice(("0000cafe", "00000001")), dice.randint(1, 15), dice.randint(0, 2))
            for _ in range(count)
        ]
        names = ("origin", "epoch", "seq", "record")
        found = count_rows(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), "record").to_pylist()
        numbers = [(one["origin"], one["epoch"], seq) for one in found for seq in range(one["lo"], one["hi"] + 1)]
        assert sorted(numbers) == sorted({row[:3] for row in rows})
        for one in found:
            inside = Counter(
                row for row in rows if row[:2] == (one["origin"], one["epoch"]) and one["lo"] <= row[2] <= one["hi"]
            )
            assert one["more"] == inside.total() - len(inside)


@pytest.mark.parametrize("table", [BRONZE_MESSAGES, READINGS], ids=lambda table: table.name)
def test_rows_that_another_file_repeats_are_found(lake: Lake, table: Table) -> None:
    tables = Tables(lake.spark, lake.folder)
    file = tables.files(table)[0]
    rows = tables.read_files(table, [file])
    tables.append(table, [write_rows(tables.of(table), table, 0, rows, file.partition)], None)
    checks = verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12)
    (found,) = (one for one in checks if (one.check, one.table) == ("each row once", table.name))
    assert found.faults == len(rows)
    assert (found.detail or "").startswith("garage 0000cafe in ")
