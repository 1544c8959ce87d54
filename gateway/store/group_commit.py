"""Group commit: what gathers while one commit runs goes into the next one, with one sync for all of it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupCommit(Generic[Item, Result]):
    """Commits items in the order they were submitted, in groups, on one thread of its own.

    When a commit fails, what was submitted behind it fails too: nothing overtakes what has to be submitted again.

    Args:
        commit: commits a group durably and returns one result an item; runs on the thread, may raise.
        committed: told of each group that is durable, on the event loop, before anybody else.
        interval_s: shortest time between the starts of two commits, in seconds.
    """

    def __init__(
        self,
        commit: Callable[[list[Item]], list[Result]],
        committed: Callable[[list[Item], list[Result]], None],
        interval_s: float = 0.0,
    ) -> None:
        self._commit = commit
        self._committed = committed
        self._interval_s = interval_s
        self._gathered: list[tuple[Item, asyncio.Future[Result]]] = []
        self._arrived = asyncio.Event()
        self.closing = False
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._task = self._loop.create_task(self._run())

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Takes an item; the future resolves once it is durable, or raises what its group's commit raised."""
        if self.closing:
            raise RuntimeError("the store is closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._gathered.append((item, future))
        self._arrived.set()
        return future

    async def close(self) -> None:
        """Commits what has gathered, then ends the thread."""
        self.closing = True
        self._arrived.set()
        await self._task
        await self._loop.run_in_executor(None, self._thread.shutdown)

    async def _run(self) -> None:
        while self._gathered or not self.closing:
            await self._arrived.wait()
            self._arrived.clear()
            started_s = self._loop.time()
            if group := self._gathered:
                self._gathered = []
                await self._commit_group(group)
            if not self.closing and self._interval_s:
                await asyncio.sleep(started_s + self._interval_s - self._loop.time())

    async def _commit_group(self, group: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        items = [item for item, _ in group]
        try:
            results = await self._loop.run_in_executor(self._thread, self._commit, items)
        except Exception as error:
            # Just before those who sent the group hear of it, and send no more.
            self._loop.call_soon(self._fail_what_came_behind, error)
            _fail(group, error)
            await asyncio.sleep(0)
            return
        self._committed(items, results)
        for (_, future), result in zip(group, results, strict=True):
            if not future.done():
                future.set_result(result)

    def _fail_what_came_behind(self, error: Exception) -> None:
        behind, self._gathered = self._gathered, []
        _fail(behind, error)


def _fail(group: list[tuple[Item, asyncio.Future[Result]]], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)


def pass_on(done: asyncio.Future[list[int]], position: asyncio.Future[int]) -> None:
    """Resolves a future as that of a group of one message was."""
    if position.cancelled():
        done.exception()
    elif error := done.exception():
        position.set_exception(error)
    else:
        position.set_result(done.result()[0])
