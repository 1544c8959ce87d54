"""SQLite's write-ahead log, which each commit is synced in, copied into the database.

That is done on a thread of its own while commits go on, so that little is left for the commit that finds the log full.
Where all of it is copied the next commit begins the log anew, which while others write is behind that one.
"""

import contextlib
import logging
import mmap
import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gateway.store import wal
from gateway.store.folder import room_bytes

ROOM_PAGES = 5000  # more come while it is copied, and how many there are is known roughly
FULL_PAGES = 4000  # what is rewritten or trimmed before it is copied is written once less
AHEAD_FROM_PAGES = 2000
AHEAD_STEP_PAGES = 500
LAST_FROM_PAGES = 3500  # from here on it begins anew where so little is left that commits need not wait for long:
LAST_PAGES = 100
COMMITS_PER_LOOK = 16  # at the log's length: each is a call of the system, during which the event loop takes its turn
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

logger = logging.getLogger(__name__)


class Checkpoints:
    """Copies the log into the database.

    Args:
        path: the database.
        writing: the connection that writes to it.
        page_size: the database's, in bytes.

    ``all_copied`` says that all that was in it is copied, so that the next commit begins it anew, unless more has come
    meanwhile; the database's rounds [gateway.store.identity] begin with that.

    The log has its full length before it is used, and keeps it: a sync that finds a file longer, or shorter, writes the
    file system's books too, which takes longer and wears a medium more than the message does.
    """

    def __init__(self, path: Path, writing: sqlite3.Connection, page_size: int) -> None:
        self._writing = writing
        self._log = Path(f"{path}-wal")
        self._copying = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._copying.execute("PRAGMA synchronous = FULL")
        # A log that grew longer is cut to that where it begins anew: so its size says how far it has grown.
        self._room_bytes = wal.HEADER_SIZE + ROOM_PAGES * (wal.FRAME_HEADER_SIZE + page_size)
        writing.execute(f"PRAGMA journal_size_limit = {self._room_bytes}")
        self.make_room()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pages = 0  # in the log, roughly: nothing tells but a checkpoint
        self._copied = 0  # of these
        self._commits = 0
        self._next_at = AHEAD_FROM_PAGES
        self._ahead: Future[None] | None = None
        self._said = ""
        self.all_copied = False

    @property
    def log_bytes(self) -> int:
        """Bytes of the log's file."""
        return self._size()

    def copy_all(self) -> None:
        """Copies what is in the log, once what is being copied is; ``all_copied`` says whether that was all."""
        if self._ahead is not None:
            self._ahead.result()
        self.all_copied = False
        self._copy(self._writing)

    def note_written(self, pages: int) -> None:
        """A commit wrote about so many pages; called by the thread that commits."""
        self._pages += pages
        self._commits += 1
        if self._commits % COMMITS_PER_LOOK == 0 and self._size() > self._room_bytes:
            self._pages = max(self._pages, FULL_PAGES)  # it was more
        if self._pages >= FULL_PAGES and self._ahead is not None:
            self._ahead.result()  # else nothing would bound the log
        if self._pages < self._next_at or (self._ahead is not None and not self._ahead.done()):
            return
        is_little_left = self._pages >= LAST_FROM_PAGES and self._pages - self._copied <= LAST_PAGES
        if self._pages < FULL_PAGES and not is_little_left:
            with contextlib.suppress(RuntimeError):  # no thread can be started: who finds the log full copies it
                self._ahead = self._thread.submit(self._copy, self._copying)
        else:
            self._copy(self._writing)

    def _size(self) -> int:
        """Bytes of the log's file; what is durable is not to fail because somebody has taken that away."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def make_room(self) -> None:
        """Gives the log its full length; where the disk has little left, it grows as it is used.

        It is written page by page: what comes as one piece Linux may keep as one, and a write of some bytes then makes
        all of that dirty.
        """
        size = self._size()
        with contextlib.suppress(OSError):
            if size < self._room_bytes and room_bytes(self._log.parent) >= self._room_bytes - size:
                with self._log.open("ab", buffering=0) as log:
                    os.fsync(log.fileno())  # what it was cut from is gone before anything is in its place
                    for start in range(size, self._room_bytes, mmap.PAGESIZE):
                        os.pwrite(log.fileno(), bytes(min(mmap.PAGESIZE, self._room_bytes - start)), start)
                    os.fsync(log.fileno())

    def close(self) -> None:
        """Waits until what is being copied is."""
        self._thread.shutdown()
        self._copying.close()

    def _copy(self, connection: sqlite3.Connection) -> None:
        before = self._pages
        try:
            is_busy, pages, copied = connection.execute(CHECKPOINT).fetchone()
        except sqlite3.Error as error:
            if str(error) != self._said:
                logger.error("message store: what was written cannot be copied into its file yet: %s", error)
            self._said = str(error)
            self._next_at = self._pages + AHEAD_STEP_PAGES
            return
        self._said = ""
        self.all_copied = copied == pages
        if is_busy:  # somebody else copies it
            self._next_at = self._pages + AHEAD_STEP_PAGES
            return
        if copied == pages and connection is self._writing:  # the next commit begins the log anew
            self._pages, self._copied, self._next_at = 0, 0, AHEAD_FROM_PAGES
            return
        self._pages, self._copied = pages + self._pages - before, copied  # others have written meanwhile
        is_near_its_end = copied == pages >= LAST_FROM_PAGES
        self._next_at = max(self._pages + AHEAD_STEP_PAGES * (not is_near_its_end), AHEAD_FROM_PAGES)
