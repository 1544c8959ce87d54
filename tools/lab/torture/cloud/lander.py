"""The lander that is killed: a child of this process lands messages, and dies before one of its operations on files.

Python and its libraries take a second to start, so one process makes all the children of a run.
"""

import os
import sys
import traceback
from pathlib import Path

import msgspec

from cloud.landing.file import Row
from cloud.landing.folder import LandingFolder
from tools.lab.torture.cloud.cut import Cutter


class Landing(msgspec.Struct):
    """The messages of a file are to be landed under a boot, and the lander dies before operation `cut` on files."""

    messages: str
    boot: int
    cut: int


def carry_out(landing: Landing, folder: Path, left: Path) -> None:
    """Lands the messages, unless this process dies before. left: the file for what may be undone then."""
    Cutter(folder, left).begin(landing.cut)
    rows = msgspec.msgpack.decode(Path(landing.messages).read_bytes(), type=list[Row])
    LandingFolder(folder, "lander-1", landing.boot).land(rows)


def main() -> None:
    """Reads a JSON object a line, and writes the signal that ended the child, or 0."""
    folder, left = map(Path, sys.argv[1:])
    for line in sys.stdin:
        landing = msgspec.json.decode(line, type=Landing)
        child = os.fork()
        if child == 0:
            try:
                carry_out(landing, folder, left)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status and not os.WIFSIGNALED(status):
            sys.exit(1)
        print(os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main()
