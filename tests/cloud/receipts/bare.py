"""Tables that are filled row by row, without Spark and the job."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cloud.receipts.receipts import open_receipts
from cloud.receipts.signing import SigningKey
from cloud.tables.data_file import write_rows
from cloud.tables.schema import (
    BATCHES,
    BRONZE_MESSAGES,
    CROSSINGS,
    FORGOTTEN,
    INGESTED,
    LANDING_FILES,
    LEDGER,
    SET_ASIDE,
    STATEMENT_DROPPED,
    STATEMENT_LEFT_OUT,
)
from cloud.tables.tables import Tables
from wire.receipt import LandedUpTo, Receipt, decode_landed, decode_receipt, origin_of_topic

NOON_MS = 1_767_268_800_000
EPOCH = "0000001f"


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


class Bare:
    """Tables in a folder, and the landing folder beside them. Rows are of the epoch 1f, if no other is named."""

    def __init__(self, place: Path) -> None:
        self.folder, self.landing = place / "tables", place / "landing"
        self.landing.mkdir()
        self.tables = Tables(None, self.folder)
        self.tables.create_missing()

    def arrived(self, batch: int, *spans: tuple[Any, ...]) -> None:
        """spans: (origin, lo, hi), and perhaps the epoch."""
        rows = [(origin, *(epoch or [EPOCH]), lo, hi, batch, batch) for origin, lo, hi, *epoch in spans]
        self.tables.append_values(LEDGER, rows, None)

    def crossed(self, batch: int, *origins: str, gateway: str = "barn", epoch: str = EPOCH) -> None:
        rows = [(one, epoch, 1, 1, gateway, "central", "000000aa", 1, 1, 1, batch, batch) for one in origins]
        self.tables.append_values(CROSSINGS, rows, None)

    def left_out(self, batch: int, origin: str, lo: int, hi: int, gateway: str = "barn") -> None:
        row = (gateway, "central", "000000aa", 1, origin, EPOCH, lo, hi, batch)
        self.tables.append_values(STATEMENT_LEFT_OUT, [row], None)

    def dropped(
        self, batch: int, origin: str, first: int, last: int, messages: int | None = None, reason: str = "evicted"
    ) -> None:
        count = last - first + 1 if messages is None else messages
        about = ("barn", "central", "000000aa", 1, reason, "route/central", origin, EPOCH)
        self.tables.append_values(STATEMENT_DROPPED, [(*about, first, last, count, at(NOON_MS), batch)], None)

    def forgotten(self, origin: str, lo: int, hi: int) -> None:
        self.tables.append_values(FORGOTTEN, [(origin, EPOCH, lo, hi, at(NOON_MS))], None)

    def landed(self, batch: int, lander: str, number: int, landed_ms: int | None, boot: int = 1) -> None:
        """A landing file that a batch took in. landed_ms: when its last message came, None if it brought none."""
        file = self.file(lander, number, boot)
        row = (file, lander, boot, number, 1, 1, "", INGESTED, None, batch, at(NOON_MS))
        self.tables.append_values(LANDING_FILES, [row], None)
        if landed_ms is not None:
            message = ("m", EPOCH, 1, "t", b"", 1, False, None, None, None, at(landed_ms), lander, file, batch)
            folder = self.tables.of(BRONZE_MESSAGES)
            day = {"ingest_date": "2026-01-01"}
            written = write_rows(folder, BRONZE_MESSAGES, batch, BRONZE_MESSAGES.of_values([message]), day)
            self.tables.append(BRONZE_MESSAGES, [written], None)

    def set_aside(self, lander: str, number: int) -> None:
        row = (self.file(lander, number), *[None] * 6, SET_ASIDE, "truncated", None, at(NOON_MS))
        self.tables.append_values(LANDING_FILES, [row], None)

    def waits(self, lander: str, number: int, boot: int = 1) -> None:
        """A landing file with its manifest that no batch has taken yet."""
        (self.landing / self.file(lander, number, boot).replace(".parquet", ".json")).write_text("{}")

    def planned(self, batch: int, ms: int) -> None:
        row = (batch, "0" * 32, 1, 1, 1, 0, 0, 0, 0, 1, at(ms), at(ms))
        self.tables.append_values(BATCHES, [row], None)

    @staticmethod
    def file(lander: str, number: int, boot: int = 1) -> str:
        return f"{lander}-{boot:08x}-{number:08d}.parquet"

    def receipts(self, since: int | None = None, key: SigningKey | None = None) -> dict[str, Receipt]:
        """Returns the receipts of origins as their readers see them."""
        with open_receipts(self.folder, self.landing, key) as receipts:
            made = list(receipts.of_origins(since))
        return {origin_of_topic(topic): decode_receipt(payload) for topic, payload in made}

    def landed_up_to(self) -> LandedUpTo:
        with open_receipts(self.folder, self.landing) as receipts:
            found: LandedUpTo = decode_landed(receipts.landed()[1])
        return found
