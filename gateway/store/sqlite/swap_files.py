"""Swaps new files for a store's: all of them or none, whenever the process is killed.

New files are made in ``repairing``. Renamed to ``repaired``, they all appear at once; from then on they are the store,
and the next process that opens the store finishes the swap first. The former files are kept in a folder of their own.
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import StoreError
from gateway.store.sqlite.disk import words_of

MAKING, READY, OLD = "repairing", "repaired", "damaged"
COMPANIONS = ("", "-wal", "-shm")  # a database's file and the files that SQLite keeps beside it


@contextlib.contextmanager
def begun(folder: Path, name: str = MAKING) -> Iterator[Path]:
    """Gives an empty folder for new files. At the end it is removed, unless the files were offered. Raises OSError."""
    making = folder / name
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    try:
        yield making
    finally:
        shutil.rmtree(making, ignore_errors=True)


def offer(folder: Path) -> Path:
    """Makes the new, complete files the store. Returns the folder with the former files."""
    making = folder / MAKING
    for file in making.iterdir():
        sync(file)
    sync(making)
    making.rename(folder / READY)
    sync(folder)
    old = finish(folder)
    assert old is not None
    return old


def finish(folder: Path) -> Path | None:
    """Finishes a swap that has begun; returns the folder with the former files, None if none has begun.

    Raises:
        StoreError: a file cannot be moved.
    """
    ready = folder / READY
    if not ready.exists():
        return None
    try:
        old = ready / OLD
        old.mkdir(exist_ok=True)  # an earlier attempt may have made it
        for file in [file for file in ready.iterdir() if file.is_file()]:
            for companion in COMPANIONS:  # the former file's first: its WAL does not belong to the new file
                beside = folder / (file.name + companion)
                if beside.exists():
                    beside.rename(old / beside.name)
            sync(folder)
            file.rename(folder / file.name)
        kept = _unused(folder / time.strftime(f"{OLD}-%Y%m%dT%H%M%SZ", time.gmtime()))
        if any(old.iterdir()):
            old.rename(kept)
        shutil.rmtree(ready)
        sync(folder)
    except OSError as error:
        raise StoreError(f"message store {folder}: a repair could not be ended: {words_of(error, folder)}") from error
    return kept


def _unused(path: Path) -> Path:
    """Returns the path, or one with a number appended if it exists."""
    names = itertools.chain([path.name], (f"{path.name}-{number}" for number in itertools.count(2)))
    return next(other for other in map(path.with_name, names) if not other.exists())


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
