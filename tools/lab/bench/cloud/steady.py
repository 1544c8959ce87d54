"""What a warm session does with new landing files, beside a plain Spark copy of them."""

from collections.abc import Iterator

from tools.lab.bench.cloud.lake import Lake, without_readings
from tools.lab.figure import Figure

ROUNDS = 3
REPEATED_SHARE = 100
"""One message in this number came before, in a batch with duplicates."""


def steady(lake: Lake, messages: int) -> Iterator[Figure]:
    """Measures batches of ``messages`` messages. The job and the copy take turns, and the best round counts."""
    copied: list[float] = []
    raw: list[float] = []
    readings: list[float] = []
    repeated: list[float] = []
    lake.land(messages)
    lake.copy()
    lake.ingest()
    for _ in range(ROUNDS):
        lake.land(messages)
        copied.append(lake.copy())
        with without_readings():
            raw.append(lake.ingest())
        lake.land(messages)
        copied.append(lake.copy())
        readings.append(lake.ingest())
        lake.land(messages, messages // REPEATED_SHARE)
        repeated.append(lake.ingest())
    plain = messages / min(copied)
    yield Figure("messages and ledger", "1/s", messages / min(raw), plain, 0.9 * plain)
    yield Figure("messages, ledger and readings", "1/s", messages / min(readings), plain, 0.5 * plain)
    ratio = min(repeated) / min(readings)
    yield Figure("time of a batch with 1 % duplicates, of one without", "x", ratio, None, 1.3, at_most=True)
    yield Figure("a batch of one message, warm session", "s", _one_message(lake), None, 2, at_most=True)


def _one_message(lake: Lake) -> float:
    found = []
    for _ in range(5):
        lake.land(1)
        found.append(lake.ingest())
    return sorted(found)[2]
