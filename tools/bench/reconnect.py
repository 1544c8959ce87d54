"""How many devices call at once when a broker comes back: the firmware's waits beside a fixed one, in virtual time."""

import random
from collections import Counter
from collections.abc import Callable

from device.session import RETRY_LONGEST_MS, RETRY_SHORTEST_MS
from wire.backoff import Backoff

DEVICES = 10_000
OUTAGE_MS = 60_000
FIXED_MS = 5_000


def peaks(seed: int) -> dict[str, float]:
    """Of 10,000 devices that lose their broker at one moment for a minute.

    The most connections in a second once it is back, the seconds until 99 % are there, and the peak of devices that
    try every 5 s.
    """
    random.seed(seed)  # the firmware's chance is the module's
    arrivals = sorted(_arrival_ms(Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS).next_wait_ms) for _ in range(DEVICES))
    fixed = [_arrival_ms(lambda: FIXED_MS) for _ in range(DEVICES)]
    return {
        "devices": DEVICES,
        "peak_per_s": _peak_per_s(arrivals),
        "fixed_peak_per_s": _peak_per_s(fixed),
        "s_until_99_percent": round((arrivals[DEVICES * 99 // 100] - OUTAGE_MS) / 1000, 1),
    }


def _arrival_ms(next_wait_ms: Callable[[], int]) -> int:
    """When a device tries for the first time after the broker is back."""
    now_ms = 0
    while now_ms < OUTAGE_MS:
        now_ms += next_wait_ms()
    return now_ms


def _peak_per_s(arrivals_ms: list[int]) -> int:
    return max(Counter(moment_ms // 1000 for moment_ms in arrivals_ms).values())
