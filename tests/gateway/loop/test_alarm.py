"""A timer that rings at the earliest of the times asked for, on each kind of event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from gateway.loop.alarm import Alarm


class Ringing:
    """Counts the rings; a task may wait for the first."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = asyncio.Event()

    def ring(self) -> None:
        self.count += 1
        self.begun.set()


async def set_it_to_times_that_have_passed() -> int:
    ringing = Ringing()
    alarm = Alarm(ringing.ring)
    now_s = asyncio.get_running_loop().time()
    for seconds in (1, 3, 2):
        alarm.set(now_s - seconds)
    await ringing.begun.wait()
    return ringing.count


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_times_that_have_passed_ring_it_once(run: Callable[[Coroutine[Any, Any, int]], int]) -> None:
    assert run(set_it_to_times_that_have_passed()) == 1
