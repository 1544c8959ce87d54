"""When units are polled: on a grid by a monotonic clock, and a dead unit only where it holds up no other."""

import random

from gateway.connectors.bus import UnitState
from gateway.connectors.modbus.request import Read
from gateway.connectors.poller import Poll, Schedule

PROBE = Read("holding", 0, 1)


def poll(address: int, interval_s: float, *, timeout_s: float = 0.5, cost_s: float = 0.03) -> Poll:
    return Poll(UnitState(address, timeout_s, 60.0, PROBE), f"unit-{address}", [], interval_s, cost_s)


def run(polls: list[Poll], until_s: float, dead: set[int]) -> dict[int, list[float]]:
    """Plays the time: a poll takes as long as it costs, or its unit's timeout. Returns when each unit was asked."""
    now_s, asked = 0.0, {one.unit.address: list[float]() for one in polls}
    schedule = Schedule(polls, now_s)
    while now_s < until_s:
        one, wait_s = schedule.next(now_s)
        if one is None:
            assert wait_s > 0
            now_s += wait_s
            continue
        asked[one.unit.address].append(now_s)
        one.begin(now_s, counts=not one.unit.is_dead)
        if one.unit.address in dead:
            now_s += one.unit.timeout_s
            one.unit.note_silence(now_s)
        else:
            now_s += one.cost_s
            one.unit.failures = 0
    return asked


def test_polls_are_due_on_a_grid_that_lateness_does_not_move() -> None:
    polls = [poll(address, 1.0) for address in range(1, 9)]
    asked = run(polls, 100.0, set())
    for times in asked.values():
        assert len(times) == 100
        assert max(abs(time - times[0] - number) for number, time in enumerate(times)) < 1e-6


def test_dead_units_make_no_other_late_by_more_than_a_twentieth_of_its_interval() -> None:
    polls = [poll(address, 10.0) for address in range(1, 33)]
    dead = {4, 8, 12, 16, 20, 24, 28, 32}
    run(polls, 60.0, dead)  # until the dead units are known
    for one in polls:
        one.late_most_s = 0.0
    asked = run(polls, 600.0, dead)
    assert max(one.late_most_s for one in polls if one.unit.address not in dead) <= 0.5
    assert all(len(asked[address]) >= 5 for address in dead)


def test_a_dead_unit_is_tried_on_a_busy_line_too_but_rarely() -> None:
    busy = [poll(address, 0.1, cost_s=0.05) for address in (1, 2)]
    dead = poll(3, 1.0)
    asked = run([*busy, dead], 3000.0, {3})
    assert 4 <= len(asked[3]) < 60
    assert busy[0].missed > 0


def test_a_unit_that_is_back_is_polled_at_its_interval_again() -> None:
    polls = [poll(1, 1.0), poll(2, 1.0)]
    run(polls, 100.0, {2})
    polls[1].unit.retry_from_s = 5.0  # the time begins anew
    assert len(run(polls, 100.0, set())[2]) > 30


def test_each_poll_is_made_in_the_end_whatever_the_intervals(seed: int) -> None:
    dice = random.Random(seed)
    polls = [poll(address, dice.choice((0.5, 1, 7, 60)), cost_s=dice.uniform(0.001, 0.02)) for address in range(1, 21)]
    asked = run(polls, 300.0, {3, 5})
    for one in polls:
        if one.unit.address not in (3, 5):
            assert len(asked[one.unit.address]) >= 0.9 * 300 / one.interval_s
