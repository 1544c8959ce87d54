"""Waking, sending and sleeping, decision by decision and over a simulated year."""

import random

import pytest

from device.sleeper import ASLEEP, BACKOFF_MAX, SAMPLING, SENDING, Duty, is_filling, sleep_ms

EVERY, AWAKE_MS = 12, 20_000


def woken(samples: int | None = 0, failures: int = 0) -> Duty:
    return Duty(EVERY, AWAKE_MS, samples, failures)


def test_device_stays_awake_until_its_sample_is_stored() -> None:
    duty = woken()
    assert duty.advance(0, False, 3, False) == SAMPLING
    assert duty.advance(750, True, 4, False) == ASLEEP
    assert duty.samples == 1


@pytest.mark.parametrize(
    ("samples", "filling", "phase"),
    [(EVERY - 1, False, SENDING), (EVERY - 2, False, ASLEEP), (0, True, SENDING), (None, False, SENDING)],
    ids=["n-th sample", "one before", "store fills", "power returned"],
)
def test_radio_is_wanted_each_nth_time_and_when_the_store_fills(samples: int | None, filling: bool, phase: str) -> None:
    assert woken(samples).advance(0, True, 1, filling) == phase


def test_without_a_message_there_is_no_reason_to_connect() -> None:
    assert woken(None).advance(0, True, 0, False) == ASLEEP


def test_drained_store_ends_the_connection_and_the_count_begins_anew() -> None:
    duty = woken(None, failures=2)
    duty.failures = 0
    duty.advance(0, True, 12, False)
    assert duty.next_timer_ms() == AWAKE_MS
    assert duty.advance(500, True, 3, False) == SENDING
    assert duty.advance(900, True, 0, False) == ASLEEP
    assert (duty.samples, duty.failures, duty.next_timer_ms()) == (0, 0, None)


def test_broker_that_is_away_is_tried_less_and_less_often() -> None:
    samples, failures, attempts = 0, 0, []
    for wake in range(1, 40 * EVERY):
        duty = woken(samples, failures)
        if duty.advance(0, True, wake, False) == SENDING:
            attempts.append(wake)
            assert duty.advance(AWAKE_MS - 1, True, wake, False) == SENDING
            assert duty.advance(AWAKE_MS, True, wake, False) == ASLEEP
        samples, failures = duty.samples, duty.failures
    waits = [later - earlier for earlier, later in zip([0, *attempts], attempts, strict=False)]
    assert waits[:5] == [EVERY, 2 * EVERY, 4 * EVERY, BACKOFF_MAX * EVERY, BACKOFF_MAX * EVERY]


def test_store_that_fills_without_a_broker_does_not_turn_the_radio_on_each_time() -> None:
    assert woken(0, failures=2).advance(0, True, 9, True) == ASLEEP
    assert woken(3, failures=2).advance(0, True, 9, True) == SENDING


def test_what_could_not_all_be_sent_goes_on_next_time() -> None:
    duty = woken(None, failures=0)
    duty.advance(0, True, 100, False)
    assert duty.advance(AWAKE_MS, True, 40, False) == ASLEEP
    assert duty.failures == 0
    assert woken(duty.samples).advance(0, True, 41, False) == SENDING


def test_store_is_filling_when_what_waits_takes_three_quarters_of_it() -> None:
    a_sector_full = 4096 // 128
    assert not is_filling(45 * a_sector_full, 96, 64)
    assert is_filling(45 * a_sector_full + 1, 96, 64)
    assert not is_filling(1000, 0, 64)


def test_sleep_lasts_until_the_next_sample_but_never_less_than_waking_takes() -> None:
    assert sleep_ms(600_000, 2_000) == 598_000
    assert sleep_ms(600_000, 600_000) == sleep_ms(600_000, 700_000) == 1_000


def test_year_with_outages_loses_no_sample_and_drains_the_store_after_each(seed: int) -> None:
    """The broker is away for up to a week at a time, and may go away again before the device has noticed that it was
    back. Once it stays for as long as the longest wait between two attempts, nothing of the outage is left."""
    chance = random.Random(seed)
    samples, failures, waiting, sent, connections = 0, 0, 0, 0, 0
    away_until, made = 0, 365 * 144
    for wake in range(made):
        waiting += 1
        if wake >= away_until and chance.random() < 0.002:
            away_until = wake + chance.randrange(1008)
        duty = woken(samples, failures)
        if duty.advance(0, True, waiting, waiting > 1500) == SENDING:
            connections += 1
            if wake >= away_until:
                sent, waiting = sent + waiting, 0
                duty.advance(700, True, waiting, False)
            else:
                duty.advance(AWAKE_MS, True, waiting, False)
        assert duty.phase == ASLEEP
        samples, failures = duty.samples, duty.failures
        if wake >= away_until + BACKOFF_MAX * EVERY:
            assert waiting < EVERY
    assert sent + waiting == made
    assert connections <= made / EVERY + 1
