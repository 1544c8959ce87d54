"""A signal wakes the tasks that wait, in order, and forgets tasks that gave up."""

import asyncio

from gateway.loop.signals import Signal


async def test_it_wakes_all_waiters_in_order_even_if_it_is_cleared_at_once() -> None:
    signal, woken = Signal(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait()
        woken.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert woken == []
    signal.set()
    signal.clear()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert woken == [0, 2, 3]


async def test_a_signal_that_is_set_keeps_no_task_waiting() -> None:
    signal = Signal()
    signal.set()
    await asyncio.wait_for(signal.wait(), 1)
    signal.clear()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    signal.set()
    await waiting
