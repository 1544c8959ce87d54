"""File systems that the machine is to mount, by its table, and has not mounted."""

import errno
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
    points = [Path(point).resolve() for point in _column(FSTAB, 1) if point.startswith("/")]
    above = [point for point in points if path.is_relative_to(point) and point != Path("/")]
    if not above:
        return None
    nearest = max(above, key=lambda point: len(point.parts))
    if str(nearest) in _column(MOUNTED, 4):
        return None
    return OSError(errno.ENOENT, f"{FSTAB} mounts a file system there, and it is not mounted", str(nearest))


def _column(file: Path, number: int) -> list[str]:
    """Returns a column of a table; a space in it is written as an octal number, and `#` begins a comment."""
    try:
        rows = [line.split() for line in file.read_text(errors="surrogateescape").splitlines()]
    except OSError:
        return []
    cells = [row[number] for row in rows if len(row) > number and not row[0].startswith("#")]
    return [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), cell) for cell in cells]
