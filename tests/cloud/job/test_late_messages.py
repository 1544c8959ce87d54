"""Messages that come late, and devices that begin anew: nothing is lost, and the views say so."""

import os
from pathlib import Path

import pyarrow.parquet as pq

from cloud import OpenTables
from cloud.tables.schema import LEDGER
from cloud.tables.tables import Tables
from tests.cloud.lake import Lake
from tests.cloud.messages import BASE_TIME_S, EPOCH, land, row

LATE_S = 30 * 86_400
NEW_EPOCH = 0xBEEF


def shares(lake: Lake) -> list[tuple[object, ...]]:
    with OpenTables(lake.folder) as views:
        columns = "origin, epoch, first, last, arrived, missing, share"
        return views.select(f"SELECT {columns} FROM completeness ORDER BY ALL").rows


def gaps(lake: Lake) -> list[tuple[object, ...]]:
    with OpenTables(lake.folder) as views:
        return views.select("SELECT origin, epoch, lo, hi, place, reason FROM gaps ORDER BY ALL").rows


def test_backfill_of_a_device_that_was_offline_for_30_days_is_taken_in_whole(lake: Lake) -> None:
    """Its landing file looks 30 days old too, as one that was copied with its times."""
    offline = [row(seq, "attic") for seq in range(1, 101)]
    now_ms = (BASE_TIME_S + LATE_S) * 1000
    online = [row(seq)._replace(received_ms=now_ms, landed_ms=now_ms) for seq in range(1, 11)]
    for boot, some in enumerate((online[:5], offline[98:], online[5:]), 1):
        land(lake.landing, some, boot=boot)
        lake.ingest()
    assert gaps(lake) == [("attic", "0000cafe", 1, 98, "head", "unknown")]
    land(lake.landing, [one._replace(landed_ms=now_ms) for one in offline], boot=4)
    for path in lake.landing.glob("*-00000004-*"):
        os.utime(path, (BASE_TIME_S, BASE_TIME_S))
    report = lake.ingest()
    assert (report.new, report.duplicates, report.readings) == (98, 2, 196)
    lake.check([*online, *offline])
    assert gaps(lake) == []
    assert shares(lake) == [("attic", "0000cafe", 1, 100, 100, 0, 1.0), ("garage", "0000cafe", 1, 10, 10, 0, 1.0)]


def test_a_message_that_comes_again_is_compared_only_with_files_that_may_hold_it(lake: Lake) -> None:
    """Also where the ledger has joined the intervals of many batches: a look at all their files takes minutes."""
    for batch in range(5):
        some = [row(10 * batch + seq, origin) for origin in ("attic", "garage") for seq in range(1, 11)]
        land(lake.landing, some, boot=batch + 1)
        lake.ingest()
    join_ledger(lake)
    empty = [file for file in (lake.folder / "bronze_messages").rglob("*.parquet") if not holds(file, 25)]
    assert len(empty) == 4
    for file in empty:
        file.write_bytes(b"")
    land(lake.landing, [row(25), row(26, "attic", b"another")], boot=6)
    report = lake.ingest()
    assert (report.new, report.duplicates, report.quarantined) == (0, 1, 1)


def join_ledger(lake: Lake) -> None:
    """Makes one interval of those of all batches of an origin, as the ledger does after many batches."""
    tables = Tables(lake.spark, lake.folder)
    files = tables.files(LEDGER)
    rows = tables.rows(LEDGER, LEDGER.column_names)
    limits = [("lo", "min"), ("hi", "max"), ("first_batch", "min"), ("batch", "max")]
    joined = rows.group_by(["origin", "epoch"]).aggregate(limits)
    names = {f"{name}_{how}": name for name, how in limits}
    tables.replace(LEDGER, files, joined.rename_columns([names.get(one, one) for one in joined.column_names]))


def holds(file: Path, seq: int) -> bool:
    return seq in pq.ParquetFile(file).read(["seq"])["seq"].to_pylist()


def test_both_lives_of_a_device_whose_store_was_made_anew_are_complete(lake: Lake) -> None:
    first = [row(seq, epoch=EPOCH) for seq in range(1, 31)]
    second = [row(seq, epoch=NEW_EPOCH, content=row(seq + 100).payload) for seq in range(1, 21)]
    land(lake.landing, first[:10], [*second[:5], *first[20:]])
    lake.ingest()
    assert gaps(lake) == [("garage", "0000cafe", 11, 20, "middle", "unknown")]
    land(lake.landing, [*second[5:], *first[10:20]], boot=2)
    assert (lake.ingest().new, gaps(lake)) == (25, [])
    lake.check([*first, *second])
    assert shares(lake) == [("garage", "0000beef", 1, 20, 20, 0, 1.0), ("garage", "0000cafe", 1, 30, 30, 0, 1.0)]
