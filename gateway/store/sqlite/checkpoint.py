"""Copies SQLite's write-ahead log (WAL), which each commit syncs, into the database.

A thread of its own copies while commits go on, so that little is left for the commit that finds the WAL full. When all
of it is copied, the next commit restarts the WAL; while other commits write, only the committing thread can achieve
that.
"""

import contextlib
import logging
import mmap
import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gateway.store.sqlite import wal
from gateway.store.sqlite.folder import room_bytes

ROOM_PAGES = 5000  # more pages come while the WAL is copied, and their number is known roughly
FULL_PAGES = 4000  # a page that is rewritten or trimmed before it is copied is written once less
AHEAD_FROM_PAGES = 2000
AHEAD_STEP_PAGES = 500
LAST_FROM_PAGES = 3500  # from here on a commit copies the rest, if that is LAST_PAGES at most: it waits only shortly
LAST_PAGES = 100
COMMITS_PER_LOOK = 16  # at the WAL's length: each look is a system call, during which the event loop takes over
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

logger = logging.getLogger(__name__)


class Checkpoints:
    """Copies the WAL into the database.

    Args:
        path: the database.
        writer: the connection that writes to it.
        page_size: the database's, in bytes.

    ``all_copied`` says that everything in the WAL was copied, so that the next commit restarts it, unless more pages
    came meanwhile. The database's rounds [gateway.store.sqlite.marks] begin with that.

    The WAL gets its full length before it is used, and keeps it. A sync that finds a file longer or shorter writes the
    file system's metadata too, which takes longer than the message and wears the medium more.
    """

    def __init__(self, path: Path, writer: sqlite3.Connection, page_size: int) -> None:
        self._writer = writer
        self._wal = Path(f"{path}-wal")
        self._copier = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._copier.execute("PRAGMA synchronous = FULL")
        # A longer WAL is cut to this size when it is restarted: so its size says how far it has grown.
        self._room_bytes = wal.HEADER_SIZE + ROOM_PAGES * (wal.FRAME_HEADER_SIZE + page_size)
        writer.execute(f"PRAGMA journal_size_limit = {self._room_bytes}")
        self.make_room()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pages = 0  # in the WAL, roughly: only a checkpoint tells
        self._copied = 0  # how many of them
        self._commits = 0
        self._next_at = AHEAD_FROM_PAGES
        self._ahead: Future[None] | None = None
        self._said = ""
        self.all_copied = False

    @property
    def wal_bytes(self) -> int:
        """Bytes of the WAL's file."""
        return self._size()

    def copy_all(self) -> None:
        """Copies the rest of the WAL once the copy that runs has ended; ``all_copied`` says whether that was
        everything.
        """
        if self._ahead is not None:
            self._ahead.result()
        self.all_copied = False
        self._copy(self._writer)

    def note_written(self, pages: int) -> None:
        """A commit wrote about this number of pages; called by the thread that commits."""
        self._pages += pages
        self._commits += 1
        if self._commits % COMMITS_PER_LOOK == 0 and self._size() > self._room_bytes:
            self._pages = max(self._pages, FULL_PAGES)  # it was more
        if self._pages >= FULL_PAGES and self._ahead is not None:
            self._ahead.result()  # otherwise nothing would bound the WAL
        if self._pages < self._next_at or (self._ahead is not None and not self._ahead.done()):
            return
        is_little_left = self._pages >= LAST_FROM_PAGES and self._pages - self._copied <= LAST_PAGES
        if self._pages < FULL_PAGES and not is_little_left:
            with contextlib.suppress(RuntimeError):  # no thread: the commit that finds the WAL full copies it
                self._ahead = self._thread.submit(self._copy, self._copier)
        else:
            self._copy(self._writer)

    def _size(self) -> int:
        """Bytes of the WAL's file, 0 if it is gone: a durable commit must not fail because another program
        removed it.
        """
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0

    def make_room(self) -> None:
        """Gives the WAL its full length; if the disk has little room left, it grows as it is used.

        It is written page by page: Linux may keep one large write as one piece in its cache, and a write of some bytes
        would then make all of that dirty.
        """
        size = self._size()
        with contextlib.suppress(OSError):
            if size < self._room_bytes and room_bytes(self._wal.parent) >= self._room_bytes - size:
                with self._wal.open("ab", buffering=0) as log:
                    os.fsync(log.fileno())  # the cut is durable before anything is written in its place
                    for start in range(size, self._room_bytes, mmap.PAGESIZE):
                        os.pwrite(log.fileno(), bytes(min(mmap.PAGESIZE, self._room_bytes - start)), start)
                    os.fsync(log.fileno())

    def close(self) -> None:
        """Waits until the copy that runs has ended."""
        self._thread.shutdown()
        self._copier.close()

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
        if is_busy:  # another process copies it
            self._next_at = self._pages + AHEAD_STEP_PAGES
            return
        if copied == pages and connection is self._writer:  # the next commit restarts the WAL
            self._pages, self._copied, self._next_at = 0, 0, AHEAD_FROM_PAGES
            return
        self._pages, self._copied = pages + self._pages - before, copied  # commits have written meanwhile
        is_near_its_end = copied == pages >= LAST_FROM_PAGES
        self._next_at = max(self._pages + AHEAD_STEP_PAGES * (not is_near_its_end), AHEAD_FROM_PAGES)
