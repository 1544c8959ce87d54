"""A line that is opened once, used, and closed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.connectors.wire import Far, Wire
from host.errors import HostError

OPEN_S = 10.0
LOOK_S = 0.1

Found = TypeVar("Found")


class Unreachable(HostError):
    """A port cannot be opened. The text says why."""


async def using(far: Far, place: str, use: Callable[[Wire], Awaitable[Found]]) -> Found:
    """Opens a line, uses it, and closes it. Raises Unreachable: it cannot be opened, or goes meanwhile."""
    is_open = asyncio.Event()
    found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    async def use_once(wire: Wire) -> None:
        is_open.set()
        result = await use(wire)
        if not found.done():
            found.set_result(result)
        await asyncio.Event().wait()

    logged = logging.getLogger("gateway")
    level = logged.level
    logged.setLevel(logging.CRITICAL)  # a gateway says that it tries again
    task = asyncio.create_task(far.keep_open(use_once))
    opened = asyncio.create_task(is_open.wait())
    try:
        until_s = time.monotonic() + OPEN_S
        while not (is_open.is_set() or task.done() or far.problem) and time.monotonic() < until_s:
            await asyncio.wait((task, opened), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        if not is_open.is_set():
            raise Unreachable(f"{place}: {far.problem or 'it cannot be opened'}")
        while not found.done():
            await asyncio.wait((task, found), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if far.problem:
                raise Unreachable(f"{place}: {far.problem}")
            if task.done():
                task.result()
        return found.result()
    finally:
        logged.setLevel(level)
        for one in (task, opened):
            one.cancel()
        await asyncio.gather(task, opened, return_exceptions=True)
