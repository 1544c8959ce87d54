"""Files that commands write where a user names them."""

import os
import tempfile
from pathlib import Path

_MODE = 0o644


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file, which has its name only when it is whole; a former file or symbolic link of this name is replaced.

    No link is followed, so another user of the folder cannot choose what is overwritten. Raises OSError, and leaves
    nothing then.
    """
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
