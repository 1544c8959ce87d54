"""The lander that is killed: it lands the messages of a file, and dies before one of its operations on files."""

import sys
from pathlib import Path

import msgspec

from cloud.landing.file import Row
from cloud.landing.folder import LandingFolder
from tools.lab.torture.cloud.cut import Cutter


def main() -> None:
    """Arguments: the landing folder, the file with the messages, the file for what may be undone, the boot, and before
    which operation the process dies."""
    landing, messages, left = map(Path, sys.argv[1:4])
    boot, cut = map(int, sys.argv[4:])
    rows = msgspec.msgpack.decode(messages.read_bytes(), type=list[Row])
    cutter = Cutter(landing, left)
    cutter.begin(cut, kills=True)
    LandingFolder(landing, "lander-1", boot).land(rows)


if __name__ == "__main__":
    main()
