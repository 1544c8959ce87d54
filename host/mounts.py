"""The file systems that are mounted, and the ones that the machine is to mount by its table."""

import errno
import os
import re
from pathlib import Path

FSTAB, MOUNTED = Path("/etc/fstab"), Path("/proc/self/mountinfo")
IN_MEMORY = "it is in memory, which a restart of the machine empties"
LAYERED = "what is written there goes with the container, or with the next restart of the machine"
LOST = {
    **dict.fromkeys(("ramfs", "rootfs", "tmpfs"), IN_MEMORY),
    **dict.fromkeys(("aufs", "fuse.fuse-overlayfs", "overlay"), LAYERED),
}
"""The kinds of file systems that lose what is written, and when."""


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


def why_volatile(folder: Path) -> str | None:
    """Returns when the file system of a folder, or of the one in which it would be made, loses what is written there,
    None if it is not known to do so.

    An overlay has what is written in a layer that goes with its container, or is in memory where the root file system
    is to stay as it is. Where that layer is cannot be seen from inside a container.

    https://docs.kernel.org/filesystems/overlayfs.html
    """
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    device = os.stat(nearest).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [row[row.index("-") + 1] for row in _rows(_read(MOUNTED)) if row[2] == number]
    return next((f"{kind}: {LOST[kind]}" for kind in kinds if kind in LOST), None)


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
