"""Group commit: works that gather while one commit runs go into the next commit, with one sync for all of them."""

import asyncio
import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from gateway.store.tables.log_rows import Work

Item = TypeVar("Item")
Result = TypeVar("Result")
Answer = Callable[[], None]
Told = Callable[[Any, Exception | None], None]
"""Called once a commit is over, with its result, or with what it raised."""
HandIn = Callable[[list[Work], Told], None]

# Python gives the interpreter to a thread that has waited 5 ms for it. A slice of the event loop takes as long: if the
# loop is busy, the commit's thread may lose the interpreter at each send of the loop, and take seconds. With 0.5 ms
# all the time the loop would do half as much, so the short interval is only for a commit that takes long.
LONG_S = 0.1
SWITCH_INTERVAL_S = 0.0005
USUAL_SWITCH_INTERVAL_S = sys.getswitchinterval()

logger = logging.getLogger(__name__)


class Hurry:
    """Lets the thread of a commit that takes long have the interpreter more often."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began_s: float | None = None  # when the commit began that runs now
        self._looking: asyncio.TimerHandle | None = None  # the next look at how long it takes
        self._is_on = False

    def begin(self, now_s: float) -> None:
        """A commit begins."""
        self._began_s = now_s
        if self._looking is None:  # one timer for all commits: setting one anew with each costs more than looking
            self._looking = self._loop.call_later(LONG_S, self._look)

    def end(self) -> None:
        """The commit is over."""
        self._began_s = None
        if self._is_on:
            self._is_on = False
            sys.setswitchinterval(USUAL_SWITCH_INTERVAL_S)

    def close(self) -> None:
        """No commit begins any more."""
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> None:
        self._looking = None
        if self._began_s is None:
            return
        left_s = self._began_s + LONG_S - self._loop.time()
        if left_s > 0:
            self._looking = self._loop.call_later(left_s, self._look)
        else:
            self._is_on = True
            sys.setswitchinterval(SWITCH_INTERVAL_S)


class GroupCommit(Generic[Item, Result]):
    """Commits items in the order in which they were submitted, a batch at a time, on one thread.

    When a commit fails, everything handed in behind it fails too, so that nothing overtakes an item that is handed in
    again. ``gathering`` is a new number for each batch: while it stays the same, these items are not being committed
    yet.

    Args:
        commit: commits a batch durably and returns one result an item; runs on the thread, may raise.
        committed: told of each durable batch on the event loop, before the owners of its items.
        interval_s: shortest time between the starts of two commits, in seconds.
        tidy: runs on the thread behind each commit, after it was handed back.
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
        self._told: list[Told] = []  # the owner of each gathered item
        self._next: asyncio.Handle | None = None  # the commit that will begin
        self._next_from_s = 0.0
        self._is_committing = False
        self._hurry = Hurry(self._loop)
        self._ended: asyncio.Future[None] | None = None  # while closing
        self._batches: SimpleQueue[tuple[list[Item], list[Told]] | None] = SimpleQueue()
        self._outcome: Callable[[], None] | None = None  # of the commit that is over, for the event loop
        # Unlike `call_soon_threadsafe`, a write to it wakes the loop while this thread does not hold the interpreter,
        # and costs no turn of the loop.
        self._over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop.add_reader(self._over, self._take_over)
        self._thread = Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    def hand_in(self, item: Item, told: Told) -> None:
        """Takes an item; calls ``told`` on the event loop once it is durable, or could not be stored.

        What was handed in behind a failure fails too, up to the next turn of the loop: ``told`` acts on an error then.
        """
        if self.closing:
            raise RuntimeError("the store is closed")
        self._gathered.append(item)
        self._told.append(told)
        if self._next is None and not self._is_committing:
            self._begin_from(self._next_from_s)

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Takes an item; the future resolves once it is durable, or raises what the commit raised."""
        return future_of(self.hand_in, item)

    async def close(self) -> None:
        """Commits the gathered items, then ends the thread."""
        self.closing = True
        if self._next is not None:
            self._next.cancel()
            self._begin()
        if self._is_committing:
            self._ended = self._loop.create_future()
            await self._ended
        self._hurry.close()
        self._batches.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        self._loop.remove_reader(self._over)
        os.close(self._over)

    def _begin_from(self, moment_s: float) -> None:
        """Begins a commit, not at once: items of the same turn of the event loop go into the same commit."""
        wait_s = moment_s - self._loop.time() if self._interval_s else 0.0
        self._next = self._loop.call_later(wait_s, self._begin) if wait_s > 0 else self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._next = None
        self._is_committing = True
        self.gathering += 1
        now_s = self._loop.time()
        self._next_from_s = now_s + self._interval_s
        batch, self._gathered, self._told = (self._gathered, self._told), [], []
        self._hurry.begin(now_s)
        self._batches.put(batch)

    def _run(self) -> None:
        """The thread."""
        while (batch := self._batches.get()) is not None:
            items, told = batch
            try:
                results = self._commit(items)
            except Exception as error:
                self._outcome = partial(self._fail, told, error)
            else:
                self._outcome = partial(self._succeed, items, told, results)
            os.eventfd_write(self._over, 1)
            self._tidy_up()

    def _take_over(self) -> None:
        """The event loop takes the outcome of a commit, before it reads the counter: that lets the thread go on."""
        try:
            self._take_outcome()
        finally:
            os.eventfd_read(self._over)
            self._take_outcome()  # of a commit that was over before the counter was read

    def _take_outcome(self) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome()

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

    def _succeed(self, items: list[Item], told: list[Told], results: list[Result]) -> None:
        try:
            self._committed(items, results)
        finally:  # the items are durable even if ``committed`` fails
            self._go_on()
            self._tell(told, results, None)

    def _fail(self, told: list[Told], error: Exception) -> None:
        # Just before the owners of this batch act on it: they hand nothing more in then.
        self._loop.call_soon(self._fail_what_came_behind, error)
        self._tell(told, [None] * len(told), error)

    def _fail_what_came_behind(self, error: Exception) -> None:
        self._gathered = []
        self.gathering += 1
        behind, self._told = self._told, []
        self._tell(behind, [None] * len(behind), error)
        self._go_on()

    def _tell(self, told: list[Told], results: Sequence[Any], error: Exception | None) -> None:
        for tell, result in zip(told, results, strict=True):
            try:
                tell(result, error)
            except Exception as fault:  # the others have to be told too
                context = {"message": "unexpected failure of an owner of stored work", "exception": fault}
                self._loop.call_exception_handler(context)

    def _go_on(self) -> None:
        """A commit is over: the next one begins if items have gathered meanwhile."""
        self._is_committing = False
        self._hurry.end()
        if self._gathered and (self.closing or not self._interval_s):
            self._begin()
        elif self._gathered:
            self._begin_from(self._next_from_s)
        elif self._ended is not None:
            self._ended.set_result(None)


def future_of(hand_in: Callable[[Item, Told], None], item: Item) -> asyncio.Future[Any]:
    """Hands an item in; returns a future that resolves when it is durable, or raises what the commit raised."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    hand_in(item, partial(_resolve, future))
    return future


def _resolve(future: asyncio.Future[Result], result: Result, error: Exception | None) -> None:
    """Gives a future what a commit has returned or raised."""
    if future.done():  # it was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
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
    for each batch: while it stays the same, what was added is not handed in yet.

    Args:
        hand_in: writes work in one transaction (``MessageLog.hand_in``).
        order: the answers of the connection.
    """

    __slots__ = ("_hand_in", "_order")

    def __init__(self, hand_in: HandIn, order: "AckOrder") -> None:
        self._hand_in = hand_in
        self._order = order

    @property
    def gathering(self) -> int:
        return self._order.gathering

    def add(self, answer: Answer, *work: Work) -> None:
        """Adds work to the open batch, and the call that answers it once it is durable.

        Without work the answer waits for the batches before it alone.
        """
        self._order.add(self._hand_in, answer, work)

    def end(self) -> None:
        """Hands the open batch in; the next ``add`` begins another one."""
        self._order.end()

    async def settle(self) -> None:
        """Hands the open batch in and waits until each batch is durable or has failed."""
        await self._order.settle()


class _HandedIn:
    """A batch whose work is being written, in as many transactions as are ``open``."""

    __slots__ = ("_answer", "answers", "error", "open")

    def __init__(self, answers: list[Answer], transactions: int, answer: Callable[[], None]) -> None:
        self.answers = answers
        self.open = transactions
        self.error: Exception | None = None
        self._answer = answer

    def told(self, _: Any, error: Exception | None) -> None:
        """One of the transactions is over."""
        self.open -= 1
        self.error = self.error or error
        if self.error is not None:
            asyncio.get_running_loop().call_soon(self._answer)
        elif not self.open:
            self._answer()


class AckOrder:
    """The answers of one connection, in order, with the work of each store that they wait for.

    Args:
        answered: called after the answers of a batch were given.
        failed: called with a text when a batch could not be written: nothing of it is answered.
    """

    __slots__ = ("_answers", "_handed_in", "_work", "answered", "failed", "gathering")

    def __init__(self, answered: Callable[[], None], failed: Callable[[str], None]) -> None:
        self.gathering = 0
        self.answered = answered
        self.failed = failed
        self._work: dict[HandIn, list[Work]] = {}
        self._answers: list[Answer] = []
        self._handed_in: list[_HandedIn] = []

    def add(self, hand_in: HandIn, answer: Answer, work: tuple[Work, ...]) -> None:
        if work:
            self._work.setdefault(hand_in, []).extend(work)
        self._answers.append(answer)

    def end(self) -> None:
        if not self._answers:
            return
        answers, works = self._answers, self._work
        self._begin()
        batch = _HandedIn(answers, len(works), self._answer)
        self._handed_in.append(batch)
        for hand_in, work in works.items():
            hand_in(work, batch.told)
        if not works:
            self._answer()

    def _begin(self) -> None:
        self._work, self._answers = {}, []
        self.gathering += 1

    async def settle(self) -> None:
        self.end()
        if self._handed_in:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._handed_in.append(_HandedIn([partial(_resolve, over, None, None)], 0, self._answer))
            await over

    def _answer(self) -> None:
        while self._handed_in and not self._handed_in[0].open:
            batch = self._handed_in.pop(0)
            if batch.error is not None:
                given_up = [one for work in self._work.values() for one in work]
                self._begin()  # nothing overtakes what has to come again
                tell_of_failure(given_up)
                self.failed(f"the message store failed: {batch.error}")
                continue
            for answer in batch.answers:
                answer()
        self.answered()
