"""Where a run of the demo keeps its files."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from tools.cli.failure import fail
from tools.cli.paths import demo_directory

RESULTS = ("tables", "chart.png")


class Place(NamedTuple):
    """The empty folder in which a run works, and the folder of its results."""

    run: Path
    results: Path


@contextlib.contextmanager
def demo_place(keep: Path | None) -> Iterator[Place]:
    """Lends an empty folder, ``keep`` or the demo's own. In the demo's own folder only the results are kept.

    The results of the last run stay until the results of this run are complete. A run that fails leaves its files in
    ``run`` until the next run begins.

    Raises:
        typer.BadParameter: ``keep`` is not empty.
        typer.Exit: another run uses the demo's own folder.
    """
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise typer.BadParameter(f"{keep} is not an empty folder", param_hint="--keep")
        keep.mkdir(parents=True, exist_ok=True)
        yield Place(keep.resolve(), keep.resolve())
        return
    folder = demo_directory()
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail("demo", "another demo is running; --keep DIR gives this one a folder of its own")
        place = Place(folder / "run", folder)
        _restore(folder)
        for path in folder.iterdir():
            if path.name not in RESULTS:
                _remove(path)
        place.run.mkdir()
        yield place
        _remove(place.run / "tables" / "_checkpoint")  # a checkpoint is valid in one folder only
        for name in RESULTS:
            _replace(place.run / name, folder / name)
        _remove(place.run)


def _replace(new: Path, path: Path) -> None:
    """Replaces a file or folder by a new one; after a kill in between, `_restore` repairs it."""
    if path.exists():
        path.rename(_former(path))
    new.rename(path)
    _remove(_former(path))


def _restore(folder: Path) -> None:
    """Restores results that were moved away, if their replacement was never moved in."""
    for path in (folder / name for name in RESULTS):
        if _former(path).exists() and not path.exists():
            _former(path).rename(path)


def _former(path: Path) -> Path:
    return path.with_name(f"{path.name}.former")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
