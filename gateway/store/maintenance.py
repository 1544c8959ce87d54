"""Writes what no client waits for: consumers' places, ranges of drops, and deferred work."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gateway.loop.alarm import Alarm
from gateway.store.consumers.registry import Consumers
from gateway.store.database import Database, MaintenanceWrite
from gateway.store.group_commit import GroupCommit
from gateway.store.tables.drops import GATEWAY, Drops
from gateway.store.tables.log_rows import Gaps, Work
from gateway.store.tables.retained import Extent, ForgetCopies, Keep, KeepCopy
from gateway.store.tables.sessions import SaveSession

MAINTENANCE_INTERVAL_S = 1.0  # after a crash a consumer gets at most this much again; every save costs a sync
SWEEP_INTERVAL_S = 60.0  # between two searches for expired retained messages
SWEEP_DELAY_S = 0.05  # behind the moment of expiry, as clocks round
DEFERRED_BYTES_MAX = 1024 * 1024  # of retained messages at QoS 0; beyond it they are written at once
TRIM_MOST = 5_000  # messages deleted in one transaction, so that no publisher waits long behind it
TRIM_MOST_EVER = 100_000  # the same with an interval between commits
TRIM_PAUSE_S = 0.02  # between two such transactions, for those of publishers

logger = logging.getLogger(__name__)


class Maintenance:
    """Saves consumers' places, trims the messages that none of them needs, and removes expired retained messages.

    ``trimmed`` is the last deleted position, ``retained`` the extent of all retained messages. ``may_trim`` becomes
    False when a damaged page is in the way. ``problem`` says why the newest write failed, "" if it did not fail.

    Args:
        database: the open store.
        consumers: the log's consumers.
        gaps: how many messages were taken out of the middle of the log.
        head: returns the newest position.
        commits: writes the work.
        note_waiting: told by how many bytes the deferred messages in memory have grown, or shrunk.
        interval_s: shortest time between two commits, in seconds.
    """

    def __init__(
        self,
        database: Database,
        consumers: Consumers,
        gaps: Gaps,
        head: Callable[[], int],
        commits: GroupCommit[Sequence[Work], list[Any]],
        note_waiting: Callable[[int], None],
        interval_s: float,
    ) -> None:
        self.trimmed = max(0, database.found.oldest - 1)
        self.retained = database.found.retained
        self._consumers = consumers
        self._gaps = gaps
        self._head = head
        self._commits = commits
        self._note_waiting = note_waiting
        # Publishers wait for the interval anyway, and deleting has to be faster than storing.
        self._trim_most = min(int(TRIM_MOST * max(1.0, interval_s / TRIM_PAUSE_S)), TRIM_MOST_EVER)
        self._drops: Drops | None = None  # the ranges noted since they were submitted last
        self._taken = Drops(), -1  # the ranges submitted last, and the number of their batch
        self._deferred: list[Work] = []
        self._failed = 0  # how many of these, from the first on, have failed and are tried again
        self._deferred_bytes = 0  # of retained messages among these
        self._saved_with_ranges: set[str] = set()
        self._must_retry = False
        self._sweep_is_due = False
        self._next: asyncio.TimerHandle | None = None
        self._sweeping = Alarm(self._sweep)
        self.problem = ""
        self.may_trim = True
        if self.retained.topics:
            self._sweep_in(0.0)

    @property
    def has_to_trim(self) -> bool:
        """Whether there are messages that no consumer needs."""
        return self._trimmable() > self.trimmed

    def changed(self) -> None:
        """A consumer moved, or work was deferred: it is written within MAINTENANCE_INTERVAL_S."""
        if self._next is None:
            self._next_after(MAINTENANCE_INTERVAL_S)

    def defer(self, work: Work) -> None:
        """Writes a work with the next commit, or at once if much is deferred."""
        self._deferred.append(work)
        if isinstance(work, Keep):
            self._deferred_bytes += work.size
            self._note_waiting(work.size)
        if self._deferred_bytes > DEFERRED_BYTES_MAX:
            self._write_deferred()
        else:
            self.changed()

    def gathering(self) -> Drops:
        """Returns the ranges that are written next, for the caller to add one: it is durable no later than the place of
        the consumer that does not get the messages.
        """
        self.changed()
        if self._drops is None:
            self._drops = Drops()
        return self._drops

    def save_with_ranges(self, consumer: str) -> None:
        """Writes a consumer's place together with the next ranges, even if none of them is its own."""
        self._saved_with_ranges.add(consumer)
        self.changed()

    def write_pending(self) -> None:
        """Writes deferred work, and again a save that has failed: no later commit may overtake them."""
        if self._must_retry:
            self.run()
        self._write_deferred()

    def run(self) -> None:
        """Writes everything that is due, now."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._must_retry = False
        self._write_deferred()
        trim_to = self._trim_to()
        work = MaintenanceWrite(self._consumers.unsaved(), trim_to)
        if work.saved or work.trim_to > self.trimmed or self._sweep_is_due:
            self._sweep_is_due = False
            self.write(work)

    def trim(self) -> None:
        """Deletes what no consumer needs, now. The next run saves places."""
        self._write_deferred()
        trim_to = self._trim_to()
        if trim_to > self.trimmed:
            self.write(MaintenanceWrite(self._consumers.unsaved_of((GATEWAY,)), trim_to))

    def _trim_to(self) -> int:
        trim_to = self._gaps.reach(self.trimmed, self._trim_most, self._trimmable())
        if trim_to > self.trimmed:
            self._consumers.trim(trim_to)
        return trim_to

    def write(self, work: MaintenanceWrite) -> None:
        """Writes places behind the deferred work; if that fails, it is tried again with the next message."""
        self._write_deferred()
        self._consumers.note_saved(work.saved)
        works = [*self._consumers.works_with(work.saved), work]
        self._commits.submit(works).add_done_callback(lambda done: self._written(work, done))

    def note_written(self, done: list[tuple[Any, Work]]) -> None:
        """Counts the retained messages in a commit's results and works, and plans to remove messages that expire."""
        for result, work in done:
            if isinstance(work, Keep | ForgetCopies | MaintenanceWrite):
                self.retained = Extent(self.retained.topics + result.topics, self.retained.bytes + result.bytes)
        for _, work in done:
            if isinstance(work, Keep) and work.message.expires_ms:
                self._sweep_in(max(0.0, work.message.expires_ms / 1000 - time.time()) + SWEEP_DELAY_S)

    def stop_deleting(self) -> None:
        """Stops deleting: a damaged page was met, and SQLite would spread the damage when it merges pages."""
        if self.may_trim:
            self.may_trim = False
            logger.error("message store: nothing is deleted any more until `holdfast gateway repair` was run")

    def close(self) -> None:
        """Writes everything that is due, and nothing after it."""
        self.run()
        if self._next is not None:
            self._next.cancel()
        self._sweeping.cancel()

    def _sweep_in(self, wait_s: float) -> None:
        """Retained messages may have expired by then."""
        self._sweeping.set(asyncio.get_running_loop().time() + wait_s)

    def _sweep(self) -> None:
        self._sweep_is_due = True
        self.run()
        if self.retained.topics:
            self._sweep_in(SWEEP_INTERVAL_S)

    def _write_deferred(self) -> None:
        if not (self._deferred or self._drops or self._saved_with_ranges):
            return
        # In one transaction with the ranges: else a kill between the two leaves ranges of messages that come again.
        told, self._saved_with_ranges = self._saved_with_ranges, set()
        if self._drops:
            told |= self._drops.consumers
        moved = self._consumers.unsaved_of(told)
        self._take_drops()
        if self._deferred:
            put_off, self._deferred, self._failed = self._deferred, [], 0
            size, self._deferred_bytes = self._deferred_bytes, 0
            self._sweep_is_due = True
            self._commits.submit(put_off).add_done_callback(lambda done: self._deferred_written(put_off, size, done))
        if moved:
            self.write(MaintenanceWrite(moved, 0))

    def _take_drops(self) -> None:
        """Submits the ranges noted since the last call.

        If the ranges of that call still wait for their commit, these are merged into them: all that one transaction
        writes is within one budget.
        """
        if self._drops is None:
            return
        drops, self._drops = self._drops, None
        if self._taken[1] == self._commits.gathering:
            self._taken[0].take_in(drops)
        else:
            self._taken = drops, self._commits.gathering
            self._deferred.append(drops)

    def _deferred_written(self, put_off: list[Work], size: int, done: asyncio.Future[list[Any]]) -> None:
        self._note_waiting(-size)
        if error := done.exception():
            self._note_problem(error)
            for work in put_off:
                if isinstance(work, Drops):
                    if self._drops:
                        work.take_in(self._drops)
                    self._drops = work
            # Works that failed first come first: those submitted behind them have failed as well.
            again = [work for work in put_off if not isinstance(work, Drops)]
            failed = _without_superseded([*self._deferred[: self._failed], *again])
            self._deferred[: self._failed] = failed
            self._failed = len(failed)
            self._must_retry = True
            self.changed()
        else:
            self.problem = ""

    def _written(self, work: MaintenanceWrite, done: asyncio.Future[list[Any]]) -> None:
        if error := done.exception():
            self._consumers.note_unsaved(work.saved)
            self._note_problem(error)
            self._must_retry = True
        elif work.is_given_up:
            self.problem = ""
            self.stop_deleting()
        else:
            self.problem = ""
            self.trimmed = max(self.trimmed, work.trim_to)
            self._gaps.trim(self.trimmed)
            # Which messages are needed takes long to find out, and is asked only if many could go.
            if self._head() - self.trimmed >= TRIM_MOST and self._trimmable() - self.trimmed >= TRIM_MOST:
                self._next_after(TRIM_PAUSE_S)
        self.changed()

    def _note_problem(self, error: BaseException) -> None:
        if str(error) != self.problem:
            logger.error("message store: cursors could not be saved, attempts go on: %s", error)
        self.problem = str(error)

    def _trimmable(self) -> int:
        """The last position that no consumer needs. The newest message stays: the next position is counted on
        from it.
        """
        head = self._head()
        kept_from = min(self._consumers.needed_from(head), self._consumers.keepers.kept_softly_from(head))
        return min(kept_from, head - 1) if self.may_trim else 0

    def _next_after(self, wait_s: float) -> None:
        if self._next is not None:
            self._next.cancel()
        if not self._commits.closing:
            self._next = asyncio.get_running_loop().call_later(wait_s, self.run)


def _without_superseded(works: list[Work]) -> list[Work]:
    """Leaves out retained messages and rows of sessions that a later work replaces."""
    last = {_row_of(work): work for work in works}
    return [work for work in works if last[_row_of(work)] is work]


def _row_of(work: Work) -> Hashable:
    """Identifies the row that a work replaces; a work that replaces none is identified by itself."""
    if isinstance(work, Keep) and not isinstance(work, KeepCopy):
        return work.message.topic
    if isinstance(work, SaveSession):
        return work.client_id, *work.entries
    return id(work)
