"""Takes messages that no consumer needs out of the middle of the log, when one consumer is far behind the others.

The log is trimmed from its beginning, up to the first message that a consumer needs. Behind that it is compacted: rows
of which little is needed are rewritten as one row that holds only the needed messages. Positions stay as they are; a
gap stands for the messages that were taken out.

A sweep goes through everything between the slowest consumer and the newest messages, which most consumers still take.
The next sweep begins when as many bytes were stored as the last one has left. That bounds the log to about twice what
is needed, and the bytes read and written by all sweeps to about twice what is stored, as in garbage collectors that run
when the heap has doubled. In a store that is nearly full, sweeps begin sooner and look only at messages that no sweep
has looked at.
"""

import asyncio
import logging
import sqlite3
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.loop.pace import Slice, paced
from gateway.message import Message
from gateway.store.client_quotas import quota_size
from gateway.store.consumers.audience import Audience
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.registry import Consumers
from gateway.store.database import Deletion
from gateway.store.maintenance import Maintenance
from gateway.store.reader import Reader
from gateway.store.tables import log_rows
from gateway.store.tables.log_rows import Gap, Hole, LogRow, Part, Work, is_qos_0, stored_size

SWEEP_FROM_BYTES = 8 * 1024 * 1024  # stored since the last sweep; the newest quarter of it is left alone
ROW_BYTES = 64 * 1024  # of a row that a sweep writes, roughly; it is read as a whole
ROW_OVERHEAD = 40  # bytes of a row besides its parts, roughly
PIECE_ROWS = 500  # rewritten in one transaction, so that no publisher waits long behind it
REST_S, REST_TIMES = 10.0, 20  # between two whole sweeps of a full store: seconds, or times the last one's duration
READS_TOGETHER = 8  # with an interval between commits, the rows of this number of reads are rewritten together
PAUSE_S = 0.005  # between two reads of the file, for the consumers' reads

logger = logging.getLogger(__name__)

Removed = list[tuple[int, str, int, int]]
"""Messages taken out: position of the first, publisher, number of messages, bytes as ``ClientQuotas`` counts them."""


class Unswept:
    """Counts what was stored since the last sweeps, and says when the next one is due.

    Args:
        head: returns the newest position.
    """

    def __init__(self, head: Callable[[], int]) -> None:
        self._head = head
        self._stored = 0  # bytes since the last sweep from the beginning began
        self._left = 0  # bytes left by it, and by the sweeps behind it
        self._older = self._newer = head()  # behind the older position at least 2 MiB are stored
        self._older_bytes = self._newer_bytes = 0  # stored between the two positions, and behind the newer one
        self.swept = 0  # the last position that a sweep has looked at
        self.bytes = 0  # stored behind that, roughly

    def note_stored(self, size: int) -> None:
        """``size`` bytes of messages have become durable."""
        self._stored += size
        self.bytes += size
        self._newer_bytes += size
        if self._newer_bytes >= SWEEP_FROM_BYTES // 4:
            self._older, self._newer = self._newer, self._head()
            self._older_bytes, self._newer_bytes = self._newer_bytes, 0

    @property
    def is_due(self) -> bool:
        """Whether as many bytes were stored as the last sweeps have left."""
        return self._stored >= max(SWEEP_FROM_BYTES, self._left)

    @property
    def end(self) -> tuple[int, int]:
        """The position up to which the next sweep goes, and the bytes stored behind it."""
        return self._older, self._older_bytes + self._newer_bytes

    def begin_whole(self) -> None:
        """A sweep from the beginning begins."""
        self._stored = self._left = 0

    def note_left(self, size: int) -> None:
        """A sweep has left ``size`` bytes."""
        self._left += size


class Compaction:
    """Sweeps the log now and then.

    Args:
        consumers: the log's consumers.
        audience: the subscriptions of the open cursors.
        reader: reads the file.
        maintenance: saves the consumers' places, behind which no message may be missing.
        submit: writes in a transaction.
        removed: told of the first and the last position of each row that was rewritten, how many messages are missing
            there now, and which messages were taken out.
        head: returns the newest position.
        interval_s: shortest time between two commits, in seconds; if it is not 0, rows are deflated.
    """

    def __init__(
        self,
        consumers: Consumers,
        audience: Audience[Cursor],
        reader: Reader,
        maintenance: Maintenance,
        submit: Callable[[Sequence[Work]], Awaitable[list[Any]]],
        removed: Callable[[int, int, int, Removed], None],
        head: Callable[[], int],
        interval_s: float,
    ) -> None:
        self._consumers = consumers
        self._audience = audience
        self._reader = reader
        self._maintenance = maintenance
        self._submit = submit
        self._removed = removed
        self._head = head
        self._deflate = interval_s > 0
        self._reads = READS_TOGETHER if interval_s else 1
        self._unswept = Unswept(head)
        self._is_whole = False  # whether a sweep looks at all of the log
        self._rests_until_s = 0.0
        self._slice = Slice()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def note_stored(self, size: int) -> None:
        """``size`` bytes of messages have become durable."""
        self._unswept.note_stored(size)
        if self._unswept.is_due:
            self._begin(0, *self._unswept.end)

    def make_room(self) -> tuple[int, int]:
        """Begins a sweep up to the newest message if one is due, as the store is nearly full.

        The sweep looks at messages that none has looked at yet; or at the whole log if the last whole sweep was long
        ago, as consumers need less by then. Returns how many messages and bytes the sweep may take out.
        """
        if not self._maintenance.may_trim:
            return 0, 0
        if asyncio.get_running_loop().time() >= self._rests_until_s:
            self._begin(0, self._head(), 0)
        elif self._unswept.bytes >= ROW_BYTES:
            self._begin(self._unswept.swept, self._head(), 0)
        if self._is_whole:
            return sys.maxsize, sys.maxsize
        unswept = self._unswept
        return (self._head() - unswept.swept, unswept.bytes) if unswept.bytes >= ROW_BYTES else (0, 0)

    def _begin(self, after: int, end: int, behind_bytes: int) -> None:
        """Begins to sweep between two positions; ``behind_bytes`` are stored behind them."""
        if not self._closing and (self._task is None or self._task.done()):
            self._is_whole = after == 0
            self._task = asyncio.get_running_loop().create_task(self._run(after, end, behind_bytes))
            self._task.add_done_callback(lambda _: self.note_stored(0))  # the next one may be due by now

    async def close(self) -> None:
        """Ends a sweep behind its current piece."""
        self._closing = True
        if self._task is not None:
            await self._task

    async def _run(self, after: int, end: int, behind_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        looked_at_bytes = self._unswept.bytes - behind_bytes
        if self._is_whole:
            self._unswept.begin_whole()
        try:
            self._unswept.note_left(await self._sweep(after, min(end, self._head() - 1)))
        except sqlite3.Error as error:
            logger.warning("message store: a sweep through the log ended early: %s", error)
        except Exception:
            logger.exception("message store: a sweep through the log ended early")
        self._unswept.bytes -= looked_at_bytes
        if self._is_whole:
            self._is_whole = False
            self._rests_until_s = loop.time() + max(REST_S, REST_TIMES * (loop.time() - begun_s))

    async def _sweep(self, after: int, end: int) -> int:
        """Returns how many bytes are left of the messages between two positions."""
        after = max(after, self._consumers.needed_from(self._head()), self._maintenance.trimmed)
        end = min(end, self._consumers.keepers.kept_softly_from(self._head()))
        needs = _Needs(self._consumers, self._audience, end)
        left = 0
        carried: LogRow | None = None
        while after < end and self._maintenance.may_trim and not self._closing:
            found = await self._read(after, end)
            if not found:
                break
            if any(isinstance(row, Hole) for row in found):
                self._maintenance.stop_deleting()
                break
            for begin in range(0, len(found), PIECE_ROWS):
                piece = found[begin : begin + PIECE_ROWS]
                needs.pin(piece[0].first, piece[-1].last)
                segments = await self._segments(piece, needs, carried)
                is_over = self._closing or not self._maintenance.may_trim
                if is_over or not needs.are_known(piece[0].first, piece[-1].last):
                    return left
                carried = await self._rewrite(segments)
                left += sum(segment.size_after for segment in segments)
            after = found[-1].last
            self._unswept.swept = max(self._unswept.swept, after)
            await asyncio.sleep(PAUSE_S)
        return left

    async def _read(self, after: int, end: int) -> list[LogRow]:
        """Returns rows behind a position up to another one, as many as are rewritten together."""
        found: list[LogRow] = []
        for _ in range(self._reads):
            read = await self._reader.read(found[-1].last if found else after, self._head())
            found += [row for row in read if row.last <= end]
            if read[-1].last >= end:
                break
        return found

    async def _segments(self, piece: list[LogRow], needs: "_Needs", carried: LogRow | None) -> "list[_Segment]":
        """Divides rows into segments that may each become one row; the first continues the row written last."""
        segments = [_Segment(carried or LogRow(piece[0].first, [], piece[0].first - 1))]
        for row in piece:
            if segments[-1].needed_bytes >= ROW_BYTES:
                segments.append(_Segment(LogRow(row.first, [], row.first - 1)))
            position = row.first
            for part in row.parts:
                segments[-1].add(position, part, await needs.of(position, part, self._slice))
                position += part.count
            segments[-1].end_row(row.last)
        return segments

    async def _rewrite(self, segments: "list[_Segment]") -> LogRow | None:
        """Writes the segments that are worth it; returns the last row if more messages may be joined to it."""
        worth = [segment for segment in segments if segment.is_worth_it]
        if not worth:
            return None
        # In one transaction with the places: every message that a consumer needs behind its saved place is in the file.
        self._maintenance.run()
        works = [
            _Rewriting(segment.first, segment.last, segment.parts, segment.gone, self._deflate) for segment in worth
        ]
        done = await self._submit(works)
        if any(work.is_given_up for work in works):
            self._maintenance.stop_deleting()
        for segment, is_written in zip(worth, done, strict=True):
            segment.is_written = is_written
            if is_written:
                self._removed(segment.first, segment.last, segment.gone, segment.removed)
        last = segments[-1]
        is_small = last.is_written and last.needed_bytes < ROW_BYTES
        return LogRow(last.first, last.parts, last.last) if is_small else None


class _Segment:
    """Rows that may become one row; ``parts`` are what is needed of them.

    ``removed`` lists the messages that are not needed, ``gone`` is how many messages are then missing at its positions.
    """

    def __init__(self, before: LogRow) -> None:
        self.first = before.first
        self.last = before.last
        self.parts: list[Part | Gap] = list(before.parts)
        self.needed_bytes = sum(map(stored_size, before.parts))
        self.removed: Removed = []
        self.is_written = False
        self._size = self.needed_bytes
        self._rows = 1 if before.last >= before.first else 0

    def add(self, position: int, part: Part | Gap, needed: "list[tuple[int, Message]] | None") -> None:
        """Adds a part at a position with the messages that are needed of it; None: all of them."""
        self._size += stored_size(part)
        if needed is None:
            self.needed_bytes += stored_size(part)
            self.parts.append(part)
            return
        end = position + part.count
        if len(needed) < part.count and not isinstance(part, Gap):
            size = quota_size(part) * (part.count - len(needed)) // part.count
            self.removed.append((position, part.publisher, part.count - len(needed), size))
        for at, message in needed:
            self._skip(at - position)
            self.parts.append(message)
            self.needed_bytes += stored_size(message)
            position = at + 1
        self._skip(end - position)

    def end_row(self, last: int) -> None:
        """Ends a row; positions behind its parts belong to damaged messages."""
        self._rows += 1
        self._skip(last - self.first + 1 - sum(part.count for part in self.parts))
        self.last = last

    def _skip(self, count: int) -> None:
        if not count:
            return
        if self.parts and isinstance(self.parts[-1], Gap):
            count += self.parts.pop().count
        self.parts.append(Gap(count))

    @property
    def gone(self) -> int:
        return sum(part.count for part in self.parts if isinstance(part, Gap))

    @property
    def is_worth_it(self) -> bool:
        """Whether at least half of the bytes become free; rows that shrink less would be rewritten too often."""
        return 2 * (self.needed_bytes + ROW_OVERHEAD) <= self._size + self._rows * ROW_OVERHEAD

    @property
    def size_after(self) -> int:
        return self.needed_bytes if self.is_written else self._size


@dataclass
class _Rewriting(Deletion):
    """Replaces a segment's rows by one row; returns whether these rows were still there."""

    first: int
    last: int
    parts: Sequence[Part | Gap]
    gone: int
    deflate: bool

    def __call__(self, connection: sqlite3.Connection) -> bool:
        if self.is_given_up or not log_rows.replace(
            connection, self.first, self.last, self.parts, deflate=self.deflate
        ):
            return False
        log_rows.note_gap(connection, self.first, self.last, self.gone)
        return True


class _Needs:
    """Says which messages up to a position some consumer needs now; later the consumers need less."""

    def __init__(self, consumers: Consumers, audience: Audience[Cursor], end: int) -> None:
        positions = ((cursor, cursor.position) for cursor in consumers.cursors)
        self._behind = {cursor: position for cursor, position in positions if position < end}
        self._consumers = consumers
        self._audience = audience
        self._returned = consumers.returned
        self._pinned: list[int] = []

    def are_known(self, first: int, last: int) -> bool:
        """Whether the answers for the messages between two positions still hold.

        A consumer that went away, or came back, was not asked.
        """
        is_away = self._consumers.kept_from(last) < last
        return not is_away and self._consumers.returned == self._returned and not self.pin(first, last)

    def pin(self, first: int, last: int) -> bool:
        """Finds the positions that are needed whatever is subscribed to; returns whether they have changed.

        These are QoS 2 messages on their way, and deliveries of an ended subscription that wait for their PUBACK.
        """
        pinned = self._consumers.keepers.pinned_between(first, last)
        for cursor in self._behind:
            if cursor.unsubscribed_up_to > cursor.position:  # [MQTT-3.10.4-3]
                pinned.update(position for position in cursor.flight.positions() if first <= position <= last)
        before, self._pinned = self._pinned, sorted(pinned)
        return self._pinned != before

    async def of(self, first: int, part: Part | Gap, slice_: Slice) -> list[tuple[int, Message]] | None:
        """Returns the needed messages of a part at a position, with their positions; None if all are needed.

        Each message may ask all consumers, so other tasks run between two messages when the slice is over.
        """
        if isinstance(part, Gap):
            return []
        last = first + part.count - 1
        pinned = self._pinned[bisect_left(self._pinned, first) : bisect_right(self._pinned, last)]
        qos = 0 if is_qos_0(part) else 1
        alike = [Message(topic, b"", qos, publisher=part.publisher) for topic in part.topics]
        wanted = [self._wants(message, first, last) async for message in paced(alike, slice_)]
        if all(wanted):
            return None
        if not pinned and not any(one is None for one in wanted) and not any(wanted):
            return []
        return [
            (position, message)
            async for position, message in paced(enumerate(part.messages(), first), slice_)
            if self._is_needed(position, message) or position in pinned
        ]

    def _wants(self, message: Message, first: int, last: int) -> bool | None:
        """Whether a consumer needs all messages like this one between two positions; None if it may need some."""
        found: bool | None = False
        for cursor, position in self._takers(message.topic):
            if position < last and cursor.end_of_stretch(first) < last:
                found = None
            elif position < last and cursor.takes(last, message):
                if position < first and cursor.takes(first, message):
                    return True
                found = None
        return found

    def _is_needed(self, position: int, message: Message) -> bool:
        return any(
            behind < position and cursor.takes(position, message) for cursor, behind in self._takers(message.topic)
        )

    def _takers(self, topic: str) -> list[tuple[Cursor, int]]:
        takers = self._audience.takers(topic)
        if len(takers) < len(self._behind):
            return [(cursor, self._behind[cursor]) for cursor in takers if cursor in self._behind]
        return [(cursor, position) for cursor, position in self._behind.items() if cursor in takers]
