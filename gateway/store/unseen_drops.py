"""Whether acknowledged messages were dropped to make room, and no operator has said yet that they know.

A file in the store's folder says so over restarts, until an operator has seen it.
"""

import contextlib
import logging
import time
from pathlib import Path

FILE = "unseen-drops"

logger = logging.getLogger(__name__)


class UnseenDrops:
    """One store's drops since an operator last said that they had seen them.

    Args:
        folder: the store's folder.

    ``since`` is when the first of them was, in UTC, "" without any.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self.since = ""
        with contextlib.suppress(OSError):  # a full disk takes an empty file
            self.since = self._file.read_text("ascii") or _utc(self._file.stat().st_mtime)

    def note(self) -> None:
        """Messages are dropped now. If the disk takes no file, the next drop tries again."""
        self.since = self.since or _utc(time.time())
        if not self._file.exists():
            try:
                self._file.write_text(self.since, "ascii")
            except OSError as error:
                logger.warning("%s: a restart will not know that messages were dropped: %s", self._file, error.strerror)

    def see(self) -> bool:
        """An operator knows of all drops until now. Returns whether there were any. Raises OSError."""
        self._file.unlink(missing_ok=True)
        had_any, self.since = bool(self.since), ""
        return had_any


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
