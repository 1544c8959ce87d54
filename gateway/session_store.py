"""What is kept of sessions across restarts: expiry and subscriptions by client identifier."""

import asyncio
import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from sqlitedict import SqliteDict

from gateway.errors import ADVICE, StoreError, advice_on
from gateway.store.wal import hides_transactions
from gateway.subscriptions import Subscription

Answer = TypeVar("Answer")


class SessionDescription(msgspec.Struct, frozen=True):
    """One durable session, but for its cursor, which is in the message log.

    ``disconnected_ms`` is the unix time at which its connection ended, None while there is one. ``shared`` are
    its subscriptions that share, by their whole topic filter; ``user`` is who made it.
    """

    expiry_s: int
    disconnected_ms: int | None
    subscriptions: list[Subscription]
    shared: dict[str, Subscription]
    user: str | None = None


class SessionStore:
    """A dictionary on disk; a change is durable when its call returns, or sqlite3.Error says why it is not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sessions")
        self._saved: dict[str, SessionDescription | None] = {}  # None: the file may say anything
        self._changing: Counter[str] = Counter()  # changes that are being written
        self._dict: SqliteDict

    async def open(self) -> dict[str, SessionDescription]:
        """Opens the file and returns all that is in it. Raises StoreError."""
        try:
            descriptions = await self._call(self._open)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"session store {self._path}: {error}{advice_on(error)}") from error
        self._saved = dict(descriptions)
        return descriptions

    async def save(self, client_id: str, description: SessionDescription) -> None:
        """Writes one session; nothing where the file says so already."""
        if self._saved.get(client_id) != description:
            await self._change(client_id, description)

    async def remove(self, client_id: str) -> None:
        """Removes one session, if it is there."""
        if client_id in self._saved:
            await self._change(client_id, None)

    async def close(self) -> None:
        await self._call(self._dict.close)
        self._thread.shutdown()

    def _open(self) -> dict[str, SessionDescription]:
        if hides_transactions(self._path):
            raise sqlite3.DatabaseError(f"its WAL is damaged, and sessions are behind that{ADVICE}")
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            connection.execute("PRAGMA schema_version")  # raises for what is no database; sqlitedict would stall
        # What goes wrong is raised here; sqlitedict would also log it, a dozen lines each time.
        logging.getLogger("sqlitedict").setLevel(logging.CRITICAL)
        # With autocommit each change is a transaction that reports its own errors; sqlitedict's own commit would
        # wait for ever when the disk refuses it. And it turns syncing off, which is turned on again here.
        self._dict = SqliteDict(
            str(self._path),
            tablename="session",
            autocommit=True,
            journal_mode="WAL",
            encode=msgspec.msgpack.encode,
            decode=msgspec.msgpack.Decoder(SessionDescription).decode,
            outer_stack=False,
        )
        self._dict.conn.select_one("PRAGMA synchronous = FULL")
        return dict(self._dict.items())

    async def _change(self, client_id: str, description: SessionDescription | None) -> None:
        self._saved[client_id] = None
        self._changing[client_id] += 1
        try:
            await self._call(partial(self._write, client_id, description))
        finally:
            self._changing[client_id] -= 1
            is_last = not self._changing[client_id]
            if is_last:
                del self._changing[client_id]
        if not is_last:
            return
        if description is None:
            del self._saved[client_id]
        else:
            self._saved[client_id] = description

    def _write(self, client_id: str, description: SessionDescription | None) -> None:
        if description is None:
            self._dict.pop(client_id, None)
        else:
            self._dict[client_id] = description

    async def _call(self, function: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
