"""Landing files of a simulated fleet, as many as a benchmark needs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.file import SCHEMA, Row, join
from cloud.landing.folder import LandingFolder
from tools.lab.bench.batch.fleet import BME280, Sent, sent_by_fleet

DEVICES = 1000
FILE_ROWS = 100_000
GATEWAY = "gateway-1"
LANDER = "lander-1"


class Fleet:
    """Lands messages of DEVICES devices with a BME280, three readings in SenML JSON each.

    The payloads of a file come again in the next file, under other numbers: to make them takes longer than all else.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        sent = sent_by_fleet(FILE_ROWS, DEVICES, BME280, "JSON", seed)
        self._rows = join(map(_row, sent))
        self._landed = 0

    def land(self, messages: int, repeated: int = 0, boot: int = 1) -> int:
        """Lands new messages, and of those that landed before, the last `repeated` once more. Returns the bytes."""
        lander = LandingFolder(self.folder, LANDER, boot)
        size = 0
        try:
            while messages:
                rows = self._next(min(messages, FILE_ROWS))
                messages -= len(rows)
                again = self._before(min(repeated, FILE_ROWS)) if repeated else []
                repeated -= len(again)
                described = lander.land([rows, *([again] if len(again) else [])])
                size += described.bytes
        finally:
            lander.close()
        return size + sum(path.stat().st_size for path in self.folder.glob("*.json"))

    def _next(self, rows: int) -> pa.Table:
        found = self._shifted(self._landed, rows)
        self._landed += rows
        return found

    def _before(self, rows: int) -> pa.Table:
        """Returns messages that landed in the round before."""
        return self._shifted(max(0, self._landed - 10 * FILE_ROWS), rows)

    def _shifted(self, place: int, rows: int) -> pa.Table:
        """Returns messages from a place in the endless stream of the fleet."""
        rounds, first = divmod(place, FILE_ROWS)
        rows = min(rows, FILE_ROWS - first)
        seqs = pc.add(self._rows["seq"], rounds * (FILE_ROWS // DEVICES))
        return self._rows.set_column(2, SCHEMA.field("seq"), seqs).slice(first, rows)


def _row(sent: Sent) -> Row:
    return Row(
        origin=sent.origin,
        epoch=sent.epoch,
        seq=sent.seq,
        received_ms=sent.received_ms,
        gateway=GATEWAY,
        landed_ms=sent.received_ms + 40,
        topic=sent.topic,
        qos=1,
        retain=False,
        content_type=sent.content_type,
        payload=sent.payload,
        lander=LANDER,
    )
