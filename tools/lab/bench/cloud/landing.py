"""Landing files of a simulated fleet, as many as a benchmark needs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.file import LINK, SCHEMA, Row, join
from cloud.landing.folder import LandingFolder
from tools.lab.bench.batch.fleet import BME280, Sent, sent_by_fleet

DEVICES = 1000
FILE_ROWS = 100_000
GATEWAY = "gateway-1"
LANDER = "lander-1"
LOST_EACH = 9973
"""One message in this number never lands, in a fleet with losses. It is prime: each device loses some."""


class Fleet:
    """Lands messages of devices with a BME280, three readings in SenML JSON each.

    The payloads of a file come again in the next file, under other numbers: to make them takes longer than all else.
    """

    def __init__(self, folder: Path, seed: int, devices: int = DEVICES, *, has_losses: bool = False) -> None:
        """has_losses: whether messages have route numbers, and some are lost on it."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        sent = sent_by_fleet(FILE_ROWS, devices, BME280, "JSON", seed)
        self._rows = join(map(_row, sent))
        self._devices = devices
        self._has_losses = has_losses
        self._landed = 0

    def land(self, messages: int, repeated: int = 0, boot: int = 1) -> int:
        """Lands new messages, and once more some from the middle of the landed ones. Returns the bytes."""
        lander = LandingFolder(self.folder, LANDER, boot)
        size = 0
        try:
            while messages:
                made = self._landed
                rows = self._next(min(messages, FILE_ROWS))
                messages -= self._landed - made
                again = self._before(min(repeated, FILE_ROWS)) if repeated else []
                repeated -= len(again)
                described = lander.land([rows, *([again] if len(again) else [])])
                size += described.bytes
        finally:
            lander.close()
        return size + sum(path.stat().st_size for path in self.folder.glob("*.json"))

    def _next(self, rows: int) -> pa.Table:
        found = self._shifted(self._landed, rows)
        self._landed += min(rows, FILE_ROWS - self._landed % FILE_ROWS)
        return found

    def _before(self, rows: int) -> pa.Table:
        """Returns messages from the middle of the landed ones."""
        return self._shifted(self._landed // 2, rows)

    def _shifted(self, place: int, rows: int) -> pa.Table:
        """Returns messages from a place in the endless stream of the fleet."""
        rounds, first = divmod(place, FILE_ROWS)
        rows = min(rows, FILE_ROWS - first)
        seqs = pc.add(self._rows["seq"], rounds * (FILE_ROWS // self._devices))
        found = self._rows.set_column(2, SCHEMA.field("seq"), seqs).slice(first, rows)
        if not self._has_losses:
            return found
        numbers = np.arange(place + 1, place + rows + 1)
        found = found.set_column(SCHEMA.get_field_index("via"), SCHEMA.field("via"), _links(numbers))
        return found.filter(pa.array(numbers % LOST_EACH != 0))


def _links(numbers: np.ndarray) -> pa.ListArray:
    """Returns for each message the number that one route gave it."""
    rows = len(numbers)
    constants = {"epoch": pa.scalar(1, pa.int64()), "gateway": pa.scalar(GATEWAY), "route": pa.scalar("central")}
    columns = {name: pa.repeat(value, rows) for name, value in constants.items()}
    columns["number"] = pa.array(numbers, pa.int64())
    links = pa.StructArray.from_arrays([columns[field.name] for field in LINK], fields=list(LINK))
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), links).cast(pa.list_(LINK))


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
