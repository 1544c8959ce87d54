"""Starts the program of a simulated chip, with the arguments PLATFORM PROGRAM and this folder first on `sys.path`."""

import sys

program = sys.argv[2]


class Sys:
    """`sys` with the board's platform name."""

    platform = sys.argv[1]
    implementation = sys.implementation
    stdin, stdout, stderr = sys.stdin, sys.stdout, sys.stderr
    modules, path, exit = sys.modules, sys.path, sys.exit


sys.modules["sys"] = Sys  # type: ignore[assignment]
exec(program)
