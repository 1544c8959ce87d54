"""The message log: messages in the order they became durable, and the cursors that keep them from being trimmed."""

import asyncio
import fcntl
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store.consumers import Consumers, Place
from gateway.store.cursor import Cursor
from gateway.store.database import Database, Housekeeping
from gateway.store.group_commit import GroupCommit
from gateway.store.tail import Tail

HOUSEKEEPING_INTERVAL_S = 1.0  # a crash repeats at most this much to a consumer; every save costs a sync
TRIM_MOST = 20_000  # messages deleted in one transaction, so that no publisher waits long behind it
UNCOMMITTED_BYTES_MAX = 16 * 1024 * 1024  # in memory, taken from publishers and not durable yet

logger = logging.getLogger(__name__)


class MessageLog:
    """The durable log of one gateway. ``open`` makes one; it belongs to the event loop that opened it."""

    def __init__(self, lock: IO[str], database: Database, commit_interval_s: float) -> None:
        self.head = database.position
        self.store_epoch = database.epoch
        self._lock = lock
        self._database = database
        self._consumers = Consumers(database.cursors)
        self._trimmed = max(0, database.oldest - 1)
        self._tail = Tail()
        self._uncommitted_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._next_housekeeping: asyncio.TimerHandle | None = None
        self._housekeeping_owed = False
        self._said = ""
        self._commits: GroupCommit[Message | Housekeeping, int] = GroupCommit(
            database.commit, self._committed, commit_interval_s
        )
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read")

    @classmethod
    async def open(cls, folder: Path, *, origin: str, commit_interval_ms: int = 0) -> "MessageLog":
        """Opens the log in a folder, which is made where there is none.

        Args:
            folder: the store's folder; this process alone may use it while the log is open.
            origin: the origin of the identities given to messages that come without one: the gateway's name.
            commit_interval_ms: shortest time between two commits, in milliseconds.

        Raises:
            StoreError: the folder cannot be used, another process uses it, or what is in it is no store.
        """
        loop = asyncio.get_running_loop()
        lock = await loop.run_in_executor(None, _take_folder, folder)
        try:
            database = await loop.run_in_executor(None, Database, folder / "messages.sqlite", origin)
        except StoreError:
            lock.close()
            raise
        return cls(lock, database, commit_interval_ms / 1000)

    def append(self, message: Message) -> asyncio.Future[int]:
        """Stores a message: the future resolves with its position once it is durable, never before.

        The future raises sqlite3.Error when the store cannot take the message; then it was not stored.
        """
        if self._housekeeping_owed:
            self._keep_house()  # a cursor that could not be saved is saved no later than the next message
        self._uncommitted_bytes += message.size
        if self._uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
            self._room.clear()
        future = self._commits.submit(message)
        future.add_done_callback(lambda _: self._free_room(message.size))
        return future

    async def wait_for_room(self) -> None:
        """Waits while so much is not durable yet that nobody should append more."""
        await self._room.wait()

    async def read(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Returns up to ``limit`` durable messages with positions behind ``after``, in order.

        Fewer may come where messages are large, but none only at the head. Raises sqlite3.Error.
        """
        found = self._tail.read(after, limit)
        if found is None:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._reader, self._database.read, after, self.head, limit)
        return found

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
            self._submit(Housekeeping([(cursor.consumer, position, count)], [], 0))
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
        if self._next_housekeeping is not None:
            self._next_housekeeping.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._reader.shutdown)
        await loop.run_in_executor(None, self._database.close)
        self._lock.close()

    def _committed(self, items: list[Message | Housekeeping], positions: list[int]) -> None:
        stored = [
            (position, item)
            for item, position in zip(items, positions, strict=True)
            if not isinstance(item, Housekeeping)
        ]
        if not stored:
            return
        for position, message in stored:
            self._tail.add(position, message)
        self.head = stored[-1][0]
        for cursor in self._consumers.cursors:
            cursor.notice(stored)
        self.changed()

    def _free_room(self, size: int) -> None:
        self._uncommitted_bytes -= size
        if self._uncommitted_bytes <= UNCOMMITTED_BYTES_MAX:
            self._room.set()

    def _keep_house(self) -> None:
        if self._next_housekeeping is not None:
            self._next_housekeeping.cancel()
            self._next_housekeeping = None
        self._housekeeping_owed = False
        # The newest message stays: the next position is counted on from it.
        trim_to = min(self._consumers.slowest(self.head), self.head - 1, self._trimmed + TRIM_MOST)
        work = Housekeeping(self._consumers.unsaved(), self._consumers.removed(), trim_to)
        if work.saved or work.removed or work.trim_to > self._trimmed:
            self._submit(work)

    def _submit(self, work: Housekeeping) -> None:
        self._commits.submit(work).add_done_callback(lambda done: self._housekeeping_done(work, done))

    def _housekeeping_done(self, work: Housekeeping, done: asyncio.Future[int]) -> None:
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


def _take_folder(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise StoreError(f"message store {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreError(f"message store {folder}: another process uses it") from error
    return lock
