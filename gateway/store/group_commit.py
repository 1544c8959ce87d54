"""Group commit: what gathers while one commit runs goes into the next one, with one sync for all of it."""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Python gives the interpreter to a thread that has waited 5 ms for it. An event loop's slice is as long: where
# the loop is busy, the commit's thread may lose the interpreter to each of the loop's sends, and take seconds.
# With 0.5 ms all the time the loop does half as much, so they are for a commit that takes long.
LONG_S = 0.1
SWITCH_INTERVAL_S = 0.0005
USUAL_SWITCH_INTERVAL_S = sys.getswitchinterval()

logger = logging.getLogger(__name__)


class GroupCommit(Generic[Item, Result]):
    """Commits items in the order they were submitted, in groups, on one thread of its own.

    When a commit fails, what was submitted behind it fails too: nothing overtakes what has to be submitted again.
    ``gathering`` is another number for each group: as long as it stays, what was submitted is not being committed yet.

    Args:
        commit: commits a group durably and returns one result an item; runs on the thread, may raise.
        committed: told of each group that is durable, on the event loop, before anybody else.
        interval_s: shortest time between the starts of two commits, in seconds.
        tidy: runs on the thread behind each commit, when those who wait for it have been told.
    """

    def __init__(
        self,
        commit: Callable[[list[Item]], list[Result]],
        committed: Callable[[list[Item], list[Result]], None],
        interval_s: float = 0.0,
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        self._commit = commit
        self._tidy = tidy
        self._said = ""  # why tidying failed last
        self._committed = committed
        self._interval_s = interval_s
        self.closing = False
        self.gathering = 0
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Item] = []
        self._futures: list[asyncio.Future[Result]] = []  # one for each that has gathered
        self._next: asyncio.Handle | None = None  # the commit that will begin
        self._next_from_s = 0.0
        self._is_committing = False
        self._hurry: asyncio.TimerHandle | None = None  # for the commit that runs
        self._ended: asyncio.Future[None] | None = None  # while closing
        self._groups: SimpleQueue[tuple[list[Item], list[asyncio.Future[Result]]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Takes an item; the future resolves once it is durable, or raises what its group's commit raised."""
        if self.closing:
            raise RuntimeError("the store is closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._gathered.append(item)
        self._futures.append(future)
        if self._next is None and not self._is_committing:
            # Not at once: whatever else this turn of the event loop brings comes along.
            self._begin_from(self._next_from_s)
        return future

    async def close(self) -> None:
        """Commits what has gathered, then ends the thread."""
        self.closing = True
        if self._next is not None:
            self._next.cancel()
            self._begin()
        if self._is_committing:
            self._ended = self._loop.create_future()
            await self._ended
        self._groups.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _begin_from(self, moment_s: float) -> None:
        wait_s = moment_s - self._loop.time()
        self._next = self._loop.call_later(wait_s, self._begin) if wait_s > 0 else self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._next = None
        self._is_committing = True
        self.gathering += 1
        if self._interval_s:
            self._next_from_s = self._loop.time() + self._interval_s
        group, self._gathered, self._futures = (self._gathered, self._futures), [], []
        self._hurry = self._loop.call_later(LONG_S, sys.setswitchinterval, SWITCH_INTERVAL_S)
        self._groups.put(group)

    def _run(self) -> None:
        """The thread."""
        while (group := self._groups.get()) is not None:
            items, futures = group
            try:
                results = self._commit(items)
            except Exception as error:
                self._loop.call_soon_threadsafe(self._fail, futures, error)
            else:
                self._loop.call_soon_threadsafe(self._succeed, items, futures, results)
            self._tidy_up()

    def _tidy_up(self) -> None:
        """What follows a commit is no part of it: where that fails, the next commit's is tried all the same."""
        try:
            self._tidy()
            self._said = ""
        except (OSError, sqlite3.Error) as error:  # the disk is full, say: one line, until it has worked again
            if str(error) != self._said:
                logger.error("message store: what follows a commit could not be done, attempts go on: %s", error)
            self._said = str(error)
        except Exception:
            logger.exception("message store: what follows a commit could not be done")

    def _succeed(self, items: list[Item], futures: list[asyncio.Future[Result]], results: list[Result]) -> None:
        try:
            self._committed(items, results)
        finally:  # what is durable is so whatever becomes of the news of it
            self._go_on()
            for future, result in zip(futures, results, strict=True):
                if not future.done():
                    future.set_result(result)

    def _fail(self, futures: list[asyncio.Future[Result]], error: Exception) -> None:
        # Just before those who sent the group hear of it, and send no more.
        self._loop.call_soon(self._fail_what_came_behind, error)
        _set_exception(futures, error)

    def _fail_what_came_behind(self, error: Exception) -> None:
        self._gathered = []
        self.gathering += 1
        behind, self._futures = self._futures, []
        _set_exception(behind, error)
        self._go_on()

    def _go_on(self) -> None:
        """A commit is over: the next one begins where something has gathered meanwhile."""
        self._is_committing = False
        if self._hurry is not None:
            self._hurry.cancel()
        sys.setswitchinterval(USUAL_SWITCH_INTERVAL_S)
        if self._gathered and (self.closing or not self._interval_s):
            self._begin()
        elif self._gathered:
            self._begin_from(self._next_from_s)
        elif self._ended is not None:
            self._ended.set_result(None)


def _set_exception(futures: list[asyncio.Future[Result]], error: Exception) -> None:
    for future in futures:
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
