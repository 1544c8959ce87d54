"""What is written now and then, with nobody waiting for it: cursors' places, ranges of drops, what was put off."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gateway.alarm import Alarm
from gateway.message import Message
from gateway.store.consumers import Consumers
from gateway.store.database import Database, Housekeeping, Work
from gateway.store.drops import Drops
from gateway.store.gaps import Gaps
from gateway.store.group_commit import GroupCommit
from gateway.store.retained import Extent, Keep
from gateway.store.sessions import Save

HOUSEKEEPING_INTERVAL_S = 1.0  # a crash repeats at most this much to a consumer; every save costs a sync
SWEEP_INTERVAL_S = 60.0  # between looks for retained messages that have expired
SWEEP_DELAY_S = 0.05  # behind the moment, whichever way the clocks round
LATER_BYTES_MAX = 1024 * 1024  # of retained messages at QoS 0; beyond it they are written at once
TRIM_MOST = 5_000  # messages deleted in one transaction, so that no publisher waits long behind it
TRIM_MOST_EVER = 100_000  # where there is an interval between commits
TRIM_PAUSE_S = 0.02  # before more of them are: for publishers' own transactions

logger = logging.getLogger(__name__)


class Housekeeper:
    """Saves where the consumers are, trims what none of them needs, and sweeps out retained messages that have expired.

    ``trimmed`` is the last position that is gone, ``retained`` the extent of all retained messages;
    ``may_trim`` is False once a damaged page was in the way; ``problem`` says why the newest attempt to write failed,
    "" where it did not.

    Args:
        database: the store as it was opened.
        consumers: the log's consumers.
        gaps: how many messages are gone from the middle of the log.
        head: returns the newest position.
        commits: where it is written.
        note_waiting: told by how many bytes what waits in memory has become more, or less.
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
        self.trimmed = max(0, database.oldest - 1)
        self.retained = database.retained
        self._consumers = consumers
        self._gaps = gaps
        self._head = head
        self._commits = commits
        self._note_waiting = note_waiting
        # Publishers wait for the interval anyway, and more than comes meanwhile has to go.
        self._trim_most = min(int(TRIM_MOST * max(1.0, interval_s / TRIM_PAUSE_S)), TRIM_MOST_EVER)
        self._drops = Drops()
        self._taken = Drops()  # what of them was submitted last
        self._taken_with = -1  # that group
        self._later: list[Work] = []
        self._failed = 0  # of these, the first: what is tried again
        self._later_bytes = 0  # of retained messages among it
        self._saved_with_ranges: set[str] = set()
        self._is_owed = False
        self._sweep_owed = False
        self._next: asyncio.TimerHandle | None = None
        self._sweeping = Alarm(self._sweep)
        self.problem = ""
        self.may_trim = True
        if self.retained.topics:
            self._sweep_in(0.0)

    @property
    def has_to_trim(self) -> bool:
        """Whether there are messages that nobody needs any more."""
        return self._trimmable() > self.trimmed

    def changed(self) -> None:
        """A consumer moved, or something was put off: it is written within HOUSEKEEPING_INTERVAL_S."""
        if self._next is None:
            self._next_after(HOUSEKEEPING_INTERVAL_S)

    def later(self, work: Work) -> None:
        """Writes something with the next commit, which does not wait where that is much."""
        self._later.append(work)
        if isinstance(work, Keep):
            self._later_bytes += work.size
            self._note_waiting(work.size)
        if self._later_bytes > LATER_BYTES_MAX:
            self._write_later()
        else:
            self.changed()

    def drop(self, reason: str, consumer: str, message: Message) -> None:
        """Notes that a consumer does not get a message; durable no later than the consumer's place."""
        self._drops.note(reason, consumer, message)
        self.changed()

    def drop_all(self, reason: str, consumers: Sequence[str], messages: Sequence[Message]) -> None:
        """The same of several consumers that do not get the same messages."""
        self._drops.note_all(reason, consumers, messages)
        self.changed()

    def save_with_ranges(self, consumer: str) -> None:
        """A consumer's place is written with the ranges that come next, also where none of them is its own."""
        self._saved_with_ranges.add(consumer)
        self.changed()

    def write_owed(self) -> None:
        """Writes what no commit may go before: what was put off, and a save that has failed."""
        if self._is_owed:
            self.keep_house()
        self._write_later()

    def keep_house(self) -> None:
        """Writes all that there is to write, now."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._is_owed = False
        self._write_later()
        trim_to = self._gaps.reach(self.trimmed, self._trim_most, self._trimmable())
        if trim_to > self.trimmed:
            self._consumers.trim(trim_to)
        work = Housekeeping(self._consumers.unsaved(), trim_to)
        if work.saved or work.trim_to > self.trimmed or self._sweep_owed:
            self._sweep_owed = False
            self.write(work)

    def write(self, work: Housekeeping) -> None:
        """Writes places, behind what was put off; where that fails it is tried again with the next message."""
        self._write_later()
        self._consumers.note_saved(work.saved)
        self._commits.submit([work]).add_done_callback(lambda done: self._written(work, done))

    def note_written(self, done: list[tuple[Any, Work]]) -> None:
        """Results and works of a commit: retained messages among them are counted, and swept when they expire."""
        for result, work in done:
            if isinstance(work, Keep | Housekeeping):
                self.retained = Extent(self.retained.topics + result.topics, self.retained.bytes + result.bytes)
        for _, work in done:
            if isinstance(work, Keep) and work.message.expires_ms:
                self._sweep_in(max(0.0, work.message.expires_ms / 1000 - time.time()) + SWEEP_DELAY_S)

    def stop_deleting(self) -> None:
        """A damaged page was met: what is gone from a page beside it, SQLite would spread over both."""
        if self.may_trim:
            self.may_trim = False
            logger.error("message store: nothing is deleted any more until `holdfast gateway repair` was run")

    def close(self) -> None:
        """Writes all that there is to write, and nothing after it."""
        self.keep_house()
        if self._next is not None:
            self._next.cancel()
        self._sweeping.cancel()

    def _sweep_in(self, wait_s: float) -> None:
        """Retained messages may have expired by then."""
        self._sweeping.set(asyncio.get_running_loop().time() + wait_s)

    def _sweep(self) -> None:
        self._sweep_owed = True
        self.keep_house()
        if self.retained.topics:
            self._sweep_in(SWEEP_INTERVAL_S)

    def _write_later(self) -> None:
        # In one transaction with the ranges: else these tell, after a kill, of what comes again or is dropped again.
        told, self._saved_with_ranges = self._drops.consumers | self._saved_with_ranges, set()
        moved = self._consumers.unsaved_of(told)
        self._take_drops()
        if self._later:
            put_off, self._later, self._failed = self._later, [], 0
            size, self._later_bytes = self._later_bytes, 0
            self._sweep_owed = True
            self._commits.submit(put_off).add_done_callback(lambda done: self._later_written(put_off, size, done))
        if moved:
            self.write(Housekeeping(moved, 0))

    def _take_drops(self) -> None:
        """Ranges go with those that wait for a commit already, so that no transaction writes more than it may."""
        if not self._drops:
            return
        drops, self._drops = self._drops, Drops()
        if self._taken_with == self._commits.gathering:
            self._taken.take_in(drops)
        else:
            self._taken, self._taken_with = drops, self._commits.gathering
            self._later.append(drops)

    def _later_written(self, put_off: list[Work], size: int, done: asyncio.Future[list[Any]]) -> None:
        self._note_waiting(-size)
        if error := done.exception():
            self._note_problem(error)
            for work in put_off:
                if isinstance(work, Drops):
                    work.take_in(self._drops)
                    self._drops = work
            # What failed first comes first: what was submitted behind it has failed as well.
            again = [work for work in put_off if not isinstance(work, Drops)]
            failed = _without_superseded([*self._later[: self._failed], *again])
            self._later[: self._failed] = failed
            self._failed = len(failed)
            self._is_owed = True
            self.changed()
        else:
            self.problem = ""

    def _written(self, work: Housekeeping, done: asyncio.Future[list[Any]]) -> None:
        if error := done.exception():
            self._consumers.note_unsaved(work.saved)
            self._note_problem(error)
            self._is_owed = True
        elif work.is_given_up:
            self.problem = ""
            self.stop_deleting()
        else:
            self.problem = ""
            self.trimmed = max(self.trimmed, work.trim_to)
            self._gaps.trim(self.trimmed)
            # Who needs which messages is looked at only where there are enough.
            if self._head() - self.trimmed >= TRIM_MOST and self._trimmable() - self.trimmed >= TRIM_MOST:
                self._next_after(TRIM_PAUSE_S)
        self.changed()

    def _note_problem(self, error: BaseException) -> None:
        if str(error) != self.problem:
            logger.error("message store: cursors could not be saved, attempts go on: %s", error)
        self.problem = str(error)

    def _trimmable(self) -> int:
        """The last position that nobody needs. The newest message stays: the next position is counted on from it."""
        head = self._head()
        return min(self._consumers.needed_from(head), head - 1) if self.may_trim else 0

    def _next_after(self, wait_s: float) -> None:
        if self._next is not None:
            self._next.cancel()
        if not self._commits.closing:
            self._next = asyncio.get_running_loop().call_later(wait_s, self.keep_house)


def _without_superseded(works: list[Work]) -> list[Work]:
    """All but the retained messages and rows of sessions behind which another one comes in their place."""
    last = {_place_of(work): work for work in works}
    return [work for work in works if last[_place_of(work)] is work]


def _place_of(work: Work) -> Hashable:
    """What a work writes anew, whatever was there; itself where that is nothing."""
    if isinstance(work, Keep):
        return work.message.topic
    if isinstance(work, Save):
        return work.client_id, *work.entries
    return id(work)
