"""Files that are complete and on the disk, or do not exist under their name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Writes under a hidden name, syncs, renames, syncs the folder. Raises OSError, and leaves no hidden file then."""
    hidden = hidden_name(path)
    try:
        write_synced(hidden, content)
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Writes a file, and its content to the disk, but not its name. Raises OSError."""
    with naming(path), path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has an OSError name the file: Python reports a full disk without it."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def hidden_name(path: Path) -> Path:
    """The name of the file until it is complete: Spark and `ls` leave out names that start with a dot."""
    return path.with_name(f".{path.name}")


def sync(path: Path) -> None:
    """Writes a file's content, or a folder's list of names, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
