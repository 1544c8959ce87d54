"""The store's folder, which one process has at a time."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.errors import StoreError
from gateway.store import exchange, identity
from gateway.store.identity import Note

MESSAGES = "messages.sqlite"
"""The name of the log's file."""

LOCK = "lock"
RESERVED_BYTES = 64 * 1024 * 1024  # of the disk: what is full to the brim cannot even note what may be deleted
NOTE_BYTES = 256  # so that a note takes the place of any other, in one sector
FOLDER_MODE, FILE_MODE = 0o700, 0o600  # who can open a file of SQLite can lock it, too


def why_unusable(folder: Path) -> str:
    """Says why a store's folder cannot be used or made, with the path that is at fault; "" where it can be."""
    nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not nearest.is_dir():
        return f"{nearest}: {os.strerror(errno.ENOTDIR)}"
    for path in (nearest, *_own_files(folder)):
        if not os.access(path, os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)):
            return f"{path}: {os.strerror(errno.EROFS if _is_read_only(path) else errno.EACCES)}"
    return ""


def is_in_memory(folder: Path) -> bool:
    """Whether a folder, or the one that it would be made in, is of a file system that a restart of the machine empties.

    https://www.kernel.org/doc/html/latest/filesystems/proc.html, mountinfo
    """
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    device = os.stat(nearest).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return any(mount[2] == number and mount[mount.index("-") + 1] in ("tmpfs", "ramfs") for mount in mounts)


def is_taken(folder: Path) -> bool:
    """Whether a process uses a store; it is not disturbed.

    https://www.man7.org/linux/man-pages/man5/proc_locks.5.html
    """
    try:
        status = os.stat(folder / LOCK)
    except OSError:
        return False
    device = status.st_dev
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("FLOCK" in lock and place in lock for lock in locks)


def note_of(folder: Path) -> Note | None:
    """Returns what the lock file of a store says that no process uses, None where it says nothing."""
    try:
        return _decode((folder / LOCK).read_bytes())
    except OSError:
        return None


def room_bytes(folder: Path) -> int:
    """Returns how many bytes its disk has left, but for a reserve. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize - min(RESERVED_BYTES, disk.f_blocks * disk.f_frsize // 10)


class TakenFolder:
    """A store's folder that this process alone uses, until ``close``.

    Two locks keep other processes out: that of a file of its own, and that of the messages, which counts also where
    the first file was deleted. The first one holds a note of what the store is.

    Raises:
        OSError: the folder cannot be used; BlockingIOError where another process uses it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: list[int] = []
        self._files: dict[Path, tuple[int, int]] = {}
        self._lock(LOCK, os.O_RDWR | os.O_CREAT)

    def lock_messages(self) -> None:
        """Takes the second lock, once the file is there. Raises OSError, after which the folder is free again."""
        if len(self._locks) == 1:
            self._lock(MESSAGES, os.O_RDONLY)

    def places(self) -> tuple[int, int]:
        """Returns which file has the messages, as ``identity.places_of`` does. Raises OSError.

        It asks by the file that has the second lock: to close another one would end the locks of SQLite.
        """
        return identity.places_of(self._locks[1])

    def watch(self, *names: str) -> None:
        """From now on ``check`` looks whether these files are still the store's. Raises OSError."""
        self._files |= {path: _inode_of(path) for path in (self._folder / name for name in names)}

    def check(self) -> None:
        """Raises sqlite3.OperationalError where the folder or a file of it was moved, replaced or deleted.

        SQLite goes on with a file that has lost its name, and what it writes there no start finds.
        """
        for path, inode in self._files.items():
            try:
                is_there = _inode_of(path) == inode
            except OSError:
                is_there = False
            if not is_there:
                raise sqlite3.OperationalError(f"{path} was moved or deleted under the running gateway")

    def close(self) -> None:
        """Other processes may use it. A database in it has to be closed before: its own locks end with these."""
        while self._locks:
            os.close(self._locks.pop())

    def note(self) -> Note | None:
        """Returns what the first file says, None where it says nothing. Raises OSError."""
        return _decode(os.pread(self._locks[0], NOTE_BYTES, 0))

    def write_note(self, note: Note, *, is_synced: bool) -> None:
        """Raises OSError."""
        os.pwrite(self._locks[0], msgspec.json.encode(note).ljust(NOTE_BYTES), 0)
        if is_synced:
            os.fsync(self._locks[0])

    def _lock(self, name: str, flags: int) -> None:
        try:
            self._locks.append(os.open(self._folder / name, os.O_CLOEXEC | flags, FILE_MODE))
            fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise


def take_folder(folder: Path) -> TakenFolder:
    """Makes the folder where there is none and takes it; it is free again when what is returned is closed.

    A repair that was killed while it put new files in place is ended first. The files of an earlier version, which
    other users could read and lock, become the owner's alone; the folder itself may hold what is not the store's.

    Raises:
        StoreError: it cannot be used, or another process has it.
    """
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _close_to_others(folder)
        taken = TakenFolder(folder)
        _finish_exchange(folder, taken)
        if (folder / MESSAGES).exists():
            taken.lock_messages()
    except BlockingIOError as error:
        raise StoreError(f"message store {folder}: another process uses it") from error
    except OSError as error:
        raise StoreError(f"message store {folder}: {error.strerror}") from error
    return taken


def _finish_exchange(folder: Path, taken: TakenFolder) -> None:
    try:
        exchange.finish(folder)
    except StoreError:
        taken.close()
        raise


def _decode(note: bytes) -> Note | None:
    try:
        return msgspec.json.decode(note, type=Note)
    except msgspec.MsgspecError:
        return None


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _inode_of(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _close_to_others(folder: Path) -> None:
    """Raises OSError."""
    for path in _own_files(folder):
        mode = path.stat().st_mode
        if mode & 0o077:
            with contextlib.suppress(PermissionError):  # it is another user's, and may be usable all the same
                path.chmod(FOLDER_MODE if stat.S_ISDIR(mode) else FILE_MODE)


def _own_files(folder: Path) -> Iterator[Path]:
    """The store's files, and the folders in which a repair has left others."""
    for pattern in (LOCK, "*.sqlite", "*.sqlite-*", f"{exchange.OLD}-*"):
        yield from folder.glob(pattern)
