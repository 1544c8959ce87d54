"""A day of numbers in a bounded memory."""

import math
import sys
from math import isnan

import pytest

from gateway.page.history import SERIES_MAX, SLOT_S, SLOTS, History

START_S = 1_700_000_100.0 // SLOT_S * SLOT_S


def test_slots_without_a_number_are_not_known_and_not_zero() -> None:
    history = History()
    history.begin(START_S)
    history.add("came", 5)
    history.begin(START_S + 3 * SLOT_S)
    history.add("came", 7)
    points = history.points("came")
    assert points[-1] == 7 and points[-4] == 5
    assert isnan(points[-2]) and isnan(points[-3]) and isnan(points[0])
    assert len(points) == SLOTS


def test_slot_has_the_sum_the_largest_or_the_last() -> None:
    history = History()
    history.begin(START_S)
    for value in (1.0, 5.0, 2.0):
        history.add("sum", value)
        history.note_most("most", value)
        history.note_last("last", value)
    assert [history.points(name)[-1] for name in ("sum", "most", "last")] == [8.0, 5.0, 2.0]


def test_what_is_older_than_a_day_is_gone() -> None:
    history = History()
    for slot in range(SLOTS + 10):
        history.begin(START_S + slot * SLOT_S)
        history.note_last("left", slot)
    assert history.points("left") == list(range(10, SLOTS + 10))
    history.begin(START_S + 5 * SLOTS * SLOT_S)
    assert all(map(isnan, history.points("left")))


def test_history_begins_anew_when_the_clock_is_set_back() -> None:
    history = History()
    history.begin(START_S)
    history.add("came", 1)
    history.begin(START_S - 3600)
    history.add("came", 2)
    assert [one for one in history.points("came") if not isnan(one)] == [2]


def test_memory_is_bounded_however_many_series_there_are() -> None:
    history = History()
    history.begin(START_S)
    for number in range(1000):
        history.add(f"route {number}", 1)
    assert isnan(history.points("route 999")[-1]) and history.points("route 5")[-1] == 1
    assert SERIES_MAX * sys.getsizeof(history.points("route 5")) < 400_000


@pytest.mark.parametrize(("minutes", "expected"), [(5, None), (9, None), (30, -100.0), (600, -100.0)])
def test_pace_is_known_after_ten_minutes_and_is_that_of_the_last_hour(minutes: int, expected: float | None) -> None:
    history = History()
    for second in range(0, minutes * 60 + 1, 30):
        history.begin(START_S + second)
        history.note_last("left", 1e9 - 100 * second)
    pace = history.pace("left", START_S + minutes * 60)
    assert pace is None if expected is None else math.isclose(pace or 0, expected, rel_tol=0.1)


def test_pace_of_what_was_never_noted_is_not_known() -> None:
    assert History().pace("left", START_S) is None
