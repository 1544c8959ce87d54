"""Where a run of the demo keeps its files."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

import typer

from tools.paths import demo_directory

RESULTS = ("tables", "chart.png")


@contextlib.contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """Lends an empty folder; without ``keep`` it is the demo's own, which keeps the last run's results only.
    A run that breaks down leaves everything there for a look, until the next one.

    Raises:
        typer.BadParameter: ``keep`` is not empty, or another run uses the demo's own folder.
    """
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise typer.BadParameter(f"{keep} is not an empty folder", param_hint="--keep")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    folder = demo_directory()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = "another demo is running; give this one a folder of its own"
            raise typer.BadParameter(message, param_hint="--keep") from None
        _clear(folder)
        yield folder
        _clear(folder, RESULTS)


def _clear(folder: Path, keep: tuple[str, ...] = ()) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name in keep:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
