"""The file systems that are mounted, and the ones that the machine is to mount by its table."""

import errno
import os
import re
from pathlib import Path

FSTAB, MOUNTED = Path("/etc/fstab"), Path("/proc/self/mountinfo")


def why_not_mounted(folder: Path) -> OSError | None:
    """Returns why nothing is to be written to a folder, None if its file system is mounted.

    What is written at a mount point before the mount is hidden afterwards, and what is on the disk looks lost before
    it. A mount point of which /etc/fstab does not know is not noticed.

    https://www.man7.org/linux/man-pages/man5/fstab.5.html
    https://www.man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
    """
    path = folder.resolve()
    points = [Path(row[1]).resolve() for row in _rows(_read(FSTAB)) if row[1:] and row[1].startswith("/")]
    above = [point for point in points if path.is_relative_to(point) and point != Path("/")]
    if not above:
        return None
    nearest = max(above, key=lambda point: len(point.parts))
    if any(row[4] == str(nearest) for row in _rows(_read(MOUNTED))):
        return None
    return OSError(errno.ENOENT, f"{FSTAB} mounts a file system there, and it is not mounted", str(nearest))


def is_in_memory(folder: Path) -> bool:
    """Whether a folder, or the one in which it would be made, is on a file system that is lost at a restart of the
    machine.
    """
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    device = os.stat(nearest).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(row[2] == number and row[row.index("-") + 1] in ("tmpfs", "ramfs") for row in _rows(MOUNTED.read_text()))


def _read(file: Path) -> str:
    """Returns a table, "" where it cannot be read."""
    try:
        return file.read_text(errors="surrogateescape")
    except OSError:
        return ""


def _rows(table: str) -> list[list[str]]:
    """Returns the rows of a table; a space in a cell is written as an octal number, and `#` begins a comment."""
    rows = [line.split() for line in table.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [[re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), cell) for cell in row] for row in rows]
