"""The message log: messages in the order they became durable, and the cursors that keep them from being trimmed."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from gateway.errors import StoreError
from gateway.message import Message
from gateway.numbers import Counters
from gateway.store.audience import Audience
from gateway.store.consumers import Consumers, Place
from gateway.store.cursor import Cursor
from gateway.store.damage import set_aside
from gateway.store.database import Database, Housekeeping, Work
from gateway.store.drops import EVICTED, GATEWAY, Drops
from gateway.store.flows import BEGUN
from gateway.store.folder import take_folder
from gateway.store.group_commit import GroupCommit, pass_on
from gateway.store.groups import CorruptGroup, Group, Part, split
from gateway.store.retained import Keep
from gateway.store.tail import Tail

HOUSEKEEPING_INTERVAL_S = 1.0  # a crash repeats at most this much to a consumer; every save costs a sync
SWEEP_INTERVAL_S = 60.0  # between looks for retained messages that have expired
SWEEP_DELAY_S = 0.05  # behind the moment, whichever way the clocks round
TRIM_MOST = 20_000  # messages deleted in one transaction, so that no publisher waits long behind it
UNCOMMITTED_BYTES_MAX = 16 * 1024 * 1024  # in memory, taken from publishers and not durable yet

logger = logging.getLogger(__name__)


class MessageLog:
    """The durable log of one gateway. ``open`` makes one; it belongs to the event loop that opened it.

    ``problem`` says why the newest commit failed, "" where it did not. ``counts_backlogs`` has cursors count what waits
    for them; ``committed`` is called when messages have become durable.
    """

    def __init__(self, lock: IO[str], database: Database, commit_interval_s: float) -> None:
        self.counters = Counters()
        self.counts_backlogs = False
        self.committed: Callable[[], None] | None = None
        self.problem = ""
        self.head = database.position
        self.store_epoch = database.epoch
        self._lock = lock
        self._database = database
        self._origin = database.origin
        self.flows = database.flows
        self.incoming = database.incoming
        self.owed = database.owed
        self.wills = database.wills
        self.retained_count = database.retained_count
        self._consumers = Consumers(database.cursors)
        self._held = Counter(flow.position for flow in self.flows if flow.state == BEGUN)
        self._trimmed = max(0, database.oldest - 1)
        self.audience = Audience()
        self._tail = Tail()
        self._uncommitted_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._next_housekeeping: asyncio.TimerHandle | None = None
        self._housekeeping_owed = False
        self._later: list[Work] = []
        self._sweep_owed = False
        self._next_sweep: asyncio.TimerHandle | None = None
        self._drops = Drops()
        self._commit_s = 0.0
        self._said = ""
        self._commits: GroupCommit[Sequence[Work], list[Any]] = GroupCommit(
            self._commit, self._committed, commit_interval_s
        )
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read")
        if self.retained_count:
            self._sweep_in(0.0)

    @classmethod
    async def open(cls, folder: Path, *, origin: str, commit_interval_ms: int = 0) -> "MessageLog":
        """Opens the log in a folder, which is made where there is none.

        Args:
            folder: the store's folder; this process alone may use it while the log is open.
            origin: the origin of the identities given to messages that come without one: the gateway's name.
            commit_interval_ms: shortest time between two commits, in milliseconds; with one, messages are stored
                deflated, as it is given where the medium is to be spared.

        Raises:
            StoreError: the folder cannot be used, another process uses it, or what is in it is no store.
        """
        loop = asyncio.get_running_loop()
        lock = await loop.run_in_executor(None, take_folder, folder)
        try:
            database = await loop.run_in_executor(
                None, Database, folder / "messages.sqlite", origin, commit_interval_ms > 0
            )
        except StoreError:
            lock.close()
            raise
        return cls(lock, database, commit_interval_ms / 1000)

    @property
    def stored_count(self) -> int:
        """Messages in the store: those that wait for somebody, and the newest."""
        return self.head - self._trimmed

    def append(self, message: Message) -> asyncio.Future[int]:
        """Stores a message: the future resolves with its position once it is durable, never before.

        The future raises sqlite3.Error when the store cannot take the message; then it was not stored.
        """
        position: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.submit([message]).add_done_callback(lambda done: pass_on(done, position))
        return position

    def submit(self, group: Sequence[Work]) -> asyncio.Future[list[Any]]:
        """Writes all of a group in one transaction, and what was put off before it.

        The future resolves with the position of each message and the result of each other work once all of it is
        durable, never before. It raises sqlite3.Error when the store cannot take it; then nothing of it was stored.
        """
        if self._housekeeping_owed:
            self._keep_house()  # a cursor that could not be saved is saved no later than the next message
        self._write_later()
        size = sum(work.size for work in group if isinstance(work, Part))
        self._uncommitted_bytes += size
        if self._uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
            self._room.clear()
        future = self._commits.submit(group)
        future.add_done_callback(lambda done: self._submitted(done, size))
        return future

    def later(self, work: Work) -> None:
        """Writes something with the next commit, for which nobody waits: at the latest with the housekeeping."""
        self._later.append(work)
        self.changed()

    def hold(self, position: int) -> None:
        """A message is kept until it is let go again, wherever the cursors are."""
        self._held[position] += 1

    def let_go(self, position: int) -> None:
        """The opposite of ``hold``."""
        if position in self._held:
            self._held[position] -= 1
            if not self._held[position]:
                del self._held[position]
        self.changed()

    async def wait_for_room(self) -> None:
        """Waits while so much is not durable yet that nobody should append more."""
        await self._room.wait()

    async def read(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Returns up to ``limit`` durable messages with positions behind ``after``, in order.

        Fewer may come where messages are large, but none only at the head. Raises sqlite3.Error.
        """
        found = self._tail.read(after, limit) or []
        while not found and after < self.head:
            groups = await self._read_groups(after)
            if not groups:
                break  # they were trimmed meanwhile
            for group in groups:
                found += group.read(after, limit - len(found))
                self._tail.add(group)
                after = group.last
        return found

    async def _read_groups(self, after: int) -> list[Group]:
        """Reads the file; messages that are damaged there are set aside, and those behind them come."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._reader, self._database.read, after, self.head)
            except CorruptGroup as damage:
                logger.error("message store: %s; they are set aside, everything else goes on", damage)
                await self.submit([set_aside(damage, self._origin, self.store_epoch)])

    async def read_one(self, position: int) -> Message | None:
        """Returns the message at a position, None where it is gone. Raises sqlite3.Error."""
        found = await self.read(position - 1, 1)
        return found[0][1] if found and found[0][0] == position else None

    def passed(self, consumer: str) -> set[int]:
        """Returns the positions that a consumer has given away while what is before them still waits."""
        return {flow.position for flow in self.flows if flow.source == consumer}

    async def read_retained(self, topics: Sequence[str]) -> dict[str, tuple[int, Message]]:
        """Returns position and message by topic, for those that have a retained one. Raises sqlite3.Error."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._database.read_retained, topics)

    def drop(self, reason: str, consumer: str, message: Message) -> None:
        """Notes that a consumer does not get a message; it is durable no later than the consumer's place."""
        self.counters.messages_dropped[reason] += 1
        self._drops.note(reason, consumer, message)
        self.changed()

    @property
    def needed_count(self) -> int:
        """How many messages are kept because somebody needs them."""
        return self.head - self._needed_from()

    @property
    def used_bytes(self) -> int:
        """Bytes in use in the store's file, as of the last commit."""
        return self._database.used_bytes

    async def evict(self, limit: int) -> bool:
        """Drops up to ``limit`` of the oldest messages for all who still need them, and notes it.

        Returns whether there were any. Raises sqlite3.Error.
        """
        evicted = await self.read(self._needed_from(), limit)
        if not evicted:
            return False
        last = evicted[-1][0]
        for _, message in evicted:
            self.drop(EVICTED, GATEWAY, message)
        for cursor in self._consumers.cursors:
            await cursor.evict(evicted)
        self._consumers.evict(last)
        for position in [position for position in self._held if position <= last]:
            del self._held[position]
        self._keep_house()
        await self.submit([])
        return True

    def consumers(self) -> list[str]:
        """Returns the names of the durable consumers, whether they have a cursor now or not."""
        return self._consumers.names()

    def forget(self, consumer: str) -> None:
        """Removes a durable consumer that has no cursor now, and with it what was kept for it alone."""
        self._consumers.forget(consumer)
        self.changed()

    def attach(self, cursor: Cursor) -> Place:
        """A cursor begins; returns where. ValueError if its consumer has one already."""
        position, count = self._consumers.attach(cursor, self.head)
        if cursor.durable and count == 0:
            # Submitted before any message that it is to see, so it is durable no later than that message.
            self._write_housekeeping(Housekeeping([(cursor.consumer, position, count)], [], 0))
        return position, count

    def detach(self, cursor: Cursor) -> None:
        """A cursor ends."""
        self._consumers.detach(cursor)
        self.changed()

    def changed(self) -> None:
        """A cursor moved: it is saved, and the log trimmed behind the slowest, with the next housekeeping."""
        if self._next_housekeeping is None:
            loop = asyncio.get_running_loop()
            self._next_housekeeping = loop.call_later(HOUSEKEEPING_INTERVAL_S, self._keep_house)

    async def close(self) -> None:
        """Saves the cursors, makes everything durable and closes the files."""
        self._keep_house()
        await self._commits.close()
        for timer in (self._next_housekeeping, self._next_sweep):
            if timer is not None:
                timer.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._reader.shutdown)
        await loop.run_in_executor(None, self._database.close)
        self._lock.close()

    def _committed(self, groups: list[Sequence[Work]], results: list[list[Any]]) -> None:
        self.counters.commit_s.observe(self._commit_s)
        done = [
            (result, work)
            for group, group_results in zip(groups, results, strict=True)
            for work, result in zip(group, group_results, strict=True)
        ]
        self.retained_count += sum(result for result, work in done if isinstance(work, Keep | Housekeeping))
        for _, work in done:
            if isinstance(work, Keep) and work.message.expires_ms:
                self._sweep_in(max(0.0, work.message.expires_ms / 1000 - time.time()) + SWEEP_DELAY_S)
        stored = [(position, work) for position, work in done if isinstance(work, Part)]
        if not stored:
            return
        first = stored[0][0]
        news = list(split(first, [part for _, part in stored]))
        for group in news:
            self._tail.add(group)
        self.head = news[-1].last
        self.counters.messages_stored += self.head - first + 1
        topics = {topic for _, part in stored for topic in part.topics}
        for cursor in {cursor for topic in topics for cursor in self.audience.takers(topic)}:
            cursor.notice(news)
        self.changed()
        if self.committed is not None:
            self.committed()

    def _submitted(self, done: asyncio.Future[list[Any]], size: int) -> None:
        self.problem = "" if done.cancelled() or not done.exception() else str(done.exception())
        self._uncommitted_bytes -= size
        if self._uncommitted_bytes <= UNCOMMITTED_BYTES_MAX:
            self._room.set()

    def _commit(self, groups: list[Sequence[Work]]) -> list[list[Any]]:
        started_s = time.perf_counter()
        results = self._database.commit(groups)
        self._commit_s = time.perf_counter() - started_s
        return results

    def _keep_house(self) -> None:
        if self._next_housekeeping is not None:
            self._next_housekeeping.cancel()
            self._next_housekeeping = None
        self._housekeeping_owed = False
        self._write_later()
        # The newest message stays: the next position is counted on from it.
        trim_to = min(self._needed_from(), self.head - 1, self._trimmed + TRIM_MOST)
        work = Housekeeping(self._consumers.unsaved(), self._consumers.removed(), trim_to)
        if work.saved or work.removed or work.trim_to > self._trimmed or self._sweep_owed:
            self._sweep_owed = False
            self._write_housekeeping(work)

    def _needed_from(self) -> int:
        """The position behind which somebody needs the messages."""
        return min(self._consumers.slowest(self.head), min(self._held, default=self.head + 1) - 1)

    def _sweep_in(self, wait_s: float) -> None:
        """Retained messages may have expired by then."""
        loop = asyncio.get_running_loop()
        if self._next_sweep is None or self._next_sweep.when() > loop.time() + wait_s:
            if self._next_sweep is not None:
                self._next_sweep.cancel()
            self._next_sweep = loop.call_later(wait_s, self._sweep)

    def _sweep(self) -> None:
        self._next_sweep = None
        self._sweep_owed = True
        self._keep_house()
        if self.retained_count:
            self._sweep_in(SWEEP_INTERVAL_S)

    def _write_later(self) -> None:
        if dropped := self._drops.take():
            self._later.append(dropped)
        if self._later:
            put_off, self._later = self._later, []
            self._sweep_owed = True
            self._commits.submit(put_off).add_done_callback(lambda done: self._later_done(put_off, done))

    def _later_done(self, put_off: list[Work], done: asyncio.Future[list[Any]]) -> None:
        if done.exception():
            self._later[:0] = put_off
            self._housekeeping_owed = True

    def _write_housekeeping(self, work: Housekeeping) -> None:
        self._commits.submit([work]).add_done_callback(lambda done: self._housekeeping_done(work, done))

    def _housekeeping_done(self, work: Housekeeping, done: asyncio.Future[list[Any]]) -> None:
        if error := done.exception():
            if str(error) != self._said:
                logger.error("message store: cursors could not be saved, attempts go on: %s", error)
            self._said = str(error)
            self._housekeeping_owed = True
        else:
            self._said = ""
            self._consumers.note_saved(work.saved, work.removed)
            self._trimmed = max(self._trimmed, work.trim_to)
        if not self._commits.closing:
            self.changed()
