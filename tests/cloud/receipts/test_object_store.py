"""Receipts of tables in an object store, where jobs take turns."""

from datetime import UTC, datetime

import pytest

from cloud import JobRunning, open_receipts
from cloud.storage.place import open_storage
from cloud.tables.schema import INGESTED, LANDING_FILES, LEDGER
from cloud.tables.tables import Tables
from tests.cloud.object_store import Server
from wire.receipt import Settled, decode_landed, decode_receipt


def test_receipts_are_made_in_a_turn_and_the_next_one_may_follow(server: Server) -> None:
    landing, folder = server.url("landing"), server.url("tables")
    tables = Tables(None, folder)
    tables.create_missing()
    tables.append_values(LEDGER, [("garage", "0000001f", 1, 9, 1, 1)], None)
    file = ("lander-1-00000001-00000001.parquet", "lander-1", 1, 1, 9, 9, "", INGESTED, None, 1, datetime.now(UTC))
    tables.append_values(LANDING_FILES, [file], None)
    open_storage(landing).write("lander-1-00000001-00000002.json", b"{}")
    for _ in range(2):
        with open_receipts(folder, landing) as receipts:
            ((topic, payload),) = receipts.of_origins()
            assert (topic, decode_receipt(payload).epochs) == ("hf/receipt/garage", [Settled(0x1F, 9, [])])
            assert decode_landed(receipts.landed()[1]).landed_ms == 0
            with pytest.raises(JobRunning), open_receipts(folder, landing):
                pass
