"""The limits on stored messages: of the store, of each consumer's queue, below topic filters, and of each owner.

When a limit is reached, ``when_full`` in the configuration says what happens to the next message: it is refused, its
publisher waits, or the oldest messages are dropped. The store's limit holds for all messages, a queue's for the topics
that its session subscribes to, one below a topic filter for each consumer's messages there, an owner's for the messages
that it publishes. A publisher that waits is asked again at
intervals, since any consumer's acknowledgement may make room.
"""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Callable, Iterable
from enum import Enum

from gateway.config.kinds import WhenFull
from gateway.config.schema import ClientConfig, GatewayConfig, QueueConfig, StoreConfig
from gateway.message import MESSAGE_OVERHEAD, Message
from gateway.store import (
    Backlog,
    ClientQuotas,
    Cursor,
    MessageLog,
    UnseenDrops,
    count_backlogs,
    disk,
    quotas,
)

RETRY_S = 0.05
RETAINED_LEAST = 1024  # bytes; a retained message of this size may always replace its topic's one
NEAR_PART = 0.8  # of the store's limits: beyond it the messages that no consumer needs are removed
UNSWEPT_PART = 0.125  # of the store's limits: it may exceed them by this part until these are removed
MEASURE_REST_S = 10.0  # between two measurements of the part of the file that is not messages
MEASURE_REST_TIMES = 20  # at least this many times as long as a measurement takes
DROPPING_ENDS_S = 60.0  # without a drop, until the store counts as full no more
DISCARD_PAUSE_S = 0.02  # between two looks, so that one read of the file finds the oldest for many messages

FULL_NOTES = {
    "discard_old": "full, the oldest messages are dropped",
    "reject_incoming": "full, new messages are refused",
    "flow_control": "full, publishers and neighbours wait",
}

logger = logging.getLogger(__name__)


class DropNotes:
    """What operators are told of messages that limits have dropped.

    Args:
        log: the message log.

    ``seen`` says since when messages were dropped that no operator has seen.
    """

    def __init__(self, log: MessageLog) -> None:
        self.seen = UnseenDrops(log.folder)
        self._log = log
        self._dropping: asyncio.TimerHandle | None = None  # until that is over
        self._route_drops = 0  # beyond limits of routes, as far as they are noted

    @property
    def is_dropping(self) -> bool:
        """Whether the store dropped messages in the last minute."""
        return self._dropping is not None

    @property
    def problem(self) -> str:
        """Says that acknowledged messages are dropped, or were and no operator has seen it; "" if not."""
        self.note_routes()
        if self._dropping is not None:
            return _with_disk(self._log, FULL_NOTES["discard_old"])
        if self.seen.since:
            return f"acknowledged messages were dropped since {self.seen.since}: `holdfast gateway seen` ends this line"
        return ""

    @property
    def remark(self) -> str:
        """How many messages sessions have lost to their limits since the start, as is configured; "" for none."""
        _, count = self._log.counters.beyond_limits
        text = "messages beyond the limits of sessions ([queue], [[topic]]) were dropped for these since the start"
        return f"{count:,} {text}" if count else ""

    def note_routes(self) -> None:
        """Notes that a route has lost messages to a limit: the next broker never gets these readings."""
        count, _ = self._log.counters.beyond_limits
        if count > self._route_drops:
            self._route_drops = count
            self.seen.note()

    def note_store(self) -> None:
        """The full store has dropped messages."""
        self.seen.note()
        if self._dropping is None:
            logger.warning("message store: full, the oldest messages are dropped for the consumers they wait for")
        else:
            self._dropping.cancel()
        self._dropping = asyncio.get_running_loop().call_later(DROPPING_ENDS_S, self._end_dropping)

    def _end_dropping(self) -> None:
        self._dropping = None
        logger.warning("message store: full no more, no message was dropped for %d s", DROPPING_ENDS_S)

    def close(self) -> None:
        """Ends."""
        if self._dropping is not None:
            self._dropping.cancel()


class StoreRoom:
    """How full the store is against its limits.

    Args:
        config: the limits.
        log: the message log.

    ``problem`` says why new sessions and retained messages are refused: too much of the file is not messages. It is ""
    while they are not refused.
    """

    def __init__(self, config: StoreConfig, log: MessageLog) -> None:
        self.problem = ""
        self._config = config
        self._log = log
        self._half = config.max_bytes // 2  # reserved for messages
        self._measuring: asyncio.Task[None] | None = None
        self._measured_until_s = 0.0

    async def measure(self) -> None:
        """Measures how much of the file is not messages, where it may be much and the last measurement is old."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        if self._log.space.used_bytes < self._half or started_s < self._measured_until_s:
            return
        self._measured_until_s = sys.maxsize  # no other measurement begins meanwhile
        try:
            await self._log.space.measure_state()
        except sqlite3.Error as error:
            logger.error("the part of the store that is not messages cannot be measured: %s", error)
        took_s = loop.time() - started_s
        self._measured_until_s = loop.time() + max(MEASURE_REST_S, MEASURE_REST_TIMES * took_s)
        before, self.problem = self.problem, ""
        if self._log.space.state_bytes > self._half:
            self.problem = (
                "sessions, QoS 2 states and ranges of what was dropped take up more than half of store.max_bytes: "
                "no new session and no new retained message is kept"
            )
            if not before:
                logger.error("message store: %s", self.problem)

    async def close(self) -> None:
        """Returns when nothing is measured any more."""
        if self._measuring is not None:
            await self._measuring

    def takes_none(self) -> bool:
        """Whether the store is full, and no message is dropped to make room."""
        if self._config.when_full == "discard_old":
            return False
        self.make_room()
        return self._is_full()

    @property
    def full_note(self) -> str:
        """What becomes of new messages while the store is full and drops none, and what fills its disk; "" else."""
        return _with_disk(self._log, FULL_NOTES[self._config.when_full]) if self.takes_none() else ""

    @property
    def left_bytes(self) -> int:
        """Bytes until the store is full, by its limit and by its disk; 0 if it is."""
        return max(0, min(self._bytes_most - self._log.space.used_bytes, self._log.space.room_bytes))

    @property
    def left_messages(self) -> int | None:
        """Messages until the store is full by their number; None if this has no limit."""
        most = self._config.max_messages
        return None if most is None else max(0, most - self._log.space.stored_count)

    @property
    def is_half_empty(self) -> bool:
        """Whether less than half of what the limits and the disk let the store have is used."""
        log, most = self._log, self._config.max_messages
        has_numbers = most is None or 2 * log.space.stored_count < most or 2 * log.space.needed_count < most
        return has_numbers and log.space.used_bytes < min(self._bytes_most - log.space.used_bytes, log.space.room_bytes)

    @property
    def when_full(self) -> WhenFull:
        """What becomes of messages when the store is full."""
        return self._config.when_full

    def make_room(self) -> tuple[int, int]:
        """Has the messages that no consumer needs removed from a store that is nearly full.

        Returns how many messages and bytes that may free.
        """
        config, log = self._config, self._log
        is_near = (
            log.space.room_bytes <= 0
            or log.space.used_bytes >= NEAR_PART * self._bytes_most
            or (config.max_messages is not None and log.space.stored_count >= NEAR_PART * config.max_messages)
        )
        return log.space.make_room() if is_near else (0, 0)

    def is_over(self, messages: int, size: int) -> tuple[int, int] | None:
        """Returns how many messages to drop and by how many bytes the store exceeds its limit; None if it does not.

        ``messages`` and ``size`` may go without a drop: the store may exceed its limits by them, within UNSWEPT_PART.
        """
        config, log = self._config, self._log
        messages_most, bytes_most = config.max_messages or sys.maxsize, self._bytes_most
        messages_most += min(messages, int(UNSWEPT_PART * messages_most))
        bytes_most += min(size, int(UNSWEPT_PART * bytes_most))
        count = log.space.needed_count - messages_most if log.space.stored_count > messages_most else 0
        size = max(log.space.used_bytes - bytes_most, -log.space.room_bytes)
        if log.space.is_damaged:  # nothing is deleted, so a drop frees nothing
            size = 0
        return (count, size) if count > 0 or size > 0 else None

    def _is_full(self) -> bool:
        config, log = self._config, self._log
        most = config.max_messages
        # `needed_count` takes longer, so it is asked only where enough messages are stored.
        if most is not None and log.space.stored_count >= most and log.space.needed_count >= most:
            return True
        if log.space.used_bytes >= NEAR_PART * config.max_bytes:
            self._begin_to_measure()
        return log.space.room_bytes <= 0 or log.space.used_bytes >= self._bytes_most

    def _begin_to_measure(self) -> None:
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.get_running_loop().create_task(self.measure())

    @property
    def _bytes_most(self) -> int:
        """Bytes at which the store is full. Dropping messages frees none of the file's other contents."""
        return max(self._config.max_bytes, self._log.space.bytes_beside + self._half)


class Discarding:
    """Drops the oldest messages of the store, and of each queue, beyond the limits, where that is configured.

    Args:
        config: the limits.
        log: the message log.
        cursors: returns the cursors that have limits.
        room: how full the store is.
        notes: told of what is dropped.

    ``counts_backlogs`` says whether cursors count the messages that wait for them.
    """

    def __init__(
        self,
        config: GatewayConfig,
        log: MessageLog,
        cursors: Callable[[], Iterable[Cursor]],
        room: StoreRoom,
        notes: DropNotes,
    ) -> None:
        self._queue = config.queue
        self._queue_discards = config.queue.when_full == "discard_old"
        # A count looks at each message. Where only queues drop their oldest messages, it can be made later.
        self.counts_backlogs = not self._queue_discards or bool(config.topic)
        self._consumers_discard = self._queue_discards or any(one.when_full == "discard_old" for one in config.topic)
        self._store_discards = config.store.when_full == "discard_old"
        self._log = log
        self._cursors = cursors
        self._room = room
        self._notes = notes
        self._news: dict[Cursor, None] = {}
        self._discarding: asyncio.Task[None] | None = None
        self._dirty = False
        self._uncounted: dict[Cursor, None] = {}
        self._counting: asyncio.Task[None] | None = None
        self._is_open = False

    async def open(self) -> None:
        """Counts the messages that wait already; from now on the limits hold."""
        if self.counts_backlogs:
            await count_backlogs(self._log, self._cursors())
        if self._consumers_discard or self._store_discards:
            self._is_open = True
            self.look(self._cursors())

    async def close(self) -> None:
        """Returns when nothing is counted and dropped any more."""
        self._is_open = False
        if self._counting is not None:  # discarding waits for it
            self._counting.cancel()
        if self._discarding is not None:
            await self._discarding

    def look(self, cursors: Iterable[Cursor]) -> None:
        """Has the oldest messages dropped where the store, or the queue of one of these cursors, exceeds its limit."""
        if not self._is_open:
            return
        self._dirty = True
        if self._consumers_discard:
            self._news.update(dict.fromkeys(cursors))
        if self._discarding is None or self._discarding.done():
            self._discarding = asyncio.get_running_loop().create_task(self._discard_all())

    def count_again(self, cursors: Iterable[Cursor]) -> None:
        """Counts the backlogs of cursors anew, as their subscriptions have changed; until then they have no limit."""
        self._begin_to_count(cursor for cursor in cursors if self.counts_backlogs or cursor.tally.counts)

    def _begin_to_count(self, cursors: Iterable[Cursor]) -> None:
        for cursor in cursors:
            cursor.tally.stop()
            self._uncounted[cursor] = None
        if not self._uncounted:
            return
        if self._counting is None or self._counting.done():
            self._counting = asyncio.get_running_loop().create_task(self._count())

    async def _count(self) -> None:
        while self._uncounted:
            cursor, _ = self._uncounted.popitem()
            if cursor.closed:
                continue
            try:
                await count_backlogs(self._log, [cursor])
            except sqlite3.Error as error:
                logger.error(
                    "the messages that wait for %s have no limit: they cannot be counted: %s", cursor.consumer, error
                )
            if cursor in self._uncounted:  # its subscriptions have changed again
                cursor.tally.stop()
            else:
                self.look([cursor])

    async def _discard_all(self) -> None:
        while self._dirty and self._is_open:
            self._dirty = False
            try:
                await self._discard_what_is_over()
            except sqlite3.Error as error:
                logger.error("the oldest messages could not be dropped, the next message tries again: %s", error)
            await asyncio.sleep(DISCARD_PAUSE_S)

    async def _discard_what_is_over(self) -> None:
        await self._room.measure()
        if self._store_discards:
            while self._is_open and (over := self._room.is_over(*self._room.make_room())):
                before = self._log.eviction.count
                is_smaller = await self._log.eviction.evict(*over)
                if self._log.eviction.count > before and self._is_open:
                    self._notes.note_store()
                if not is_smaller:
                    break
            else:
                self._dirty |= self._room.is_over(0, 0) is not None
        news, self._news = self._news, {}
        for cursor in news:
            is_counting = cursor in self._uncounted or cursor.tally.is_walking
            if not (cursor.closed or cursor.always_counts or is_counting):
                await self._discard_oldest_of(cursor)

    async def _discard_oldest_of(self, cursor: Cursor) -> None:
        tally, backlog = cursor.tally, cursor.tally.kept
        if backlog is None:
            if self._is_over(tally.noticed) and cursor in self._cursors():
                self._begin_to_count([cursor])
            elif self._is_over(tally.noticed):
                tally.estimate()  # it has no limit
        elif self._is_over(backlog) or backlog != cursor.backlog:
            await cursor.discard_oldest(lambda _: tally.kept is None or not self._is_over(tally.kept))
        elif not self.counts_backlogs and not self._is_over(Backlog(2 * backlog.messages, 2 * backlog.bytes)):
            tally.estimate()

    def _is_over(self, backlog: Backlog) -> bool:
        return self._queue_discards and backlog.exceeds(self._queue.max_messages, self._queue.max_bytes)


class Verdict(Enum):
    """What happens to a message."""

    TAKE = "take"
    REFUSE = "refuse"
    WAIT = "wait"


class Limits:
    """Decides whether the gateway takes a message. The log asks it too.

    Args:
        config: the limits.
        log: the message log.
        cursors: returns the cursors that have limits.
        wanted_by: returns the cursors that take messages of a topic.

    ``quotas`` has how much of the store each owner uses, None where that has no limit. ``room`` is how full the store
    is, ``discarding`` drops the oldest messages, and ``dropped`` tells operators so.
    """

    def __init__(
        self,
        config: GatewayConfig,
        log: MessageLog,
        cursors: Callable[[], Iterable[Cursor]],
        wanted_by: Callable[[str], Iterable[Cursor]],
    ) -> None:
        self.room = StoreRoom(config.store, log)
        self.dropped = DropNotes(log)
        self.discarding = Discarding(config, log, cursors, self.room, self.dropped)
        has_quotas = config.client.max_messages or config.client.max_bytes
        self.quotas = ClientQuotas(log.head) if has_quotas else None
        self.counts_backlogs = self.discarding.counts_backlogs
        self._store_when_full = config.store.when_full
        self._queue = config.queue
        self._queue_discards = config.queue.when_full == "discard_old"
        self._client = config.client
        self._retained_most = config.limits.retained_messages
        self._retained_bytes = min(config.limits.retained_bytes, config.store.max_bytes // 2)
        self._looked_s = 0.0
        self._log = log
        self._wanted_by = wanted_by
        self._topics = config.topic
        self._topic_limits = quotas.TopicLimits(
            (one.filter, quotas.Limit(one.max_messages, one.max_bytes, one.when_full == "discard_old"))
            for one in config.topic
        )
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        log.limit_by(self)

    async def open(self) -> None:
        """Counts the messages that wait already; from now on the limits hold."""
        await self.room.measure()
        await self.discarding.open()

    async def close(self) -> None:
        """Stops dropping; publishers that wait are not asked again."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        await self.discarding.close()
        self.dropped.close()
        await self.room.close()

    def note_committed(self, cursors: Iterable[Cursor]) -> None:
        """Messages have become durable that may be for these cursors."""
        self.dropped.note_routes()
        self.discarding.look(cursors)

    def verdict(self, topic: str, owner: str, publisher: str, *, is_broker: bool = False) -> Verdict:
        """Returns what happens to a message to this topic from one of the owner's clients, by its identifier.

        Consumers that do not take this client's messages do not count: two gateways whose links are full would wait for
        each other. A broker keeps all its messages back while one waits. So no full queue holds up what a broker sends
        while the store is less than half full.
        """
        if self.quotas is not None and self._is_at_its_quota(self.quotas, owner):
            return _VERDICTS[self._client.when_full]
        if self.room.takes_none():
            return _VERDICTS[self._store_when_full]
        if not self._queue_discards and not (is_broker and self.room.is_half_empty):
            for cursor in self._wanted_by(topic):
                kept = cursor.tally.kept
                if kept is not None and _is_full(self._queue, kept) and publisher not in cursor.not_from:
                    return _VERDICTS[self._queue.when_full]
        if not self._topics:
            return Verdict.TAKE
        return self.verdict_below_filters(topic, self._log.audience.takers(topic), publisher)

    def verdict_below_filters(self, topic: str, takers: Iterable[Cursor], publisher: str) -> Verdict:
        """Returns what the limits below topic filters mean for a message to this topic, which these cursors take."""
        for number in self._topic_limits.matching(topic):
            when_full = self._topics[number].when_full
            if when_full == "discard_old":
                continue
            counted = [cursor.tally.topics for cursor in takers if publisher not in cursor.not_from]
            if any(one is not None and one.is_full(number) for one in counted):
                return _VERDICTS[when_full]
        return Verdict.TAKE

    def topic_quotas(self) -> quotas.TopicQuotas | None:
        """Returns what counts the messages of a new cursor below topic filters, None where these have no limits."""
        return quotas.TopicQuotas(self._topic_limits) if self._topics else None

    def may_keep(self, message: Message) -> bool:
        """Whether a message may become the retained message of its topic."""
        if not message.payload:
            return True
        if not message.qos and self.refuses(message.owner):
            return False  # at QoS 1 and 2 ``verdict`` has decided on the message itself
        log, most, size = self._log, self._retained_bytes, message.size - MESSAGE_OVERHEAD
        if self.room.problem:
            return size <= (log.reader.retained_size(message.topic) or 0)
        if log.space.retained.topics < self._retained_most and log.space.retained.bytes + size <= most:
            return True
        before = log.reader.retained_size(message.topic)
        if before is None:
            return False
        return size <= max(before, RETAINED_LEAST) or log.space.retained.bytes - before + size <= most

    def refuses(self, owner: str) -> bool:
        """Whether the store, or this owner's quota, is full and no message is dropped to make room."""
        return self.room.takes_none() or (self.quotas is not None and self._is_at_its_quota(self.quotas, owner))

    def wait(self, retry: Callable[[], None]) -> None:
        """Calls ``retry`` once, when there may be room."""
        self._waiting.append(retry)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._log.writer.look_at_disk()
        waiting, self._waiting = self._waiting, []
        for retry in waiting:
            retry()

    def _is_at_its_quota(self, clients: ClientQuotas, owner: str) -> bool:
        if not _is_full(self._client, clients.of(owner)):
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s >= RETRY_S:  # finding out which messages are needed takes long in a large store
            self._looked_s = now_s
            clients.forget(self._log.space.needed_from)
        return _is_full(self._client, clients.of(owner))

    @property
    def is_full(self) -> bool:
        """Whether the store is full, or dropped messages in the last minute."""
        return self.dropped.is_dropping or self.room.takes_none()


def _with_disk(log: MessageLog, what: str) -> str:
    """Returns a text about a full store, with what fills its disk if that is full too."""
    if log.space.room_bytes > 0:
        return what
    try:
        return f"{what}; {disk.describe_disk(log.folder)}"
    except OSError:
        return what


def _is_full(limit: QueueConfig | ClientConfig, backlog: Backlog) -> bool:
    return (limit.max_messages is not None and backlog.messages >= limit.max_messages) or (
        limit.max_bytes is not None and backlog.bytes >= limit.max_bytes
    )


_VERDICTS = {"reject_incoming": Verdict.REFUSE, "flow_control": Verdict.WAIT}
