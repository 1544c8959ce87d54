"""A file that is either wholly there, under its name and on the disk, or not there at all."""

import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Writes under a hidden name, syncs, renames and syncs the folder. Raises OSError; no hidden file stays then."""
    hidden = hidden_name(path)
    try:
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    sync(path.parent)


def hidden_name(path: Path) -> Path:
    """What the file is called until it is complete: Spark, and `ls`, pass over names that start with a dot."""
    return path.with_name(f".{path.name}")


def sync(path: Path) -> None:
    """Brings a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
