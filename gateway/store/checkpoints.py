"""SQLite's write-ahead log, which each commit is synced in, copied into the database.

That is done on a thread of its own while commits go on, so that little is left for the commit that finds the log full.
Only that one begins the log anew: while others write, what is copied is never all.
"""

import contextlib
import logging
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gateway.store import wal

FULL_PAGES = 4000  # what is rewritten or trimmed before it is copied is written once less
AHEAD_FROM_PAGES = 2000
AHEAD_STEP_PAGES = 500
LAST_FROM_PAGES = 3500  # from here on it begins anew where so little is left that commits need not wait for long:
LAST_PAGES = 100
FRAME_BYTES = wal.OURS + wal.FRAME_HEADER_SIZE  # of a page in the log
ROOM_STEP_BYTES = 1024 * 1024
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

logger = logging.getLogger(__name__)


class Checkpoints:
    """Copies the log into the database.

    Args:
        path: the database.
        writing: the connection that writes to it.
    """

    def __init__(self, path: Path, writing: sqlite3.Connection) -> None:
        self._writing = writing
        self._log = Path(f"{path}-wal")
        self._copying = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._copying.execute("PRAGMA synchronous = FULL")
        # A log that grew longer is cut to that where it begins anew: so its size says how far it has grown.
        self._full_bytes = FULL_PAGES * FRAME_BYTES
        writing.execute(f"PRAGMA journal_size_limit = {self._full_bytes}")
        self._make_room()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pages = 0  # in the log, roughly: nothing tells but a checkpoint
        self._copied = 0  # of these
        self._next_at = AHEAD_FROM_PAGES
        self._is_copying = False
        self._said = ""

    def note_written(self, pages: int) -> None:
        """A commit wrote about so many pages; called by the thread that commits."""
        self._pages += pages
        if self._size() > 2 * self._full_bytes:
            self._pages = max(self._pages, FULL_PAGES)  # it was more
        if self._is_copying or self._pages < self._next_at:
            return
        is_little_left = self._pages >= LAST_FROM_PAGES and self._pages - self._copied <= LAST_PAGES
        if self._pages < FULL_PAGES and not is_little_left:
            self._is_copying = True
            self._thread.submit(self._copy_ahead)
        else:
            self._copy(self._writing)

    def _size(self) -> int:
        """Bytes of the log's file; what is durable is not to fail because somebody has taken that away."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _make_room(self) -> None:
        """The log gets its full length before it is used: a sync that finds a file longer writes the file system's
        books too, which takes longer and wears a medium more than the message does. Where that fails, it grows."""
        with contextlib.suppress(OSError), self._log.open("r+b") as log:
            room = log.seek(0, os.SEEK_END)
            for start in range(room, self._full_bytes, ROOM_STEP_BYTES):
                log.write(bytes(min(ROOM_STEP_BYTES, self._full_bytes - start)))
            log.flush()
            os.fsync(log.fileno())

    def close(self) -> None:
        """Waits until what is being copied is."""
        self._thread.shutdown()
        self._copying.close()

    def _copy_ahead(self) -> None:
        try:
            self._copy(self._copying)
        finally:
            self._is_copying = False

    def _copy(self, connection: sqlite3.Connection) -> None:
        before = self._pages
        try:
            _, pages, copied = connection.execute(CHECKPOINT).fetchone()
        except sqlite3.Error as error:
            if str(error) != self._said:
                logger.error("message store: what was written cannot be copied into its file yet: %s", error)
            self._said = str(error)
            self._next_at = self._pages + AHEAD_STEP_PAGES
            return
        self._said = ""
        if copied == pages and connection is self._writing:  # the next commit begins the log anew
            self._pages, self._copied, self._next_at = 0, 0, AHEAD_FROM_PAGES
            return
        self._pages, self._copied = pages + self._pages - before, copied  # others have written meanwhile
        is_near_its_end = copied == pages >= LAST_FROM_PAGES
        self._next_at = max(self._pages + AHEAD_STEP_PAGES * (not is_near_its_end), AHEAD_FROM_PAGES)
