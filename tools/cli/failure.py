"""How a command ends that cannot do what it was asked for: with a line on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer


def fail(command: str, text: str, exit_code: int = 2) -> NoReturn:
    """Ends the command: 2 where it is called wrongly or something that it needs is not there, 1 as `tools.cli` says."""
    for line in text.splitlines() or [""]:
        print(f"holdfast {command}: {line}", file=sys.stderr)
    raise typer.Exit(exit_code)


@contextmanager
def failing_on(*errors: type[Exception], command: str) -> Iterator[None]:
    """Has these errors end the command with exit code 2 and their own text."""
    try:
        yield
    except errors as error:
        fail(command, str(error))
