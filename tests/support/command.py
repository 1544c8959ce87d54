"""The `holdfast` command called in the test's own process: a process of its own takes a second to start."""

import os

from typer.testing import CliRunner, Result

from tools.cli.main import make_app


def holdfast(*arguments: str) -> Result:
    """Runs a command line as `main` does; an error that the command does not handle is the test's.

    A command that gives up its rights, or runs until a signal, needs a process.
    """
    before = os.umask(0o022)
    try:
        return CliRunner().invoke(make_app(), arguments, prog_name="holdfast", catch_exceptions=False)
    finally:
        os.umask(before)
