"""New files take the place of a store's, all of them or none, whenever the process is killed.

What is ready lies in ``repaired``, which appears at once; from then on the new files are the store, and whoever opens
it next ends the exchange first. The old files end up in a folder of their own.
"""

import itertools
import os
import shutil
import time
from pathlib import Path

from gateway.errors import StoreError

MAKING, READY, OLD = "repairing", "repaired", "damaged"
COMPANIONS = ("", "-wal", "-shm")  # a database's file and those that SQLite keeps beside it


def begin(folder: Path) -> Path:
    """Returns an empty folder for new files of a store."""
    making = folder / MAKING
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    return making


def offer(folder: Path) -> Path:
    """The new files are whole: they become the store. Returns where the old ones are then."""
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
    """Ends an exchange, where one has begun; returns where the old files are then.

    Raises:
        StoreError: a file cannot be moved.
    """
    ready = folder / READY
    if not ready.exists():
        return None
    try:
        old = ready / OLD
        old.mkdir(exist_ok=True)  # it may be there from an attempt before
        for file in [file for file in ready.iterdir() if file.is_file()]:
            for companion in COMPANIONS:  # first those of the old one: its WAL is none of the new file's
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
        raise StoreError(f"message store {folder}: a repair could not be ended: {error}") from error
    return kept


def _unused(path: Path) -> Path:
    """Returns the path, or one with a number behind it where that is taken."""
    names = itertools.chain([path.name], (f"{path.name}-{number}" for number in itertools.count(2)))
    return next(other for other in map(path.with_name, names) if not other.exists())


def sync(path: Path) -> None:
    """What is in a file, or which files are in a folder, is on the medium when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
