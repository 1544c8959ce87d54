"""One timer calls each waiter at its own time, and keeps none in memory."""

import asyncio
import gc
import tracemalloc
import weakref

import pytest
import uvloop

from gateway.loop.timers import TICK_MS, Timers


class Sleeper:
    """Wants to be called at some times, one after the other."""

    def __init__(self, *dues_ms: int) -> None:
        self.tick = 0
        self.calls_ms: list[int] = []
        self.done = asyncio.Event()
        self._dues_ms = list(dues_ms)

    def next_ms(self) -> int | None:
        return self._dues_ms.pop(0) if self._dues_ms else None

    def handle_timer(self, now_ms: int) -> int | None:
        self.calls_ms.append(now_ms)
        if not self._dues_ms:
            self.done.set()
        return self.next_ms()


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def be_late() -> None:
    timers, start = Timers(), now_ms()
    sleepers = [Sleeper(start - 1000 * seconds) for seconds in (5, 6, 7)]
    for sleeper in sleepers:
        timers.set(sleeper, sleeper.next_ms())
    for sleeper in sleepers:
        await sleeper.done.wait()


def test_a_gateway_that_is_late_calls_every_waiter_on_its_own_loop_too() -> None:
    uvloop.run(be_late())


async def test_each_is_called_at_its_time_and_not_before() -> None:
    timers, start = Timers(), now_ms()
    late, twice, past = Sleeper(start + 700), Sleeper(start + 10, start + 400), Sleeper(start - 5000)
    for sleeper in (late, twice, past):
        timers.set(sleeper, sleeper.next_ms())
    for sleeper in (late, twice, past):
        await sleeper.done.wait()
    assert late.calls_ms[0] >= start + 700
    assert [moment >= due for moment, due in zip(twice.calls_ms, (start + 10, start + 400), strict=True)] == [
        True,
        True,
    ]
    assert past.calls_ms[0] < late.calls_ms[0]


async def test_a_waiter_whose_time_has_changed_is_called_then_only() -> None:
    timers, start = Timers(), now_ms()
    sooner, later, other = Sleeper(), Sleeper(), Sleeper()
    timers.set(sooner, start + 3_600_000)
    timers.set(later, start)
    timers.set(other, start + 300)
    timers.set(sooner, start)
    timers.set(later, start + 3_600_000)
    await asyncio.gather(sooner.done.wait(), other.done.wait())
    assert not later.calls_ms
    timers.close()


async def test_one_that_ends_another_keeps_it_from_being_called() -> None:
    timers, start = Timers(), now_ms()

    class Murderer(Sleeper):
        def handle_timer(self, now_ms: int) -> int | None:
            timers.set(victim, None)
            return super().handle_timer(now_ms)

    murderer, victim, other = Murderer(), Sleeper(), Sleeper()
    for sleeper, due_ms in ((murderer, start), (victim, start), (other, start + 1)):
        timers.set(sleeper, due_ms)
    await other.done.wait()
    assert murderer.calls_ms and not victim.calls_ms


async def test_a_waiter_that_waits_no_more_is_forgotten() -> None:
    timers, sleeper = Timers(), Sleeper()
    timers.set(sleeper, now_ms() + 3_600_000)
    timers.set(sleeper, None)
    is_there = weakref.ref(sleeper)
    gc.disable()
    try:
        del sleeper
        assert is_there() is None
    finally:
        gc.enable()


async def test_one_that_fails_costs_others_nothing() -> None:
    timers, start = Timers(), now_ms()

    class Failing(Sleeper):
        def handle_timer(self, now_ms: int) -> int | None:
            raise RuntimeError("of a test")

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    failing, other, last = Failing(), Sleeper(), Sleeper()
    for sleeper, due_ms in ((failing, start), (other, start), (last, start + 300)):
        timers.set(sleeper, due_ms)
    await asyncio.gather(other.done.wait(), last.done.wait())
    assert not failing.tick


async def test_those_that_are_due_together_leave_other_tasks_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here each call takes a whole slice."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    timers, start = Timers(), now_ms()
    sleepers = [Sleeper(start - 1000) for _ in range(20)]
    for sleeper in sleepers:
        timers.set(sleeper, sleeper.next_ms())
    called = most = 0
    while called < len(sleepers):
        await asyncio.sleep(0)
        before, called = called, sum(bool(sleeper.calls_ms) for sleeper in sleepers)
        most = max(most, called - before)
    assert most == 1


async def test_times_that_move_again_and_again_take_no_memory() -> None:
    timers, start = Timers(), now_ms()
    near, far = Sleeper(start + 3_600_000), Sleeper()
    timers.set(near, near.next_ms())
    tracemalloc.start()
    try:
        for number in range(1, 20_001):
            timers.set(far, start + 7_200_000 + number * TICK_MS)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        timers.close()
    assert size < 20_000
