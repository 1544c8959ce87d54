"""A backlog file: column batches with a checksum each, between a header and an end.

::

    "HFBACKLOG" | version | record … record        record: kind | length (4) | CRC-32 of kind and body (4) | body

The first record is the header (``H``), the last one the end (``E``), both in JSON. Those between (``B``) have a column
batch each, and the oldest messages come first. Numbers have their highest byte first. A file without its end is not
complete. docs/reference/backlog-file.md has the format.
"""

import contextlib
import errno
import fcntl
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar

import msgspec

from wire.bulk.column_batch import SIZE_MAX

MAGIC = b"HFBACKLOG\x01"
HEADER, BATCH, END = b"H", b"B", b"E"
UNFINISHED = ".backlog-part"  # at the end of a hidden name
RECORD_HEAD = 9  # bytes: kind, length and checksum
RECORD_MAX = 2 * SIZE_MAX  # bytes of a body; zstd makes what it cannot compress a little longer


class BadBacklogFile(Exception):
    """A file is no backlog file, or is not as it was written; the text names the file and says what is wrong."""


class Header(msgspec.Struct, frozen=True):
    """``file`` is a random number in hexadecimal that no other file has. ``created_ms`` is Unix time."""

    file: str
    gateway: str
    route: str
    created_ms: int


class End(msgspec.Struct, frozen=True):
    """How many batches and messages the file has."""

    batches: int
    messages: int


Record = TypeVar("Record", Header, End)


class BacklogWriter:
    """Writes a file under a hidden name; it gets its own name when it is complete and synced. All of this blocks.

    It follows no symbolic link, and replaces no file of another program, also in a folder where other users may write.
    It removes what killed writers have left in the folder.

    Raises OSError, with a FileExistsError if there is a file or a symbolic link of this name.
    """

    def __init__(self, path: Path, header: Header) -> None:
        if os.path.lexists(path):
            raise _exists(path)
        self._path = path
        self._hidden = path.with_name(f".{path.name}{UNFINISHED}")
        _remove_remains(path.parent)
        self._file = os.fdopen(os.open(self._hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "wb")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # tells a writer from the remains of one
        self._batches = self._messages = 0
        self._file.write(MAGIC)
        self._write(HEADER, msgspec.json.encode(header))

    def add(self, batch: bytes, messages: int) -> None:
        """Appends a column batch of ``messages`` messages."""
        self._write(BATCH, batch)
        self._batches += 1
        self._messages += messages

    def finish(self) -> int:
        """Makes the file complete and durable; returns how many messages it has."""
        self._write(END, msgspec.json.encode(End(self._batches, self._messages)))
        self._file.flush()
        os.fsync(self._file.fileno())
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # raises if another program has made it
        try:
            self._hidden.rename(self._path)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        self._file.close()
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._messages

    def discard(self) -> None:
        """Removes the file, which is not complete."""
        try:
            self._file.close()  # writes what it still holds, which a full disk does not take
        except OSError:
            pass
        finally:
            self._hidden.unlink(missing_ok=True)

    def _write(self, kind: bytes, body: bytes) -> None:
        checksum = zlib.crc32(kind + body)
        self._file.write(kind + len(body).to_bytes(4, "big") + checksum.to_bytes(4, "big") + body)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _remove_remains(folder: Path) -> None:
    """Removes the unfinished files that no process writes any more, of any name. Raises OSError."""
    for remains in folder.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):  # not ours to read, being written, or no file
            descriptor = os.open(remains, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISREG(os.fstat(descriptor).st_mode) and MAGIC.startswith(os.read(descriptor, len(MAGIC))):
                    remains.unlink()
            finally:
                os.close(descriptor)


class BacklogReader:
    """Reads a file, in a ``with`` block. All of this blocks.

    Args:
        path: the file.

    ``header`` is the file's.

    Raises:
        BadBacklogFile: it is no backlog file.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("rb")
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise BadBacklogFile(
                    f"{path}: no backlog file that this version reads: it does not begin with HFBACKLOG"
                )
            kind, body = self._read()
            if kind != HEADER:
                raise self._bad(f"its first record is {kind!r}, expected its header")
            self.header = self._decode(body, Header)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "BacklogReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def batches(self) -> Iterator[bytes]:
        """Yields the column batches. At the end it raises BadBacklogFile if the file is not complete."""
        count = 0
        while True:
            kind, body = self._read()
            if kind == BATCH:
                count += 1
                yield body
            elif kind == END:
                break
            else:
                raise self._bad(f"a record is {kind!r}, expected a batch or the end")
        if (end := self._decode(body, End)).batches != count:
            raise self._bad(f"it has {count} batches, and its end says {end.batches}")
        if self._file.read(1):
            raise self._bad("bytes come behind its end")

    def _read(self) -> tuple[bytes, bytes]:
        at = self._file.tell()
        head = self._file.read(RECORD_HEAD)
        kind, size = head[:1], int.from_bytes(head[1:5], "big")
        if len(head) == RECORD_HEAD and size > RECORD_MAX:
            raise self._bad(f"the record at byte {at} has {size} bytes, expected {RECORD_MAX} at most")
        body = self._file.read(size)
        if len(head) < RECORD_HEAD or len(body) < size:
            raise self._bad(f"it is not complete: it ends in the record at byte {at}; copy it again")
        if zlib.crc32(kind + body) != int.from_bytes(head[5:], "big"):
            raise self._bad(f"the record at byte {at} is not as it was written; copy it again")
        return kind, body

    def _decode(self, body: bytes, kind: type[Record]) -> Record:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise self._bad(f"{kind.__name__.lower()}: {error}") from None

    def _bad(self, what: str) -> BadBacklogFile:
        return BadBacklogFile(f"{self._path}: {what}")
