"""The store's folder, which only one process uses at a time."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.errors import StoreError
from gateway.store.sqlite import marks, swap_files
from gateway.store.sqlite.disk import words_of
from gateway.store.sqlite.marks import LockNote
from host.mounts import why_not_mounted

MESSAGES = "messages.sqlite"
"""The name of the log's file."""

MOVED, COMING = "moved", "coming"
"""The names of files in a store's folder: the store has been moved, or it is not here as a whole yet. Each has the name
of the other folder."""

LOCK = "lock"
RESERVED_BYTES = 64 * 1024 * 1024  # of the disk: with none left, not even a deletion could be written
NOTE_EVERY = 16  # messages: each note makes a page of the kernel dirty
NOTE_PAUSE_S = 0.05  # between two notes, as one may wait until the disk has the page; a copy is older than that
NOTE_BYTES = 256  # so that a note replaces the one before as a whole, in one sector
FOLDER_MODE, FILE_MODE = 0o700, 0o600  # a user that can open a file of SQLite can also lock it


def why_unusable(folder: Path) -> OSError | None:
    """Returns why a store's folder cannot be used or made, with the path at fault; None if it can be used."""
    if (why := why_not_mounted(folder)) is not None:
        return why
    nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not nearest.is_dir():
        return _error_of(errno.ENOTDIR, nearest)
    for path in (nearest, *_own_files(folder)):
        if not os.access(path, os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)):
            return _error_of(errno.EROFS if _is_read_only(path) else errno.EACCES, path)
    return None


def is_taken(folder: Path) -> bool:
    """Whether a process uses a store; the process does not notice.

    https://www.man7.org/linux/man-pages/man5/proc_locks.5.html
    """
    try:
        status = os.stat(folder / LOCK)
    except OSError:
        return False
    device = status.st_dev
    file = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("FLOCK" in lock and file in lock for lock in locks)


def note_of(folder: Path) -> LockNote | None:
    """Returns the note in the lock file of a store that no process uses, None without one."""
    try:
        return _decode((folder / LOCK).read_bytes())
    except OSError:
        return None


def room_bytes(folder: Path) -> int:
    """Returns how many bytes the disk has left, without a reserve. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize - min(RESERVED_BYTES, disk.f_blocks * disk.f_frsize // 10)


class TakenFolder:
    """A store's folder that only this process uses, until ``close``.

    Two locks keep other processes out: one on a file of its own, and one on the messages, which counts even if the
    first file was deleted. The first file holds a note about the store.

    Raises:
        OSError: the folder cannot be used; BlockingIOError if another process uses it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._locks: list[int] = []
        self._files: dict[str, tuple[int, int]] = {}  # their paths as text: each commit looks at them
        self._noted = 0  # the position in the note
        self._notes_from_s = 0.0  # the moment from which the next position may be noted
        self._lock(LOCK, os.O_RDWR | os.O_CREAT)

    def lock_messages(self) -> None:
        """Takes the second lock, once the file exists. Raises OSError; then the folder is free again."""
        if len(self._locks) == 1:
            self._lock(MESSAGES, os.O_RDONLY)

    def file_id(self) -> int:
        """Returns which file has the messages, as ``marks.file_id_of`` does. Raises OSError.

        It asks by the descriptor that holds the second lock: closing another descriptor would end SQLite's locks.
        """
        return marks.file_id_of(self._locks[1])

    def watch(self, *names: str) -> None:
        """From now on ``check`` tests whether these files are still the store's. Raises OSError."""
        self._files |= {path: _inode_of(path) for path in (str(self.path / name) for name in names)}

    def check(self) -> None:
        """Raises sqlite3.OperationalError if the folder or one of its files was moved, replaced or deleted.

        SQLite would go on with a file that has lost its name, and no start finds what it writes there.
        """
        for path, (device, inode) in self._files.items():
            try:
                status = os.stat(path)
                is_there = status.st_ino == inode and status.st_dev == device
            except OSError:
                is_there = False
            if not is_there:
                raise sqlite3.OperationalError(f"{path} was moved or deleted under the running gateway")

    def close(self) -> None:
        """Frees the folder. A database in it must be closed before, as its locks end with these."""
        while self._locks:
            os.close(self._locks.pop())

    def note(self) -> LockNote | None:
        """Returns the note in the first file, None without one. Raises OSError."""
        return _decode(os.pread(self._locks[0], NOTE_BYTES, 0))

    def write_note(self, note: LockNote, *, is_synced: bool) -> None:
        """Writes the note. Raises OSError."""
        os.pwrite(self._locks[0], msgspec.json.encode(note).ljust(NOTE_BYTES), 0)
        if is_synced:
            os.fsync(self._locks[0])

    def note_position(self, epoch: int, run: int, position: int) -> None:
        """Writes a note with the store's newest position, from time to time. Raises OSError."""
        if position - self._noted >= NOTE_EVERY and (now_s := time.monotonic()) >= self._notes_from_s:
            self.write_note(LockNote(epoch, [run], position), is_synced=False)
            self._noted, self._notes_from_s = position, now_s + NOTE_PAUSE_S

    def _lock(self, name: str, flags: int) -> None:
        try:
            self._locks.append(os.open(self.path / name, os.O_CLOEXEC | flags, FILE_MODE))
            fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise


def moved_to(folder: Path) -> Path | None:
    """Returns the folder to which a store has been moved, None if it is still here. Raises OSError."""
    return _named_in(folder / MOVED)


def _named_in(path: Path) -> Path | None:
    try:
        return Path(path.read_text())
    except FileNotFoundError:
        return None


def check_moved(folder: Path) -> None:
    """Raises StoreError if a store was moved, or is not here as a whole yet."""
    if (new := moved_to(folder)) is not None:
        raise StoreError(f"message store {folder}: it was moved to {new}, and goes on there")
    if (old := _named_in(folder / COMING)) is not None:
        text = f"its migration from {old} has not ended: call `holdfast gateway migrate` again"
        raise StoreError(f"message store {folder}: {text}")


def take_folder(folder: Path, *, may_be_moved: bool = False) -> TakenFolder:
    """Makes the folder if it does not exist, and takes it until the result is closed.

    If a repair was killed while it swapped files, the swap is finished first. The store's files become private to their
    owner; the folder itself may hold files of others.

    ``may_be_moved``: a store that was moved, or is not here as a whole yet, is taken too.

    Raises:
        StoreError: it cannot be used, or another process has it.
    """
    try:
        if (why := why_unusable(folder)) is not None:
            raise why
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        if not may_be_moved:
            check_moved(folder)
        _close_to_others(folder)
        taken = TakenFolder(folder)
        _finish_exchange(folder, taken)
        if (folder / MESSAGES).exists():
            taken.lock_messages()
    except BlockingIOError as error:
        raise StoreError(f"message store {folder}: another process uses it") from error
    except OSError as error:
        raise StoreError(f"message store {folder}: {words_of(error, folder)}") from error
    return taken


def _finish_exchange(folder: Path, taken: TakenFolder) -> None:
    try:
        swap_files.finish(folder)
    except StoreError:
        taken.close()
        raise


def _decode(note: bytes) -> LockNote | None:
    try:
        return msgspec.json.decode(note, type=LockNote)
    except msgspec.MsgspecError:
        return None


def _error_of(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _inode_of(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _close_to_others(folder: Path) -> None:
    """Makes the files private to their owner. Raises OSError."""
    for path in _own_files(folder):
        mode = path.stat().st_mode
        if mode & 0o077:
            with contextlib.suppress(PermissionError):  # it is another user's file, and may be usable nevertheless
                path.chmod(FOLDER_MODE if stat.S_ISDIR(mode) else FILE_MODE)


def _own_files(folder: Path) -> Iterator[Path]:
    """The store's files, and the folders in which a repair has left former files."""
    for pattern in (LOCK, "*.sqlite", "*.sqlite-*", f"{swap_files.OLD}-*"):
        yield from folder.glob(pattern)
