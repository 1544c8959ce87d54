"""A device is unusually silent by its own rhythm, and by no other."""

import pytest

from gateway.page.rhythm import Rhythm, Rhythms
from gateway.sessions.devices import Heard

START_MS = 1_700_000_000_000


def after(*pauses_s: float) -> Rhythm:
    """The rhythm of a device with these pauses between its messages."""
    rhythm, at_ms = Rhythm(), START_MS
    rhythm.hear(at_ms)
    for pause_s in pauses_s:
        at_ms += int(1000 * pause_s)
        rhythm.hear(at_ms)
    return rhythm


def silent_for(rhythm: Rhythm, seconds: float) -> bool:
    return rhythm.is_silent(rhythm.last_ms + int(1000 * seconds))


@pytest.mark.parametrize("pauses", [0, 1, 2])
def test_rhythm_of_a_few_messages_is_not_known(pauses: int) -> None:
    rhythm = after(*[60.0] * pauses)
    assert rhythm.usual_s == 0.0
    assert not silent_for(rhythm, 1e6)


def test_device_is_silent_after_three_times_its_usual_pause() -> None:
    rhythm = after(60, 60, 60, 60)
    assert not silent_for(rhythm, 150)
    assert silent_for(rhythm, 185)


def test_fast_device_may_pause_for_half_a_minute() -> None:
    rhythm = after(1, 1, 1, 1)
    assert not silent_for(rhythm, 29)
    assert silent_for(rhythm, 31)


def test_device_that_sends_once_an_hour_is_not_missed_after_two() -> None:
    rhythm = after(3600, 3600, 3600)
    assert not silent_for(rhythm, 7200)
    assert silent_for(rhythm, 11_000)


def test_pause_between_bursts_is_usual_however_many_messages_a_burst_has() -> None:
    rhythm = after(*([1.0] * 50 + [600.0]) * 3)
    assert 500 < rhythm.usual_s <= 600
    assert not silent_for(rhythm, 1400)


def test_nights_without_messages_become_usual() -> None:
    day = [600.0] * 72 + [43_200.0]
    assert not silent_for(after(*day * 3), 43_300)


def test_one_outage_does_not_make_a_long_silence_usual() -> None:
    rhythm = after(*[10.0] * 20, 36_000.0, *[10.0] * 20)
    assert rhythm.usual_s <= 10
    assert silent_for(rhythm, 60)


def test_rhythm_follows_a_device_that_sends_more_often() -> None:
    rhythm = after(*[600.0] * 10, *[10.0] * 20_000)
    assert rhythm.usual_s < 60


def test_clock_that_is_set_back_makes_no_device_silent() -> None:
    rhythm = after(60, 60, 60, 60)
    rhythm.hear(START_MS - 3_600_000)
    assert rhythm.usual_s == pytest.approx(60, rel=0.2)
    assert not silent_for(rhythm, 60)


def test_devices_that_are_forgotten_take_no_memory() -> None:
    rhythms, heard = Rhythms(), Heard()
    heard.at_ms = START_MS
    rhythms.look({"a": heard, "b": Heard()})
    assert rhythms.get("a") is not None and rhythms.get("b") is None
    rhythms.forget({})
    assert rhythms.get("a") is None
