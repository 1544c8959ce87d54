"""Receipts of many origins: made from the tables, signed, and acknowledged by a gateway."""

import time
from collections.abc import Iterator
from pathlib import Path

from cloud.receipts.receipts import open_receipts
from cloud.receipts.signing import SigningKey
from cloud.tables.schema import LEDGER
from cloud.tables.tables import Tables
from host.credentials import Credentials
from host.server import parse_server
from tools.cli.tables.publishing import publish_receipts
from tools.lab.figure import Figure
from tools.lab.testing.gateway import Gateway
from wire.receipt import RECEIPT_BYTES_MAX

BATCHES = 64
"""As many as the ledger has at most before neighbours become one interval."""


def receipts(place: Path, origins: int) -> Iterator[Figure]:
    """Measures the receipts of origins of which half have a gap in each batch."""
    landing = place / "landing"
    landing.mkdir(parents=True)
    tables = Tables(None, place / "tables")
    tables.create_missing()
    for batch in range(1, BATCHES + 1):
        first = 10_000_000 * batch
        spans = [
            (f"device-{one}", f"{one:08x}", first, first + 9_999_999 - one % 2, batch, batch) for one in range(origins)
        ]
        tables.append_values(LEDGER, spans, None)
    key = SigningKey.create(place / "receipts.key")
    gateway = Gateway(place, rules="allow * publish,subscribe hf/receipt/#\n")
    gateway.start()
    gateway.wait_ready()
    try:
        began = time.monotonic()
        with open_receipts(tables.folder, landing, key) as made:
            publish_receipts(made, parse_server(f"mqtt://127.0.0.1:{gateway.port}"), Credentials(), everything=False)
        took = time.monotonic() - began
    finally:
        gateway.stop()
    with open_receipts(tables.folder, landing, key) as made:
        largest = max(len(payload) for _, payload in made.of_origins())
    yield Figure(f"receipts of {origins:,} origins, signed, at a gateway", "s", took, None, 10, at_most=True)
    yield Figure("the largest receipt", "bytes", largest, None, RECEIPT_BYTES_MAX, at_most=True)
