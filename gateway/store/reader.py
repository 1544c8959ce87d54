"""The store's file, read on a thread of its own: what is damaged there is set aside, and everything else comes."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from gateway.message import Message
from gateway.numbers import Counters
from gateway.store import quarantine
from gateway.store.damage import DAMAGED
from gateway.store.database import Database, Work
from gateway.store.drops import GATEWAY
from gateway.store.folder import MESSAGES
from gateway.store.gaps import Gaps
from gateway.store.groups import CorruptGroup, Group
from gateway.store.quarantine import Note
from gateway.store.retained import CorruptRetained, Keep

logger = logging.getLogger(__name__)


class Reader:
    """Reads the file.

    Args:
        folder: the store's, in which quarantine notes are kept.
        database: the open file.
        gaps: how many messages are gone from the middle of the log.
        submit: writes in a transaction, and waits until that is durable.
        drop: notes that a consumer does not get a message.
        counters: where it is counted.
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
        self._database = database
        self._gaps = gaps
        self._submit = submit
        self._drop = drop
        self._counters = counters
        self._setting_aside = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read")

    async def read(self, after: int, up_to: int) -> list[Group]:
        """Returns groups in order that hold the messages behind a position, one at least: the newest message stays.

        Raises sqlite3.Error.
        """
        while True:
            with contextlib.suppress(CorruptGroup):
                return await self._read(after, up_to)
            async with self._setting_aside:
                try:
                    return await self._read(after, up_to)  # another consumer may have met the same damage
                except CorruptGroup as damage:
                    await self._set_aside(damage)

    async def _read(self, after: int, up_to: int) -> list[Group]:
        found: list[Group] = await self._on_thread(self._database.read, after, up_to)
        if not found:  # as the end of the log it would have messages passed over
            raise sqlite3.OperationalError(f"no message is there from {after + 1} to {up_to}")
        return found

    async def _set_aside(self, damage: CorruptGroup) -> None:
        logger.error("message store: %s; they are set aside, everything else goes on", damage)
        count = max(0, damage.last - damage.first + 1 - self._gaps.between(damage.first, damage.last))
        self._counters.messages_dropped[DAMAGED] += count
        kept = "nowhere: SQLite gets at none of it" if damage.is_hole else "in the table `damaged`"
        place = f"the messages at positions {damage.first} to {damage.last}"
        await self._note(Note(MESSAGES, place, "they cannot be read", kept, count))
        await self._submit([await self._on_thread(self._database.set_aside, damage, count)])

    async def read_retained(self, topics: Sequence[str]) -> dict[str, tuple[int, Message] | None]:
        """Returns position and message by topic, None where it has no retained one.

        Of one topic at least; where messages are large the last ones are left out. Raises sqlite3.Error.
        """
        while True:
            try:
                return await self._on_thread(self._database.read_retained, topics)
            except CorruptRetained as damage:
                logger.error("message store: %s; its topic has none any more", damage)
                place = f"the retained message of topic {damage.topic!r}"
                body = msgspec.msgpack.encode(damage.row)
                await self._note(Note(MESSAGES, place, "it is not as it was stored", "in the note", 1, body))
                nothing = Message(damage.topic, b"")
                self._drop(DAMAGED, GATEWAY, nothing)
                await self._submit([Keep(nothing)])

    async def find_retained(
        self, topic_filter: str, after: str, since: int, now_ms: int
    ) -> tuple[list[tuple[str, int]], str | None]:
        """Returns a piece of the retained messages of a filter, and where it ends. Raises sqlite3.Error."""
        found: tuple[list[tuple[str, int]], str | None] = await self._on_thread(
            self._database.find_retained, topic_filter, after, since, now_ms
        )
        return found

    async def size_of_state(self) -> int:
        """Returns the bytes of what is neither a message nor a retained one. Raises sqlite3.Error."""
        return int(await self._on_thread(self._database.size_of_state))

    async def close(self) -> None:
        """Waits until nothing is read any more."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _on_thread(self, read: Callable[..., Any], *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, read, *args)

    async def _note(self, note: Note) -> None:
        """Something will be taken out of its place."""
        await asyncio.get_running_loop().run_in_executor(None, quarantine.set_aside, self._folder, [note])
