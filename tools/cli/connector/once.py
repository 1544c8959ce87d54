"""A line that is opened once, used, and closed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.connectors.wire import Far, Wire
from host.errors import HostError

OPEN_S = 10.0

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

    task = asyncio.create_task(far.keep_open(use_once))
    opened = asyncio.create_task(is_open.wait())
    try:
        await asyncio.wait((task, opened), timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        if not is_open.is_set():
            raise Unreachable(f"{place}: {far.problem or 'no such port'}")
        while not found.done():
            await asyncio.wait((task, found), timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            if far.problem:
                raise Unreachable(f"{place}: {far.problem}")
            if task.done():
                task.result()
        return found.result()
    finally:
        for one in (task, opened):
            one.cancel()
        await asyncio.gather(task, opened, return_exceptions=True)
