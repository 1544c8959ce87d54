"""What landing files and tables need of the place where they lie. A local folder and an object store both have it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from pyarrow import fs


class StoreError(OSError):
    """The object store did not do what was asked. The text names the place and the reason, and has no keys."""


class Entry(NamedTuple):
    """A file: its name, its size in bytes, and when it was written (Unix time, s)."""

    name: str
    size: int
    modified_s: float


class Written(NamedTuple):
    """A file's name, its size in bytes, and the SHA-256 of its bytes as they were handed over (hexadecimal digits)."""

    name: str
    size: int
    sha256: str


Rename: TypeAlias = Callable[[str, str], str]


class Output(Protocol):
    """A file that is being written. It is there, and durable, once `close` has returned."""

    @property
    def sink(self) -> pa.NativeFile:
        """Takes the content, from its beginning to its end."""

    def close(self, rename: Rename | None = None) -> "Written":
        """Returns what the file, which is durable then, has. Raises OSError.

        rename: returns the name that the file gets, by the name it was opened with, and its digest.
        """

    def discard(self) -> None:
        """Leaves no file."""


class Storage(Protocol):
    """Files by name. A name may have folders, divided by slashes. As text it is what people may see."""

    @property
    def place(self) -> Path | str:
        """What `open_storage` opens again, in another process too."""

    @property
    def uri(self) -> str:
        """The place as delta-rs opens it, with `delta_options`."""

    @property
    def delta_options(self) -> dict[str, str]:
        """What delta-rs has to know of the object store; empty for a local folder."""

    @property
    def filesystem(self) -> fs.FileSystem:
        """What pyarrow reads files by, under the paths that `path` gives."""

    def child(self, name: str) -> "Storage":
        """Returns a folder in this one."""

    def path(self, name: str) -> str:
        """Returns a file's path in `filesystem`."""

    def is_there(self) -> bool:
        """Whether the folder exists. In an object store each one does. Raises OSError: its disk is not mounted."""

    def lock(self, name: str) -> bool:
        """Takes the lock of this name for this process, where the place has locks, and makes the folder.

        Returns whether no other process has it. Raises OSError.
        """

    def unlock(self) -> None:
        """Gives the lock back."""

    def names(self) -> list[str]:
        """Returns the names of the files in the folder itself. Raises OSError."""

    def walk(self) -> Iterator[Entry]:
        """Yields the files in the folder and in the folders in it. Raises OSError."""

    def has(self, name: str) -> bool:
        """Whether there is a file. Raises OSError."""

    def size(self, name: str) -> int:
        """Returns a file's size in bytes. Raises FileNotFoundError, OSError."""

    def read(self, name: str) -> bytes:
        """Returns a file's content. Raises FileNotFoundError, OSError."""

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which is durable then, in the place of one with its name. Raises OSError."""

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file, which is durable then, unless its name is taken. Returns whether it did. Raises OSError."""

    def open(self, name: str) -> Output:
        """Begins a file. Raises OSError."""

    def copy(self, name: str, to: str) -> None:
        """Gives a file a second name, under which it is durable then. Raises OSError."""

    def may_have(self, name: str) -> bool:
        """Whether a file whose `write` has failed may be there."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there. Raises OSError."""

    def clear(self) -> None:
        """Removes the folder with all that is in it. Raises OSError."""
