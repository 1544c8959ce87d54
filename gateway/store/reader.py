"""Reads the store's file on a thread of its own, and sets damaged rows aside, so that all others are delivered."""

import asyncio
import contextlib
import logging
import sqlite3
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.counters import Counters
from gateway.errors import is_damage
from gateway.message import Message
from gateway.store.database import Database
from gateway.store.sqlite import quarantine
from gateway.store.sqlite.folder import MESSAGES
from gateway.store.sqlite.quarantine import Note
from gateway.store.sqlite.rows import first_row
from gateway.store.tables import damage, drops, log_rows, retained, schema
from gateway.store.tables.drops import DAMAGED, GATEWAY, Dropped, DroppedRow
from gateway.store.tables.log_rows import CorruptRow, Gaps, LogRow, Work
from gateway.store.tables.retained import CorruptRetained, Keep, Piece, Search, Source

READ_BYTES_MAX = 1024 * 1024  # of payload in one read, so that a backlog of large messages stays on disk
CACHE_ROWS_MAX = 1024
CACHE_MESSAGES_MAX = 20_000
CACHE_BYTES_MAX = 4 * 1024 * 1024

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


def read_rows(connection: sqlite3.Connection, after: int, up_to: int) -> list[LogRow]:
    """Returns consecutive rows with the messages behind a position, as many as fit READ_BYTES_MAX.

    Raises CorruptRow if the first of them cannot be read.
    """
    found: list[LogRow] = []
    size = 0
    with contextlib.closing(log_rows.read(connection, after, up_to)) as rows:
        try:
            for row in rows:
                found.append(row)
                size += row.size
                if size > READ_BYTES_MAX:
                    break
        except sqlite3.DatabaseError as error:
            if not found:
                found.append(_read_one(connection, after, up_to, error))
    return found


def _read_one(connection: sqlite3.Connection, after: int, up_to: int, error: sqlite3.DatabaseError) -> LogRow:
    """Reads the row behind a position alone, when a read of several has failed; a known hole has no messages.

    Python reads one row ahead of the row that it returns, so the failure may be in the next row.
    """
    if not is_damage(error):
        raise error
    if hole := damage.known_hole(connection, after + 1):
        return hole
    try:
        return log_rows.decode(first_row(connection, damage.ROW_FROM, (after + 1, up_to)))
    except sqlite3.DatabaseError as its_own:
        if not is_damage(its_own):
            raise
        raise damage.find_hole(connection, after + 1, up_to) from its_own


class Reader:
    """Reads the file.

    Args:
        folder: the store's folder, in which quarantine notes are kept.
        database: the open file.
        gaps: how many messages were taken out of the middle of the log.
        submit: writes in a transaction, and waits until it is durable.
        drop: notes that a consumer does not get a message.
        counters: where dropped messages are counted.
    """

    def __init__(
        self,
        folder: Path,
        database: Database,
        gaps: Gaps,
        submit: Callable[[Sequence[Work]], Awaitable[Any]],
        drop: Callable[[str, str, Message], None],
        counters: Counters,
    ) -> None:
        self._folder = folder
        self._connection = database.reader
        self._identity = database.origin, database.epoch
        self._gaps = gaps
        self._submit = submit
        self._drop = drop
        self._counters = counters
        self._setting_aside = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read")

    async def read(self, after: int, up_to: int) -> list[LogRow]:
        """Returns consecutive rows with the messages behind a position: at least one, as the newest message stays.

        Raises sqlite3.Error.
        """
        while True:
            with contextlib.suppress(CorruptRow):
                return await self._read(after, up_to)
            async with self._setting_aside:
                try:
                    return await self._read(after, up_to)  # another consumer may have set the same rows aside
                except CorruptRow as corrupt:
                    await self._set_aside(corrupt)

    async def _read(self, after: int, up_to: int) -> list[LogRow]:
        found = await self._on_thread(read_rows, after, up_to)
        if not found:  # an empty list would mean the end of the log, and skip messages
            raise sqlite3.OperationalError(f"no message is there from {after + 1} to {up_to}")
        return found

    async def _set_aside(self, corrupt: CorruptRow) -> None:
        logger.error("message store: %s; they are set aside, everything else goes on", corrupt)
        count = max(0, corrupt.last - corrupt.first + 1 - self._gaps.between(corrupt.first, corrupt.last))
        self._counters.messages_dropped[DAMAGED] += count
        kept = "nowhere: SQLite gets at none of it" if corrupt.is_hole else "in the table `damaged`"
        what = f"the messages at positions {corrupt.first} to {corrupt.last}"
        await self._note(Note(MESSAGES, what, "they cannot be read", kept, count))
        await self._submit([await self._on_thread(damage.set_aside, corrupt, count, *self._identity)])

    async def read_retained(
        self, topics: Sequence[str], most: int = READ_BYTES_MAX
    ) -> dict[str, tuple[int, Message] | None]:
        """Returns position and message by topic, None for a topic without a retained message.

        At least one topic is in the result, and as many as fit ``most`` bytes. Raises sqlite3.Error.
        """
        while True:
            try:
                return await self._on_thread(retained.read, topics, most)
            except CorruptRetained as corrupt:
                logger.error("message store: %s; its topic has none any more", corrupt)
                what = f"the retained message of topic {corrupt.topic!r}"
                body = msgspec.msgpack.encode(corrupt.row)
                await self._note(Note(MESSAGES, what, "it is not as it was stored", "in the note", 1, body))
                nothing = Message(corrupt.topic, b"")
                self._drop(DAMAGED, GATEWAY, nothing)
                await self._submit([Keep(nothing)])

    async def find_retained(self, searches: Sequence[Search], now_ms: int) -> list[Piece]:
        """Returns a piece of the retained messages for each of the first searches. Raises sqlite3.Error."""
        return await self._on_thread(retained.find, searches, now_ms)

    def retained_size(self, topic: str) -> int | None:
        """Returns the bytes of a topic's retained message in the file, None if it has none. Raises sqlite3.Error."""
        return retained.size_of(self._connection, topic)

    def retained_source(self, topic: str) -> Source | None:
        """Returns where a topic's retained message comes from, None if it has none. Raises sqlite3.Error."""
        return retained.source_of(self._connection, topic)

    async def read_dropped(self, consumer: str, since_ms: int, until_ms: int) -> tuple[list[DroppedRow], int]:
        """Returns ranges of drops since a time, and where the next call goes on. Raises sqlite3.Error."""
        return await self._on_thread(drops.changed_since, consumer, since_ms, until_ms)

    async def newest_dropped(self, most: int) -> list[Dropped]:
        """Returns the newest ranges of drops, as ``drops.newest`` does. Raises sqlite3.Error."""
        return await self._on_thread(drops.newest, most)

    async def count_dropped(self, consumers: Sequence[str]) -> dict[str, dict[str, int]]:
        """Returns how many messages consumers did not get, by reason. Raises sqlite3.Error."""
        return await self._on_thread(drops.counted_of, consumers)

    async def size_between(self, after: int, up_to: int) -> int:
        """Returns the bytes in the file of the messages between two positions, roughly. Raises sqlite3.Error."""
        return await self._on_thread(log_rows.size_between, after, up_to)

    async def size_of_state(self) -> int:
        """Returns the bytes of all rows but messages and retained messages. Raises sqlite3.Error."""
        return await self._on_thread(schema.size_of_state)

    async def close(self) -> None:
        """Waits until the last read has ended."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _on_thread(self, read: Callable[..., Result], *args: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, read, self._connection, *args)

    async def _note(self, note: Note) -> None:
        """Writes a quarantine note before the row is taken out of its table."""
        await asyncio.get_running_loop().run_in_executor(None, quarantine.set_aside, self._folder, [note])


class RowCache:
    """Rows of the log in memory; the least recently used ones leave first."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, LogRow] = OrderedDict()  # by their last position, latest use last
        self._lasts: list[int] = []
        self._messages = 0
        self._bytes = 0

    def add(self, row: LogRow) -> None:
        """Adds a row as it is in the file."""
        if row.last in self._rows:
            return
        self._rows[row.last] = row
        self._lasts.insert(bisect_left(self._lasts, row.last), row.last)
        self._messages += row.message_count
        self._bytes += row.size
        while self._is_full() and len(self._rows) > 1:
            last, oldest = self._rows.popitem(last=False)
            del self._lasts[bisect_left(self._lasts, last)]
            self._messages -= oldest.message_count
            self._bytes -= oldest.size

    def behind(self, position: int) -> Iterator[LogRow]:
        """Yields consecutive rows, from the one with the next message on; none if that row is not here."""
        index = bisect_left(self._lasts, position + 1)
        while index < len(self._lasts):
            row = self._rows[self._lasts[index]]
            if row.first > position + 1:
                break
            self._rows.move_to_end(row.last)
            yield row
            position = row.last
            index += 1

    def _is_full(self) -> bool:
        is_crowded = len(self._rows) > CACHE_ROWS_MAX or self._messages > CACHE_MESSAGES_MAX
        return is_crowded or self._bytes > CACHE_BYTES_MAX
