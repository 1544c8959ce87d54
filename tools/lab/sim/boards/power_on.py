"""What a simulated chip runs at its start: PLATFORM PROGRAM, with this folder first on the import path."""

import sys

program = sys.argv[2]


class Sys:
    """`sys` as on the board."""

    platform = sys.argv[1]
    implementation = sys.implementation
    stdout, stderr, modules, path, exit = sys.stdout, sys.stderr, sys.modules, sys.path, sys.exit


sys.modules["sys"] = Sys  # type: ignore[assignment]
exec(program)
