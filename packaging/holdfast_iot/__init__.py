"""The installed distribution: this folder holds the packages `host` to `tools`.

A line in `holdfast_iot.pth` puts it last on the path of every Python of the environment. So `from cloud import ingest`
works there, also in Spark's executors, and a package of the same name that another project has installed stays the one
that is imported. The command itself looks here first.
"""

import sys
from pathlib import Path


def main() -> None:
    """Runs the command `holdfast` with the arguments of the process."""
    here = Path(__file__).resolve().parent
    checkout = here.parents[1]
    sys.path.insert(0, str(here if (here / "tools").is_dir() else checkout))
    from tools.cli.main import main as run

    run()
