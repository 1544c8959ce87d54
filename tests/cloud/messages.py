"""Messages as a lander lands them, and landing folders with them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from cloud.landing.file import Row
from cloud.landing.folder import LandingFolder
from cloud.landing.manifest import Manifest

EPOCH = 0xCAFE
BASE_TIME_S = 1_760_000_000


def payload(origin: str, seq: int, metrics: Sequence[str] = ("load", "memory")) -> bytes:
    """Returns a SenML pack as a device makes it."""
    first = {"bn": f"{origin}:", "bt": BASE_TIME_S + seq, "boot": 2, "up": 1000 * seq}
    records = [{"n": metric, "v": seq + 0.5} for metric in metrics]
    return json.dumps([first | records[0], *records[1:]]).encode()


def row(seq: int, origin: str = "garage", content: bytes | None = None, epoch: int = EPOCH) -> Row:
    return Row(
        origin=origin,
        epoch=epoch,
        seq=seq,
        received_ms=BASE_TIME_S * 1000 + seq,
        gateway="gw-1",
        landed_ms=BASE_TIME_S * 1000 + seq + 7,
        topic=f"telemetry/{origin}",
        qos=1,
        retain=False,
        content_type="application/senml+json",
        payload=payload(origin, seq) if content is None else content,
        lander="lander-1",
    )


def land(landing: Path, *files: Iterable[Row], lander: str = "lander-1", boot: int = 1) -> list[Manifest]:
    """Lands each of `files` as one landing file."""
    folder = LandingFolder(landing, lander, boot)
    try:
        return [folder.land(list(rows)) for rows in files]
    finally:
        folder.close()
