"""How a command ends that cannot do its work: with a line on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from tools.cli.columns import printable


def fail(command: str, text: str, exit_code: int = 2) -> NoReturn:
    """Ends the command with 2, wrong usage or a missing requirement, or with 1, as `tools.cli.main` says."""
    for line in text.splitlines() or [""]:
        print(f"holdfast {command}: {printable(line)}", file=sys.stderr)
    raise typer.Exit(exit_code)


@contextmanager
def failing_on(*errors: type[Exception], command: str, exit_code: int = 2) -> Iterator[None]:
    """Has these errors end the command with an exit code, as `fail` takes it, and their own text."""
    try:
        yield
    except errors as error:
        fail(command, str(error), exit_code)
