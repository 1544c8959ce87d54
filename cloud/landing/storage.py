"""Where landing files lie: a local folder, or a part of an object store. All names are without folders."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pyarrow import fs

from cloud.landing.durable_file import write_durably

OBJECT_STORES = ("s3", "gs", "abfs", "abfss")
"""The schemes of URLs that pyarrow has file systems for."""


class LanderRunning(Exception):
    """Another process lands under this name in this folder."""


class Storage(Protocol):
    """Files that are complete under their name, or are not there; as text it is what people may see."""

    def lock(self, lander: str) -> None:
        """Takes a lander's name for this process, as far as that is possible. Raises LanderRunning, OSError."""

    def unlock(self) -> None:
        """Lets another process use the name."""

    def names(self) -> Iterator[str]:
        """Yields the names of all files. Raises OSError."""

    def read(self, name: str) -> bytes:
        """Returns a file's content. Raises OSError."""

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which is durable then. Raises OSError."""

    def may_have(self, name: str) -> bool:
        """Whether a file whose `write` has failed may be there."""

    def remove(self, name: str) -> None:
        """Removes a file. Raises OSError."""


class LocalStorage:
    """A folder on a local disk, which is made where it does not exist. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1
        path.mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return str(self._path)

    def lock(self, lander: str) -> None:
        self._lock = os.open(self._path / f".{lander}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise LanderRunning(f"a lander called {lander} is already landing in {self}") from None

    def unlock(self) -> None:
        os.close(self._lock)

    def names(self) -> Iterator[str]:
        return (path.name for path in self._path.iterdir())

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        write_durably(self._path / name, content)

    def may_have(self, name: str) -> bool:
        return (self._path / name).exists()

    def remove(self, name: str) -> None:
        (self._path / name).unlink()


class ObjectStorage:
    """Objects with a common prefix. An object appears whole, and is durable, when its upload ends.

    There is no lock: the broker tells a lander that another one uses its name.

    Args:
        url: "s3://BUCKET/PREFIX", and options of the store behind a question mark. Keys are never in it: the store's
            own library finds them, in the environment or in its files.

    Raises ValueError for a bad URL, OSError.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = f"{parts.scheme}://{parts.hostname or ''}{parts.path.rstrip('/')}"
        if "@" in parts.netloc or "secret_key" in parts.query:
            raise ValueError(f"{self._url}: expected no keys in the URL; they are in the environment")
        if parts.scheme not in OBJECT_STORES or not parts.hostname:
            raise ValueError(f"{self._url}: expected the URL of an object store, such as s3://BUCKET/PREFIX")
        try:
            self._store, path = fs.FileSystem.from_uri(url if parts.scheme != "s3" else _in_one_request(url))
        except (ValueError, NotImplementedError) as error:  # of Arrow's errors those of bad options are of this class
            raise ValueError(f"{self._url}: {error}") from None
        self._path = path.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def lock(self, lander: str) -> None:
        pass

    def unlock(self) -> None:
        pass

    def names(self) -> Iterator[str]:
        found = self._store.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return (one.base_name for one in found if one.type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        with self._store.open_input_stream(f"{self._path}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._store.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(content)

    def may_have(self, name: str) -> bool:
        return True  # an upload whose answer is lost may end later

    def remove(self, name: str) -> None:
        self._store.delete_file(f"{self._path}/{name}")


def _in_one_request(url: str) -> str:
    """Returns the URL with the option that an upload which is small enough is one request, not one of several parts."""
    return f"{url}{'&' if '?' in url else '?'}allow_delayed_open=true"


def open_storage(place: Path | str) -> Storage:
    """Returns the storage at a path, or at the URL of an object store. Raises ValueError, OSError."""
    return ObjectStorage(place) if isinstance(place, str) and "://" in place else LocalStorage(Path(place))
