"""Group commit: works that gather while one commit runs go into the next commit, with one sync for all of them."""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from gateway.store.tables.log_rows import Work

Item = TypeVar("Item")
Result = TypeVar("Result")
Answer = Callable[[], None]
Commit = asyncio.Future[list[Any]]
Submit = Callable[[list[Work]], Commit]

# Python gives the interpreter to a thread that has waited 5 ms for it. A slice of the event loop takes as long: if the
# loop is busy, the commit's thread may lose the interpreter at each send of the loop, and take seconds. With 0.5 ms
# all the time the loop would do half as much, so the short interval is only for a commit that takes long.
LONG_S = 0.1
SWITCH_INTERVAL_S = 0.0005
USUAL_SWITCH_INTERVAL_S = sys.getswitchinterval()

logger = logging.getLogger(__name__)


class GroupCommit(Generic[Item, Result]):
    """Commits items in the order in which they were submitted, a batch at a time, on one thread.

    When a commit fails, everything submitted behind it fails too, so that nothing overtakes an item that is submitted
    again. ``gathering`` is a new number for each batch: while it stays the same, submitted items are not being
    committed yet.

    Args:
        commit: commits a batch durably and returns one result an item; runs on the thread, may raise.
        committed: told of each durable batch on the event loop, before the futures resolve.
        interval_s: shortest time between the starts of two commits, in seconds.
        tidy: runs on the thread behind each commit, after the futures were resolved.
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
        self._said = ""  # why ``tidy`` failed last
        self._committed = committed
        self._interval_s = interval_s
        self.closing = False
        self.gathering = 0
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Item] = []
        self._futures: list[asyncio.Future[Result]] = []  # one for each gathered item
        self._next: asyncio.Handle | None = None  # the commit that will begin
        self._next_from_s = 0.0
        self._is_committing = False
        self._began_s = 0.0  # when the newest commit began
        self._looking: asyncio.TimerHandle | None = None  # the next look at how long a commit takes
        self._hurries = False
        self._ended: asyncio.Future[None] | None = None  # while closing
        self._batches: SimpleQueue[tuple[list[Item], list[asyncio.Future[Result]]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Takes an item; the future resolves once it is durable, or raises what the commit raised."""
        if self.closing:
            raise RuntimeError("the store is closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._gathered.append(item)
        self._futures.append(future)
        if self._next is None and not self._is_committing:
            # Not at once: items of the same turn of the event loop go into the same commit.
            self._begin_from(self._next_from_s)
        return future

    async def close(self) -> None:
        """Commits the gathered items, then ends the thread."""
        self.closing = True
        if self._next is not None:
            self._next.cancel()
            self._begin()
        if self._is_committing:
            self._ended = self._loop.create_future()
            await self._ended
        if self._looking is not None:
            self._looking.cancel()
        self._batches.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _begin_from(self, moment_s: float) -> None:
        wait_s = moment_s - self._loop.time()
        self._next = self._loop.call_later(wait_s, self._begin) if wait_s > 0 else self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._next = None
        self._is_committing = True
        self.gathering += 1
        self._began_s = self._loop.time()
        self._next_from_s = self._began_s + self._interval_s
        batch, self._gathered, self._futures = (self._gathered, self._futures), [], []
        if self._looking is None:  # one timer for all commits: setting one anew with each costs more than looking
            self._looking = self._loop.call_later(LONG_S, self._look)
        self._batches.put(batch)

    def _look(self) -> None:
        """Hurries a commit that takes long."""
        self._looking = None
        if not self._is_committing:
            return
        left_s = self._began_s + LONG_S - self._loop.time()
        if left_s > 0:
            self._looking = self._loop.call_later(left_s, self._look)
        else:
            self._hurries = True
            sys.setswitchinterval(SWITCH_INTERVAL_S)

    def _run(self) -> None:
        """The thread."""
        while (batch := self._batches.get()) is not None:
            items, futures = batch
            try:
                results = self._commit(items)
            except Exception as error:
                self._loop.call_soon_threadsafe(self._fail, futures, error)
            else:
                self._loop.call_soon_threadsafe(self._succeed, items, futures, results)
            self._tidy_up()

    def _tidy_up(self) -> None:
        """Runs ``tidy`` behind a commit; if that fails, it runs again behind the next commit."""
        try:
            self._tidy()
            self._said = ""
        except (OSError, sqlite3.Error) as error:  # such as a full disk: one line until it works again
            if str(error) != self._said:
                logger.error("message store: the work behind a commit failed, attempts go on: %s", error)
            self._said = str(error)
        except Exception:
            logger.exception("message store: the work behind a commit failed")

    def _succeed(self, items: list[Item], futures: list[asyncio.Future[Result]], results: list[Result]) -> None:
        try:
            self._committed(items, results)
        finally:  # the items are durable even if ``committed`` fails
            self._go_on()
            for future, result in zip(futures, results, strict=True):
                if not future.done():
                    future.set_result(result)

    def _fail(self, futures: list[asyncio.Future[Result]], error: Exception) -> None:
        # Just before the futures of this batch resolve: their owners submit nothing more then.
        self._loop.call_soon(self._fail_what_came_behind, error)
        _set_exception(futures, error)

    def _fail_what_came_behind(self, error: Exception) -> None:
        self._gathered = []
        self.gathering += 1
        behind, self._futures = self._futures, []
        _set_exception(behind, error)
        self._go_on()

    def _go_on(self) -> None:
        """A commit is over: the next one begins if items have gathered meanwhile."""
        self._is_committing = False
        if self._hurries:
            self._hurries = False
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


class Witness:
    """A work that is told how its transaction ends, and with it all that is in the transaction.

    It is no abstract class: each work of a commit is asked whether it is a witness, which must take little time.
    """

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Writes nothing."""

    def succeed(self) -> None:
        """The transaction is durable; nothing of it has been answered yet."""

    def fail(self) -> None:
        """Nothing of the transaction is stored, or it was given up before it began."""


def tell_of_failure(works: Iterable[Work]) -> None:
    """Tells the witnesses among works that these are not stored."""
    for work in works:
        if isinstance(work, Witness):
            work.fail()


class AckBatch:
    """Gathers the work of the packets that came together, and gives their answers when that work is durable.

    Answers are given in the order in which they were added [section 4.6], whatever the stores of their works: those of
    a client's streams share the order, and each store's work goes into one transaction. ``gathering`` is a new number
    for each batch: while it stays the same, what was added is not submitted yet.

    Args:
        submit: writes work in one transaction (``MessageLog.submit``).
        order: the answers of the connection.
    """

    __slots__ = ("_order", "_submit")

    def __init__(self, submit: Submit, order: "AckOrder") -> None:
        self._submit = submit
        self._order = order

    @property
    def gathering(self) -> int:
        return self._order.gathering

    def add(self, answer: Answer, *work: Work) -> None:
        """Adds work to the open batch, and the call that answers it once it is durable.

        Without work the answer waits for the batches before it alone.
        """
        self._order.add(self._submit, answer, work)

    def end(self) -> None:
        """Submits the open batch; the next ``add`` begins another one."""
        self._order.end()

    async def settle(self) -> None:
        """Submits the open batch and waits until each batch is durable or has failed."""
        await self._order.settle()


class AckOrder:
    """The answers of one connection, in order, with the work of each store that they wait for.

    Args:
        answered: called after the answers of a batch were given.
        failed: called with a text when a batch could not be written: nothing of it is answered.
    """

    __slots__ = ("_answered", "_answers", "_failed", "_work", "_written", "gathering")

    def __init__(self, answered: Callable[[], None], failed: Callable[[str], None]) -> None:
        self.gathering = 0
        self._answered = answered
        self._failed = failed
        self._work: dict[Submit, list[Work]] = {}
        self._answers: list[Answer] = []
        self._written: list[tuple[list[Commit], list[Answer]]] = []

    def add(self, submit: Submit, answer: Answer, work: tuple[Work, ...]) -> None:
        if work:
            self._work.setdefault(submit, []).extend(work)
        self._answers.append(answer)

    def end(self) -> None:
        if not self._answers:
            return
        answers, works = self._answers, self._work
        self._begin()
        commits = [submit(work) for submit, work in works.items()]
        self._written.append((commits, answers))
        if not commits:
            self._answer()
        for commit in commits:
            commit.add_done_callback(lambda _: self._answer())

    def _begin(self) -> None:
        self._work, self._answers = {}, []
        self.gathering += 1

    async def settle(self) -> None:
        self.end()
        while self._written:
            await asyncio.wait([commit for commits, _ in self._written for commit in commits])

    def _answer(self) -> None:
        while self._written and all(commit.done() for commit in self._written[0][0]):
            commits, answers = self._written.pop(0)
            errors = [error for commit in commits if (error := commit.exception())]
            if errors:
                given_up = [one for work in self._work.values() for one in work]
                self._begin()  # nothing overtakes what has to come again
                tell_of_failure(given_up)
                self._failed(f"the message store failed: {errors[0]}")
                continue
            for answer in answers:
                answer()
        self._answered()
