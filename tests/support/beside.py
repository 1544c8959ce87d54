"""Runs one command in the background of another: the type checker beside the tests, which leave a core idle at times.

    python tests/support/beside.py "COMMAND" ARGUMENT...

runs the command in the background and the arguments as a command in the foreground. Ends with the code of the first of
the two that fails; the background's output is shown at the end.
"""

import shlex
import subprocess
import sys


def main() -> int:
    background, *foreground = sys.argv[1:]
    with subprocess.Popen(
        shlex.split(background), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as beside:
        code = subprocess.run(foreground).returncode
        said, _ = beside.communicate()
    if beside.returncode:
        print(said, end="", file=sys.stderr)
    return code or beside.returncode


if __name__ == "__main__":
    sys.exit(main())
