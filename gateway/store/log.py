"""The message log: messages in the order in which they became durable, and the cursors that read them.

A message has a position: 1, 2, 3, and so on, without gaps and for ever. ``submit`` gathers work from all connections.
One thread writes it in one SQLite transaction with one sync; then the future of each submission resolves, and the
gateway acknowledges. So nothing is acknowledged that a power cut can take away.

Each consumer (a session, a share group, a route) has a `Cursor`, whose place is the position up to which it needs no
message. The log deletes what lies before the place of the slowest consumer (`Maintenance`). Between that place and the
newest messages `Compaction` takes out what no consumer needs. A full store evicts the oldest messages; each consumer
that still needed one gets a range of its identity in the table ``dropped``.

Messages, places, sessions, wills and ranges are in one file. What belongs together is written in one transaction, so
that a crash leaves all of it or none. Work that has no waiting client is deferred, and goes with the next commit.
"""

import asyncio
import contextlib
import itertools
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from gateway.counters import Counters
from gateway.errors import StoreError
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.store.client_quotas import ClientQuotas
from gateway.store.compaction import Compaction, Removed
from gateway.store.consumers.audience import Audience
from gateway.store.consumers.backlog_count import BacklogCounts, count_stored
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.keepers import Keepers
from gateway.store.consumers.quotas import TopicQuotas
from gateway.store.consumers.registry import Consumers, gone_of
from gateway.store.consumers.tally import Tally
from gateway.store.database import Database, MaintenanceWrite
from gateway.store.eviction import Eviction
from gateway.store.group_commit import GroupCommit, Told, Witness, future_of, tell_of_failure
from gateway.store.maintenance import Maintenance
from gateway.store.reader import Reader, RowCache
from gateway.store.routes.kept import KeptPlaces
from gateway.store.routes.refused import RefusedMessages
from gateway.store.routes.stored_routes import StoredRoutes
from gateway.store.seen import Seen
from gateway.store.sqlite import swap_files
from gateway.store.sqlite.folder import MESSAGES, TakenFolder, room_bytes, take_folder
from gateway.store.tables.cursors import Place
from gateway.store.tables.drops import SELECTED, Drop, Epoch
from gateway.store.tables.log_rows import PARTS, Gaps, LogRow, Part, Work, is_qos_0, stored_size
from gateway.store.tables.retained import Extent, Keep
from wire.hops import encode_hop

ROWS_MOST = 32  # returned at once from memory
RETAINED_ROW = 64  # bytes of a retained message's row besides the counted columns, roughly
WITH_MESSAGES = (*PARTS, Keep)
UNCOMMITTED_BYTES_MAX = 16 * 1024 * 1024  # of messages in memory that are not durable yet

logger = logging.getLogger(__name__)


class StoreLimits(Protocol):
    """What the log asks of the limits on what waits in it.

    ``counts_backlogs``: cursors count what waits for them. ``quotas`` counts the messages by owner, None where owners
    have no limit. ``topic_quotas`` makes what counts one consumer's messages below topic filters, None where these have
    no limits.
    """

    @property
    def counts_backlogs(self) -> bool: ...

    def topic_quotas(self) -> TopicQuotas | None: ...

    @property
    def quotas(self) -> ClientQuotas | None: ...

    def note_committed(self, cursors: Iterable[Cursor]) -> None:
        """Messages have become durable that may be for these cursors."""


class LogWriter:
    """What publishers need of the log: transactions that many clients share, and room for messages until these.

    Args:
        taken: the store's folder.
        database: the open file.
        committed: told of the results and works of each durable transaction, and of the rows with its messages.
        counters: where durations are counted.
        interval_s: shortest time between two commits, in seconds.

    ``disk_bytes`` is how much room the disk has, ``problem`` why the newest attempt to store a message failed, "" if it
    did not fail.
    """

    def __init__(
        self,
        taken: TakenFolder,
        database: Database,
        committed: Callable[[list[tuple[Any, Work]], list[LogRow]], None],
        counters: Counters,
        interval_s: float,
    ) -> None:
        self.problem = ""
        self.disk_bytes = 0
        self._taken = taken
        self._database = database
        self._committed = committed
        self._counters = counters
        self._waiting_bytes = 0
        self._room = Signal()
        self._room.set()
        self._commit_s = 0.0
        self.look_at_disk()
        self.commits: GroupCommit[Sequence[Work], list[Any]] = GroupCommit(
            self._commit, self._note_committed, interval_s, database.checkpoint
        )

    def hand_in(self, works: Sequence[Work], told: Told) -> None:
        """Writes works in one transaction (``MessageLog.hand_in``)."""
        size = 0
        for work in works:
            if isinstance(work, WITH_MESSAGES):
                size += work.size
        self.note_waiting(size)
        self.commits.hand_in(works, partial(self._written, works, size, told))

    @property
    def has_room(self) -> bool:
        """Whether ``wait_for_room`` returns at once."""
        return self._room.is_set

    async def wait_for_room(self) -> None:
        """Waits while more than UNCOMMITTED_BYTES_MAX bytes wait for a commit."""
        await self._room.wait()

    def note_waiting(self, size: int) -> None:
        """The messages that wait for a commit have grown by as many bytes, or shrunk."""
        self._waiting_bytes += size
        if self._waiting_bytes > UNCOMMITTED_BYTES_MAX:
            self._room.clear()
        elif not self._room.is_set:
            self._room.set()

    def look_at_disk(self) -> None:
        """Reads how much room the disk has. Each commit does this before its messages are acknowledged."""
        self.disk_bytes = room_bytes(self._taken.path)

    async def close(self) -> None:
        """Makes everything durable."""
        await self.commits.close()

    async def close_files(self) -> None:
        """Closes the file and frees its folder, once nothing reads it any more."""
        await asyncio.get_running_loop().run_in_executor(None, self._database.close)
        self._taken.close()

    def _written(
        self, works: Sequence[Work], size: int, told: Told, results: list[Any] | None, error: Exception | None
    ) -> None:
        if error is None:
            self.problem = ""
            self.note_waiting(-size)
        else:
            asyncio.get_running_loop().call_soon(self._note_failure, works, size, error)
        told(results, error)

    def _note_failure(self, works: Sequence[Work], size: int, error: Exception) -> None:
        self.problem = str(error)
        tell_of_failure(works)
        self.note_waiting(-size)

    def _commit(self, batch: list[Sequence[Work]]) -> list[list[Any]]:
        self._taken.check()  # the next start must find what is acknowledged now
        started_s = time.perf_counter()
        try:
            return self._database.commit(batch)
        finally:
            self._commit_s = time.perf_counter() - started_s
            with contextlib.suppress(OSError):  # if the folder is gone, the next commit fails
                self.look_at_disk()

    def _note_committed(self, batch: list[Sequence[Work]], results: list[list[Any]]) -> None:
        self._counters.commit_s.observe(self._commit_s)
        done: list[tuple[Any, Work]] = []
        for works, its_results in zip(batch, results, strict=True):
            done += zip(its_results, works, strict=True)
        self._committed(done, self._database.newest_rows)


class Space:
    """What an operator, and the limits, need of the log: how much is stored, in use and free, and what is wrong.

    ``state_bytes`` is the size of sessions, QoS 2 states, ranges of drops and other tables in the file, as the newest
    call of ``measure_state`` found it.
    """

    def __init__(
        self,
        log: "MessageLog",
        taken: TakenFolder,
        database: Database,
        maintenance: Maintenance,
        reader: Reader,
        compaction: Compaction,
    ) -> None:
        self.state_bytes = 0
        self._log = log
        self._taken = taken
        self._database = database
        self._maintenance = maintenance
        self._reader = reader
        self._compaction = compaction

    @property
    def problem(self) -> str:
        """Why the newest attempt to store a message or to save a place failed; "" if it did not fail."""
        try:
            self._taken.check()
        except sqlite3.OperationalError as error:
            return str(error)
        problem = self._log.writer.problem or self._maintenance.problem
        return f"{problem}; its disk is full" if problem and self._log.writer.disk_bytes < 0 else problem

    @property
    def is_damaged(self) -> bool:
        """Whether a damaged page keeps the log from deleting messages that no consumer needs."""
        return not self._maintenance.may_trim

    @property
    def stored_count(self) -> int:
        """Messages in the store, needed or not yet deleted."""
        return self._log.count_behind(self._maintenance.trimmed)

    @property
    def needed_count(self) -> int:
        """How many messages there are from the oldest needed one on."""
        return self._log.count_behind(self.needed_from)

    @property
    def needed_from(self) -> int:
        """The position behind which a consumer needs messages."""
        return self._log.consumers.needed_from(self._log.head)

    @property
    def retained(self) -> Extent:
        """How many topics have a retained message, and the bytes of names, payload and properties of all of them."""
        return self._maintenance.retained

    @property
    def used_bytes(self) -> int:
        """Bytes in use in the store's file, as of the last commit."""
        return self._database.used_bytes

    @property
    def bytes_beside(self) -> int:
        """Bytes of the file, roughly, that no eviction frees: retained messages and ``state_bytes``."""
        return self.state_bytes + self.retained.bytes + RETAINED_ROW * self.retained.topics

    def make_room(self) -> tuple[int, int]:
        """Takes out what no consumer needs, also in the middle of a nearly full log. Returns how many messages and
        bytes are still to be looked at."""
        self._log.seen.make_room()
        self._log.kept.make_room()
        return self._compaction.make_room()

    async def measure_state(self) -> None:
        """Sets ``state_bytes``: reads all rows of these tables. Raises sqlite3.Error."""
        self.state_bytes = await self._reader.size_of_state()

    @property
    def room_bytes(self) -> int:
        """Bytes that are free in the store's file and on its disk; below 0 they are too few to trim the log safely."""
        return self._database.free_bytes + self._log.writer.disk_bytes


class MessageLog:
    """The durable log of one gateway. ``open`` makes one; it belongs to the event loop that opened it.

    Its own methods are for consumers. ``writer`` is what publishers need besides ``submit``, ``space`` tells how full
    the store is, and ``eviction`` makes room. ``reader`` reads other tables than the log. ``found`` is what the file
    had at the start. ``hop`` is this gateway's among the hops of a message.
    """

    def __init__(self, folder: Path, taken: TakenFolder, database: Database, commit_interval_s: float) -> None:
        self.counters = Counters()
        self._limits: StoreLimits | None = None
        self.head = database.position
        self.hop = encode_hop(database.epoch)
        self.folder = folder
        self.found = found = database.found
        self.consumers = Consumers(found.cursors, Keepers(found.flows, gone_of(found.cursors), self.changed))
        self._gaps = Gaps(found.gaps)
        self.audience: Audience[Cursor] = Audience()
        self.backlogs = BacklogCounts(self)
        self._row_cache = RowCache()
        self.writer = LogWriter(taken, database, self._committed, self.counters, commit_interval_s)
        self._maintenance = Maintenance(
            database,
            self.consumers,
            self._gaps,
            lambda: self.head,
            self.writer.commits,
            self.writer.note_waiting,
            commit_interval_s,
        )
        self.reader = Reader(folder, database, self._gaps, self.submit, self.drop, self.counters)
        identity = database.origin, database.epoch
        self.routes = StoredRoutes(self, found.routes, identity)
        self.refused = RefusedMessages(self, self.consumers.keepers, found.refused)
        self.seen = Seen(self, found.seen, identity)
        self.consumers.keepers.keep_softly(self.seen)
        self.kept = KeptPlaces(self, found.cursors, found.unsent, self.consumers)
        self._compaction = Compaction(
            self.consumers,
            self.audience,
            self.reader,
            self._maintenance,
            self.submit,
            self._note_removed,
            lambda: self.head,
            commit_interval_s,
        )
        self.space = Space(self, taken, database, self._maintenance, self.reader, self._compaction)
        self.eviction = Eviction(self, self._maintenance, min([0, *found.endings]))

    @classmethod
    async def open(cls, folder: Path, *, origin: str, commit_interval_ms: int = 0) -> "MessageLog":
        """Opens the log in a folder, which is made if it does not exist.

        Args:
            folder: the store's folder; only this process may use it while the log is open.
            origin: the origin of the identities that messages without one get: the gateway's name.
            commit_interval_ms: shortest time between two commits, in milliseconds. If it is not 0, messages are stored
                deflated: an interval is configured to spare the medium.

        Raises:
            StoreError: the folder cannot be used, another process uses it, or its files are not a store.
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
        taken.watch(*(MESSAGES + companion for companion in swap_files.COMPANIONS))
        log = cls(folder, taken, database, commit_interval_ms / 1000)
        await log.seen.open()
        return log

    def limit_by(self, limits: StoreLimits) -> None:
        """Asks these limits from now on."""
        self._limits = limits

    def new_tally(self, always_counts: bool) -> Tally:
        """Returns what counts the messages that wait for a new cursor, as far as limits ask for it."""
        if self._limits is None:
            return Tally(always_counts)
        return Tally(always_counts or self._limits.counts_backlogs, self._limits.topic_quotas())

    def hand_in(self, works: Sequence[Work], told: Told) -> None:
        """Writes works in one transaction, and everything that was deferred before them.

        Calls ``told`` once all of it is durable, with the position of each message and the result of each other work,
        or with the sqlite3.Error for which nothing of it was stored.
        """
        self._maintenance.write_pending()  # a place that could not be saved is saved no later than the next message
        self.writer.hand_in(works, told)

    def submit(self, works: Sequence[Work]) -> asyncio.Future[list[Any]]:
        """Hands works in; the future resolves when they are durable, or raises the sqlite3.Error."""
        return future_of(self.hand_in, works)

    def defer(self, work: Work) -> None:
        """Writes a work with the next commit, or at the latest with the next run of the maintenance."""
        self._maintenance.defer(work)

    async def read(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Returns up to ``limit`` durable messages with positions behind ``after``, in order.

        Fewer may come if messages are large; an empty list means the head is reached. Raises sqlite3.Error.
        """
        found: list[tuple[int, Message]] = []
        for row in self._row_cache.behind(after):
            found += row.read(after, limit - len(found))
            if len(found) >= limit:
                break
        while not found and after < self.head:
            for row in await self.reader.read(after, self.head):
                found += row.read(after, limit - len(found))
                self._row_cache.add(row)
                after = row.last
        return found

    async def read_rows(self, after: int) -> list[LogRow]:
        """Returns consecutive rows of the log, the first with the next message behind a position.

        Raises sqlite3.Error.
        """
        return self.rows_in_memory(after) or await self.reader.read(after, self.head)

    def rows_in_memory(self, after: int) -> list[LogRow]:
        """Returns consecutive rows from the one with the next message on, none if that is on disk alone."""
        return list(itertools.islice(self._row_cache.behind(after), ROWS_MOST))

    async def read_one(self, position: int) -> Message | None:
        """Returns the message at a position, None if it is gone. Raises sqlite3.Error."""
        if position <= self.gone:
            return None
        found = await self.read(position - 1, 1)
        return found[0][1] if found and found[0][0] == position else None

    def passed(self, consumer: str) -> set[int]:
        """Returns the positions of messages that QoS 2 flows had at the start, or that are set aside."""
        own = [flow.positions for flow in self.found.flows if flow.source == consumer]
        return {*itertools.chain.from_iterable(own)} | {one.position for one in self.refused.of(consumer)}

    def drop(self, reason: str, consumer: str, message: Message) -> None:
        """Notes that a consumer does not get a message; the note is durable no later than the consumer's place."""
        self.counters.note_dropped(reason, consumer)
        self._maintenance.gathering().note(reason, consumer, message)

    def leave_out(self, consumer: str, found: dict[Epoch, list[int]]) -> None:
        """Notes what a consumer has left out, durable with its place: first and last of an epoch, and how many."""
        self.counters.messages_dropped[SELECTED] += sum([count for _, _, count in found.values()])
        self._maintenance.gathering().note_left_out(consumer, found)

    def count_behind(self, position: int) -> int:
        """Returns how many messages are in the log behind a position, for any consumer."""
        return self.head - position - self._gaps.behind(position)

    @property
    def gone(self) -> int:
        """The last position that no consumer gets any more."""
        return self.consumers.gone

    def note_earlier_place(self, cursor: Cursor) -> None:
        """A cursor goes on at an earlier place than before; the place is saved with the next commit."""
        self.consumers.note_earlier_place()
        self.save_place(cursor)

    def save_place(self, cursor: Cursor) -> None:
        """Saves a cursor's place, and its backfill's, no later than the next commit."""
        self._maintenance.save_with_ranges(cursor.consumer)

    def saved_position(self, place: str) -> int:
        """Returns the position of a place as the file has it, or as it is being written; 0 if there is none."""
        return self.consumers.saved_position(place)

    def forget(self, consumer: str) -> None:
        """Removes a durable consumer without an open cursor; messages that only it needed are no longer kept.

        The file forgets it in the transaction of the work that was deferred just before, such as the row of its ending.
        """
        if remove := self.consumers.forget(consumer):
            self.defer(remove)
        self.changed()

    def attach(self, cursor: Cursor) -> Place:
        """Registers a new cursor and returns its place. Raises ValueError if its consumer has a cursor already."""
        if cursor.durable:
            self._maintenance.write_pending()  # ranges of this consumer belong to its former place
        position, count = self.consumers.attach(cursor, self.head)
        if cursor.durable and count == 0:
            # Submitted before any message that the cursor is to see, so it is durable no later than that message.
            self._maintenance.write(MaintenanceWrite([(cursor.place, position, count)], 0))
        return position, count

    def detach(self, cursor: Cursor) -> None:
        """Removes a cursor."""
        self.consumers.detach(cursor)
        self.changed()

    def changed(self) -> None:
        """A cursor moved: the next run of the maintenance saves it, and trims the log behind the slowest cursor."""
        self._maintenance.changed()

    async def close(self) -> None:
        """Saves the cursors, makes everything durable and closes the files."""
        self.audience.close()
        self.backlogs.close()
        await self._compaction.close()
        await self.kept.close()
        self.seen.close()
        self._maintenance.close()
        await self.writer.close()
        await self.reader.close()
        await self.writer.close_files()

    def _committed(self, done: list[tuple[Any, Work]], rows: list[LogRow]) -> None:
        stored = [(position, work) for position, work in done if isinstance(work, PARTS)]
        if len(stored) < len(done):
            self._note_other_works([(result, work) for result, work in done if not isinstance(work, PARTS)])
        if stored:
            self._note_stored(stored, rows)

    def _note_other_works(self, done: list[tuple[Any, Work]]) -> None:
        self._maintenance.note_written(done)
        for _, work in done:
            if isinstance(work, Drop):
                self.counters.messages_dropped[work.reason] += 1
            elif isinstance(work, Witness):
                work.succeed()

    def _note_stored(self, stored: list[tuple[int, Part]], rows: list[LogRow]) -> None:
        for row in rows:
            self._row_cache.add(row)
        self.head = rows[-1].last
        self.counters.messages_stored += self.head - rows[0].first + 1
        if self._limits is not None and (quotas := self._limits.quotas) is not None:
            quotas.note(self.head, (part for _, part in stored))
            quotas.forget(self._maintenance.trimmed)
        size = sum([stored_size(part) for _, part in stored])
        news_by_cursor = self._news_by_cursor(stored)
        for cursor, (begin, end) in news_by_cursor.items():
            cursor.notice(begin, end, size)
            if cursor.tally.counts:
                count_stored(self, cursor, stored)
        if self.routes.left_out:
            self.routes.note_stored(stored)
        self._compaction.note_stored(size)
        if self.seen.has_rows:
            self.seen.note_stored()
        self.changed()
        if self._limits is not None:
            self._limits.note_committed(news_by_cursor)

    def _news_by_cursor(self, stored: list[tuple[int, Part]]) -> dict[Cursor, tuple[int, int]]:
        """Returns the first and last position that may be for each cursor; each topic is looked up once."""
        kinds: dict[tuple[str, bool], tuple[int, int]] = {}
        for position, part in stored:
            for topic in part.topics:
                kind = topic, is_qos_0(part)
                kinds[kind] = kinds.get(kind, (position, 0))[0], position + part.count - 1
        found: dict[Cursor, tuple[int, int]] = {}
        for (topic, has_qos_0), (first, last) in kinds.items():
            for cursor in self.audience.takers(topic):
                if has_qos_0 and not cursor.takes_qos_0:
                    continue
                if cursor.takes_new and cursor.rights.may_receive(topic):
                    begin, end = found.get(cursor, (first, last))
                    found[cursor] = min(begin, first), max(end, last)
        return found

    def _note_removed(self, first: int, last: int, gone: int, removed: Removed) -> None:
        self._gaps.note(first, last, gone)
        if self._limits is not None and (quotas := self._limits.quotas) is not None:
            for position, publisher, messages, size in removed:
                quotas.take_out(position, publisher, messages, size)
