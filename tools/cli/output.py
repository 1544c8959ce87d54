"""Files and folders that commands write where a user names them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MODE = 0o644
_UNFINISHED = ".unfinished"


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file, which has its name only when it is whole; a former file or symbolic link of this name is replaced.

    No link is followed, so another user of the folder cannot choose what is overwritten. Raises OSError, which names
    the file, and leaves nothing then.
    """
    with _naming(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), _MODE)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def is_unfinished(folder: Path) -> bool:
    """Whether a program was killed while it replaced what is in a folder."""
    return (folder / _UNFINISHED).exists()


@contextmanager
def replaced_whole(folder: Path, last: str) -> Iterator[Path]:
    """Gives an empty folder; at the end all that is in it takes the place of all that is in `folder`.

    The file `last` is gone from `folder` until everything else is there. Raises OSError, which names the folder. If the
    new files cannot be written, `folder` is as it was.
    """
    with _naming(folder):
        is_new = not folder.exists()
        making = folder / _UNFINISHED
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        try:
            yield making
        except BaseException:
            shutil.rmtree(making)
            if is_new:
                folder.rmdir()
            raise
        (folder / last).unlink(missing_ok=True)
        for old in folder.iterdir():
            if old != making:
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        for new in sorted(making.iterdir(), key=lambda one: one.name == last):
            new.rename(folder / new.name)
        making.rmdir()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Has an error of the system name what the user has named: a full disk is reported without a name."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
