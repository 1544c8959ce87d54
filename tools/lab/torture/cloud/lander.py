"""The lander that is killed: a child of this process lands messages, and dies before one of its operations on files.

Python and its libraries take a second to start, so one process makes all the children of a run.
"""

import os
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from cloud.landing.file import Row
from cloud.landing.folder import LandingFolder
from cloud.storage.place import open_storage
from cloud.storage.storage import StoreError
from tools.lab.torture.cloud.cutters import open_cutter

_STORE_FAILED = 3


class Landing(msgspec.Struct):
    """The messages of a file are to be landed under a boot, and the lander dies before operation `cut` on files, or at
    a request to the store."""

    messages: str
    boot: int
    cut: int


def carry_out(landing: Landing, place: str, left: Path) -> None:
    """Lands the messages, unless this process dies before. left: the file for what may be undone then.

    Raises OSError.
    """
    cutter = open_cutter(place, left)
    cutter.begin(landing.cut)
    rows = msgspec.msgpack.decode(Path(landing.messages).read_bytes(), type=list[Row])
    LandingFolder(open_storage(place), "lander-1", landing.boot).land(rows)
    cutter.spare()


def main() -> None:
    """Reads a JSON object a line, and writes the signal that ended the child, 0, or "failed" where the store did."""
    place, left = sys.argv[1:]
    for line in sys.stdin:
        landing = msgspec.json.decode(line, type=Landing)
        child = os.fork()
        if child == 0:
            try:
                carry_out(landing, place, Path(left))
            except StoreError:
                os._exit(_STORE_FAILED)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, _STORE_FAILED, -signal.SIGKILL):
            sys.exit(1)
        print("failed" if code == _STORE_FAILED else -code, flush=True)


if __name__ == "__main__":
    main()
