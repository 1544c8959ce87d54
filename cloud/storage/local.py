"""A folder on a local disk."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from cloud.storage.durable_file import hidden_name, naming, sync, write_durably, write_synced
from cloud.storage.storage import Entry, Rename, Written
from host.files import open_lock
from host.mounts import why_not_mounted


class LocalStorage:
    """A folder on a local disk. `lock` makes it where it does not exist."""

    def __init__(self, place: Path) -> None:
        self.place = place.absolute()
        self.uri = str(self.place)
        self.delta_options: dict[str, str] = {}
        self.filesystem = fs.LocalFileSystem()
        self._lock = -1

    def __str__(self) -> str:
        return str(self.place)

    def child(self, name: str) -> "LocalStorage":
        return LocalStorage(self.place / name)

    def path(self, name: str) -> str:
        return str(self.place / name)

    def is_there(self) -> bool:
        self._check_mounted()
        return self.place.is_dir()

    def lock(self, name: str) -> bool:
        self._check_mounted()
        self.place.mkdir(parents=True, exist_ok=True)
        self._lock = open_lock(self.place / name)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            return False
        return True

    def _check_mounted(self) -> None:
        if (why := why_not_mounted(self.place)) is not None:
            raise why

    def unlock(self) -> None:
        os.close(self._lock)

    def names(self) -> list[str]:
        with os.scandir(self.place) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]

    def walk(self) -> Iterator[Entry]:
        for path in self.place.rglob("*"):
            if path.is_file():
                found = path.stat()
                yield Entry(str(path.relative_to(self.place)), found.st_size, found.st_mtime)

    def has(self, name: str) -> bool:
        return (self.place / name).exists()

    def size(self, name: str) -> int:
        return (self.place / name).stat().st_size

    def read(self, name: str) -> bytes:
        return (self.place / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        path = self.place / name
        if path.parent != self.place:  # a folder that is gone, as that of a disk that is away, is not made anew
            path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content)

    def create(self, name: str, content: bytes) -> bool:
        path = self.place / name
        is_new = not path.parent.is_dir()
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = hidden_name(path)
        try:
            write_synced(hidden, content)
            os.link(hidden, path)
        except FileExistsError:
            return False
        finally:
            hidden.unlink(missing_ok=True)
        sync(path.parent)
        if is_new:
            sync(path.parent.parent)
            sync(path.parent.parent.parent)
        return True

    def open(self, name: str) -> "LocalOutput":
        return LocalOutput(self.place, name)

    def copy(self, name: str, to: str) -> None:
        source, target = self.place / name, self.place / to
        with suppress(FileExistsError):  # left by a process that was killed
            os.link(source, target)
        os.utime(target)  # or another program may take it for an old file that no table has
        sync(target)
        sync(target.parent)

    def may_have(self, name: str) -> bool:
        return self.has(name)

    def remove(self, name: str) -> None:
        (self.place / name).unlink(missing_ok=True)

    def clear(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.unlink(missing_ok=True)
        sync(self.place.parent)


class _HashedFile:
    """A file that computes the digest of what is written to it, before the disk has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self.digest = hashlib.sha256()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, content: bytes) -> int:
        left = memoryview(content)
        self.digest.update(left)
        with naming(self._path):
            while left:
                left = left[self._file.write(left) :]
        return len(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        self._file.close()


class LocalOutput:
    """A file of a local folder that is being written."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._path = folder / name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _HashedFile(self._path)
        self.sink = pa.PythonFile(self._file, "w")

    def close(self, rename: Rename | None = None) -> Written:
        size: int = self.sink.tell()
        self.sink.close()
        sync(self._path)
        sha256 = self._file.digest.hexdigest()
        if rename:
            self._name = rename(self._name, sha256)
            self._path = self._path.rename(self._folder / self._name)
        folder = self._path.parent
        sync(folder)
        while folder != self._folder:  # the folder may be new
            folder = folder.parent
            sync(folder)
        return Written(self._name, size, sha256)

    def discard(self) -> None:
        with suppress(OSError):  # a full disk, which is why the file is discarded
            self.sink.close()
        self._path.unlink(missing_ok=True)
