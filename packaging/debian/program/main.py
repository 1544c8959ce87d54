"""Runs the command `holdfast` with the libraries beside this file, and with none of the system's.

The path is that of the link `current`, also while it is moved to another version: what a running gateway loads later is
of the version that the link leads to.
"""

import sys

HERE = __file__.rpartition("/")[0]
sys.path[:0] = [f"{HERE}/holdfast", f"{HERE}/libraries"]

from tools.cli.main import main  # noqa: E402 - found by the path above

main()
