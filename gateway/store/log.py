"""The message log: messages in the order they became durable, and the cursors that keep them from being trimmed."""

import asyncio
import contextlib
import itertools
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gateway.errors import StoreError
from gateway.message import Message
from gateway.numbers import Counters
from gateway.store import exchange
from gateway.store.audience import Audience
from gateway.store.compaction import Compaction, Removed
from gateway.store.consumers import Consumers, Keeper, Place
from gateway.store.cursor import Cursor
from gateway.store.database import Database, Housekeeping, Work
from gateway.store.drops import EVICTED, GATEWAY, Drop
from gateway.store.flows import Flow
from gateway.store.folder import MESSAGES, TakenFolder, room_bytes, take_folder
from gateway.store.gaps import Gaps
from gateway.store.group_commit import GroupCommit, pass_on
from gateway.store.groups import Group, Part, split, stored_size
from gateway.store.housekeeper import Housekeeper
from gateway.store.reader import Reader
from gateway.store.retained import Keep
from gateway.store.shares import Shares
from gateway.store.tail import Tail
from gateway.store.unsettled import Missing, Unsettled

GROUPS_MOST = 32  # at once, of those in memory
RETAINED_ROW = 64  # bytes of a retained message in the file besides those that are counted, roughly
EVICT_PIECE = 1000  # messages of a store that is full, between which others have their turn
EVICT_CURSORS = 20  # with so many more cursors it is a half, a third, …: each may have a range of each message
EVICT_LEAST_BYTES = 64 * 1024  # where it is too large: each time it takes a sync
UNCOMMITTED_BYTES_MAX = 16 * 1024 * 1024  # in memory, taken from publishers and not durable yet

logger = logging.getLogger(__name__)


class MessageLog:
    """The durable log of one gateway. ``open`` makes one; it belongs to the event loop that opened it.

    ``counts_backlogs`` has cursors count what waits for them, ``shares`` counts the messages by publisher where there
    is a limit for that; ``committed`` is called when messages have become durable, with the cursors they may be for.
    ``state_bytes`` is what sessions, states of QoS 2, ranges of what was dropped and other tables have of the file, as
    ``measure_state`` has found it last.
    ``evictions`` is how often messages were dropped that a consumer had not got, since the start.
    """

    def __init__(self, folder: Path, taken: TakenFolder, database: Database, commit_interval_s: float) -> None:
        self.counters = Counters()
        self.counts_backlogs = False
        self.committed: Callable[[Iterable[Cursor]], None] | None = None
        self.shares: Shares | None = None
        self.state_bytes = 0
        self._problem = ""
        self.evictions = 0
        self.head = database.position
        self.store_epoch = database.epoch
        self._folder = folder
        self._disk_bytes = 0
        self.look_at_disk()
        self._taken = taken
        self._database = database
        self.flows = database.flows
        self.incoming = database.incoming
        self.owed = database.owed
        self.wills = database.wills
        self.sessions = database.sessions
        self.endings = database.endings
        self._last_unsettled = min([0, *self.endings])
        self._consumers = Consumers(database.cursors, self.flows)
        self._gaps = Gaps(database.gaps)
        self.audience = Audience()
        self._tail = Tail()
        self._uncommitted_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._commit_s = 0.0
        self._commits: GroupCommit[Sequence[Work], list[Any]] = GroupCommit(
            self._commit, self._committed, commit_interval_s, database.shorten_log
        )
        self._housekeeper = Housekeeper(
            database,
            self._consumers,
            self._gaps,
            lambda: self.head,
            self._commits,
            self._note_uncommitted,
            commit_interval_s,
        )
        self._reader = Reader(folder, database, self._gaps, self.submit, self.drop, self.counters)
        self._compaction = Compaction(
            self._consumers,
            self.audience,
            self._reader,
            self._housekeeper,
            self._gaps,
            self.submit,
            self._note_removed,
            lambda: self.head,
            commit_interval_s,
        )

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
        taken = await loop.run_in_executor(None, take_folder, folder)
        try:
            database = await loop.run_in_executor(
                None, Database, folder / MESSAGES, origin, taken, commit_interval_ms > 0
            )
        except StoreError:
            taken.close()
            raise
        taken.watch(*(MESSAGES + companion for companion in exchange.COMPANIONS))
        return cls(folder, taken, database, commit_interval_ms / 1000)

    @property
    def problem(self) -> str:
        """Why nothing can be stored now, or nobody's place be saved, as the newest attempt said; "" where it can."""
        try:
            self._taken.check()
        except sqlite3.OperationalError as error:
            return str(error)
        problem = self._problem or self._housekeeper.problem
        return f"{problem}; its disk is full" if problem and self._disk_bytes < 0 else problem

    @property
    def stored_count(self) -> int:
        """Messages in the store: those that wait for a consumer, those beside them, and the newest."""
        return self.count_behind(self._housekeeper.trimmed)

    @property
    def is_damaged(self) -> bool:
        """Whether messages that nobody needs stay, since a damaged page is in the way."""
        return not self._housekeeper.may_trim

    @property
    def retained_count(self) -> int:
        """How many topics have a retained message."""
        return self._housekeeper.retained.topics

    @property
    def retained_bytes(self) -> int:
        """How many bytes the retained messages have of names, payload and properties."""
        return self._housekeeper.retained.bytes

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
        self._housekeeper.write_owed()  # a cursor that could not be saved is saved no later than the next message
        size = sum(work.size for work in group if isinstance(work, Part | Keep))
        self._note_uncommitted(size)
        future = self._commits.submit(group)
        future.add_done_callback(lambda done: self._submitted(done, size))
        return future

    def later(self, work: Work) -> None:
        """Writes something with the next commit, for which nobody waits: at the latest with the housekeeping."""
        self._housekeeper.later(work)

    def hold(self, flow: Flow) -> None:
        """A flow's message is kept until it is let go, wherever the cursors are, or until the store is too full."""
        self._consumers.hold(flow)

    def let_go(self, flow: Flow) -> None:
        """The opposite of ``hold``."""
        self._consumers.let_go(flow)
        self.changed()

    def lose(self, consumer: str, message: Message) -> Missing:
        """The log has dropped a message that is on its way to a consumer; what is returned is told how that ends."""
        unsettled = self._unsettled(consumer)
        missing = unsettled.add(message)
        unsettled.save()
        return missing

    def keep_for(self, keeper: Keeper) -> None:
        """What is behind a keeper's position is kept, until ``keep_no_longer``."""
        self._consumers.keep_for(keeper)

    def keep_no_longer(self, keeper: Keeper) -> None:
        """The opposite of ``keep_for``."""
        self._consumers.keep_no_longer(keeper)
        self.changed()

    async def wait_for_room(self) -> None:
        """Waits while so much is not durable yet that nobody should append more."""
        await self._room.wait()

    async def read(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Returns up to ``limit`` durable messages with positions behind ``after``, in order.

        Fewer may come where messages are large, but none only at the head. Raises sqlite3.Error.
        """
        found: list[tuple[int, Message]] = []
        for group in self._tail.behind(after):
            found += group.read(after, limit - len(found))
            if len(found) >= limit:
                break
        while not found and after < self.head:
            for group in await self._reader.read(after, self.head):
                found += group.read(after, limit - len(found))
                self._tail.add(group)
                after = group.last
        return found

    async def read_groups(self, after: int) -> list[Group]:
        """Returns durable groups that follow one another, the first with the message behind a position if it is there.

        Raises sqlite3.Error.
        """
        in_memory = list(itertools.islice(self._tail.behind(after), GROUPS_MOST))
        return in_memory or await self._reader.read(after, self.head)

    async def read_one(self, position: int) -> Message | None:
        """Returns the message at a position, None where it is gone. Raises sqlite3.Error."""
        if position <= self.gone:
            return None
        found = await self.read(position - 1, 1)
        return found[0][1] if found and found[0][0] == position else None

    def passed(self, consumer: str) -> set[int]:
        """Returns the positions that a consumer has given away while what is before them still waits."""
        return {flow.position for flow in self.flows if flow.source == consumer}

    def retained_size(self, topic: str) -> int | None:
        """Returns the bytes of a topic's retained message, as of the last commit, None where it has none.

        Looks into the file. Raises sqlite3.Error.
        """
        return self._database.retained_size(topic)

    async def find_retained(
        self, topic_filter: str, after: str, since: int, now_ms: int
    ) -> tuple[list[tuple[str, int]], str | None]:
        """Returns topics and positions of retained messages that a filter matches, and where this piece ends.

        The next piece is ``after`` that; None says that there is none. Raises sqlite3.Error.
        """
        return await self._reader.find_retained(topic_filter, after, since, now_ms)

    async def read_retained(self, topics: Sequence[str]) -> dict[str, tuple[int, Message] | None]:
        """Returns position and message by topic, None where it has no retained one.

        Of one topic at least; where messages are large the last ones are left out. Raises sqlite3.Error.
        """
        return await self._reader.read_retained(topics)

    def drop(self, reason: str, consumer: str, message: Message) -> None:
        """Notes that a consumer does not get a message; it is durable no later than the consumer's place."""
        self.counters.messages_dropped[reason] += 1
        self._housekeeper.drop(reason, consumer, message)

    @property
    def needed_count(self) -> int:
        """How many messages there are from the oldest on that a consumer needs."""
        return self.count_behind(self.needed_from)

    def count_behind(self, position: int) -> int:
        """Returns how many messages are in the log behind a position, for whomever they are."""
        return self.head - position - self._gaps.behind(position)

    @property
    def needed_from(self) -> int:
        """The position behind which consumers need messages."""
        return self._consumers.needed_from(self.head)

    @property
    def used_bytes(self) -> int:
        """Bytes in use in the store's file, as of the last commit."""
        return self._database.used_bytes

    @property
    def bytes_beside(self) -> int:
        """Bytes of the file, roughly, that no eviction frees: retained messages, and ``state_bytes``."""
        return self.state_bytes + self.retained_bytes + RETAINED_ROW * self.retained_count

    async def measure_state(self) -> None:
        """Finds out ``state_bytes``: reads all of these rows. Raises sqlite3.Error."""
        self.state_bytes = await self._reader.size_of_state()

    @property
    def room_bytes(self) -> int:
        """Bytes that the store's file and its disk have room for; below 0 there is too little to trim it safely."""
        return self._database.free_bytes + self._disk_bytes

    def look_at_disk(self) -> None:
        """Finds out how much room the disk has; each commit does so before its messages are acknowledged."""
        self._disk_bytes = room_bytes(self._folder)

    def make_room(self) -> tuple[int, int]:
        """The store is nearly full: what no consumer needs goes, also from the middle of the log.

        Returns of how many messages, and how many bytes, it is still to be found out whether any consumer needs them.
        """
        return self._compaction.make_room()

    async def evict(self, count: int, size: int) -> bool:
        """Drops the oldest messages for all who still need them, and notes it; what can be trimmed goes before them.

        Args:
            count: how many at least.
            size: how many bytes of the file are to become free; what messages take there is a guess.

        Returns whether there was anything to drop. Raises sqlite3.Error.
        """
        is_smaller = size > 0 and self._housekeeper.has_to_trim
        size = 0 if is_smaller or size <= 0 else max(size, EVICT_LEAST_BYTES)
        while (count > 0 or size > 0) and (oldest := await self._oldest(count, size)):
            count -= len(oldest)
            size -= sum(message.size for _, message in oldest)
            is_smaller = True
            losers = list(self._consumers.losers_of(oldest, self.audience))
            for consumers, messages in losers:
                self.counters.messages_dropped[EVICTED] += len(consumers) * len(messages)
                self._housekeeper.drop_all(EVICTED, consumers, messages)
            unsettled: dict[str, list[Unsettled]] = {}
            self._consumers.evict(oldest, partial(self._add_unsettled, unsettled))
            for one in itertools.chain.from_iterable(unsettled.values()):
                one.save()
            self._housekeeper.save_with_ranges(GATEWAY)
            self.evictions += bool(losers or unsettled)
            for cursor in self._consumers.cursors:
                await cursor.evict(oldest)
            await asyncio.sleep(0)
        self._housekeeper.keep_house()
        await self.submit([])
        return is_smaller

    def _add_unsettled(self, unsettled: dict[str, list[Unsettled]], consumer: str, message: Message) -> Missing:
        rows = unsettled.setdefault(consumer, [])
        if not rows or rows[-1].is_full:
            rows.append(self._unsettled(consumer))
        return rows[-1].add(message)

    def _unsettled(self, consumer: str) -> Unsettled:
        self._last_unsettled -= 1  # below 0, where no consumer that has ended is
        return Unsettled(self._last_unsettled, consumer, partial(self.drop, EVICTED), self.later)

    async def _oldest(self, count: int, size: int) -> list[tuple[int, Message]]:
        """Returns of the oldest messages that somebody needs so many, and of so many bytes, or some of them."""
        piece = max(1, EVICT_PIECE // (1 + len(self._consumers.cursors) // EVICT_CURSORS))
        found = await self.read(self._consumers.needed_from(self.head), piece)
        for index, (_, message) in enumerate(found):
            if index >= count and size <= 0:
                return found[:index]
            size -= message.size
        return found

    @property
    def gone(self) -> int:
        """The last position of what no consumer gets any more."""
        return self._consumers.gone

    def consumers(self) -> list[str]:
        """Returns the names of the durable consumers, whether they have a cursor now or not."""
        return self._consumers.names()

    def forget(self, consumer: str) -> None:
        """Removes a durable consumer that has no cursor now, and with it what was kept for it alone.

        The file forgets it in the transaction of what was put off just before, such as the row of its ending.
        """
        if remove := self._consumers.forget(consumer):
            self.later(remove)
        self.changed()

    def attach(self, cursor: Cursor) -> Place:
        """A cursor begins; returns where. ValueError if its consumer has one already."""
        if cursor.durable:
            self._housekeeper.write_owed()  # ranges of this consumer go with its place of before: it has none yet
        position, count = self._consumers.attach(cursor, self.head)
        if cursor.durable and count == 0:
            # Submitted before any message that it is to see, so it is durable no later than that message.
            self._housekeeper.write(Housekeeping([(cursor.consumer, position, count)], 0))
        return position, count

    def detach(self, cursor: Cursor) -> None:
        """A cursor ends."""
        self._consumers.detach(cursor)
        self.changed()

    def changed(self) -> None:
        """A cursor moved: it is saved, and the log trimmed behind the slowest, with the next housekeeping."""
        self._housekeeper.changed()

    async def close(self) -> None:
        """Saves the cursors, makes everything durable and closes the files."""
        self.audience.close()
        await self._compaction.close()
        self._housekeeper.close()
        await self._commits.close()
        await self._reader.close()
        await asyncio.get_running_loop().run_in_executor(None, self._database.close)
        self._taken.close()

    def _committed(self, groups: list[Sequence[Work]], results: list[list[Any]]) -> None:
        self.counters.commit_s.observe(self._commit_s)
        done = [
            (result, work)
            for group, group_results in zip(groups, results, strict=True)
            for work, result in zip(group, group_results, strict=True)
        ]
        self._housekeeper.note_written(done)
        for _, work in done:
            if isinstance(work, Drop):
                self.counters.messages_dropped[work.reason] += 1
        stored = [(position, work) for position, work in done if isinstance(work, Part)]
        if not stored:
            return
        first = stored[0][0]
        news = list(split(first, [part for _, part in stored]))
        for group in news:
            self._tail.add(group)
        self.head = news[-1].last
        self.counters.messages_stored += self.head - first + 1
        if self.shares is not None:
            self.shares.note(self.head, (part for _, part in stored))
            self.shares.forget(self._housekeeper.trimmed)
        size = sum(stored_size(part) for _, part in stored)
        news_by_cursor = self._news_by_cursor(stored)
        for cursor, (begin, end) in news_by_cursor.items():
            cursor.notice(begin, end, stored, size)
        self._compaction.note_stored(size)
        self.changed()
        if self.committed is not None:
            self.committed(news_by_cursor)

    def _news_by_cursor(self, stored: list[tuple[int, Part]]) -> dict[Cursor, tuple[int, int]]:
        """Between which positions something may be for each cursor; each topic is looked up once."""
        topics: dict[str, tuple[int, int]] = {}
        for position, part in stored:
            for topic in part.topics:
                topics[topic] = topics.get(topic, (position, 0))[0], position + part.count - 1
        found: dict[Cursor, tuple[int, int]] = {}
        for topic, (first, last) in topics.items():
            for cursor in self.audience.takers(topic):
                if not cursor.closed and cursor.rights.may_receive(topic):
                    begin, end = found.get(cursor, (first, last))
                    found[cursor] = min(begin, first), max(end, last)
        return found

    def _note_removed(self, removed: Removed) -> None:
        if self.shares is not None:
            for position, publisher, messages, size in removed:
                self.shares.take_out(position, publisher, messages, size)

    def _submitted(self, done: asyncio.Future[list[Any]], size: int) -> None:
        self._problem = "" if done.cancelled() or not done.exception() else str(done.exception())
        self._note_uncommitted(-size)

    def _note_uncommitted(self, size: int) -> None:
        self._uncommitted_bytes += size
        if self._uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
            self._room.clear()
        else:
            self._room.set()

    def _commit(self, groups: list[Sequence[Work]]) -> list[list[Any]]:
        self._taken.check()  # what is acknowledged is found again, by the next start too
        started_s = time.perf_counter()
        try:
            return self._database.commit(groups)
        finally:
            self._commit_s = time.perf_counter() - started_s
            with contextlib.suppress(OSError):  # where the folder is gone, the next commit says so
                self.look_at_disk()
