"""Which readings are sent, and that silence is never ambiguous."""

import itertools
import random
from collections.abc import Iterable

from device.readings import DeadBand

HEARTBEAT_MS = 60_000
INTERVAL_MS = 1_000
BANDS = {"air.temperature": (0.5, HEARTBEAT_MS), "air.error": (0, HEARTBEAT_MS)}


def sent(band: DeadBand, values: Iterable[tuple[int, float | str | None]]) -> list[float | str]:
    """The values of the one metric that are sent, of those at these moments; a text is an error, None nothing."""
    out: list[float | str] = []
    for now_ms, value in values:
        name, unit = ("air.error", None) if isinstance(value, str) else ("air.temperature", "Cel")
        chosen = band.choose([] if value is None else [(name, unit, value)], now_ms)
        band.note(chosen, now_ms)
        out += [sent_value for _, _, sent_value in chosen]
    return out


def test_small_changes_wait_until_they_add_up() -> None:
    values = enumerate([20.0, 20.2, 20.4, 20.5, 20.3, 20.1, 20.0, 19.5])
    assert sent(DeadBand(BANDS, INTERVAL_MS), values) == [20.0, 20.5, 20.0, 19.5]


def test_metric_without_a_threshold_is_always_sent() -> None:
    band = DeadBand(BANDS, INTERVAL_MS)
    samples = [("load", "/", 1.0), ("air.temperature", "Cel", 20.0)]
    assert band.choose(samples, 0) == samples
    band.note(samples, 0)
    assert band.choose(samples, INTERVAL_MS) == samples[:1]


def test_silence_never_lasts_longer_than_the_heartbeat(seed: int) -> None:
    chance = random.Random(seed)
    band = DeadBand(BANDS, INTERVAL_MS)
    heard_ms = [0]
    for number in range(2000):
        now_ms = number * INTERVAL_MS + chance.randrange(5)  # a sample is a little late at times
        samples = [("air.temperature", "Cel", 20 + chance.random() / 10)]
        if band.choose(samples, now_ms):
            band.note(samples, now_ms)
            heard_ms.append(now_ms)
    silences = [later - earlier for earlier, later in itertools.pairwise(heard_ms)]
    assert max(silences) <= HEARTBEAT_MS + 5
    assert len(heard_ms) < 2000 // 50


def test_failure_is_told_once_and_then_with_the_heartbeat() -> None:
    values = [(now_ms, "no answer") for now_ms in range(0, 125_000, INTERVAL_MS)]
    assert sent(DeadBand(BANDS, INTERVAL_MS), values) == 3 * ["no answer"]


def test_other_reason_and_recovery_are_told_at_once() -> None:
    values: list[float | str | None] = [20.0, "no answer", "no answer", "wrong checksum", 20.0, 20.1, "no answer"]
    expected = [20.0, "no answer", "wrong checksum", 20.0, "no answer"]
    assert sent(DeadBand(BANDS, INTERVAL_MS), enumerate(values)) == expected


def test_reading_that_was_not_stored_is_tried_again() -> None:
    band = DeadBand(BANDS, INTERVAL_MS)
    samples = [("air.temperature", "Cel", 20.0)]
    assert band.choose(samples, 0) == band.choose(samples, INTERVAL_MS) == samples
