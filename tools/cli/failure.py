"""How a command ends that cannot do its work, or print what it did: with a line on standard error."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO, cast

import typer

from tools.cli.columns import printable


def fail(command: str, text: str, exit_code: int = 2) -> NoReturn:
    """Ends the command with 2, wrong usage or a missing requirement, or with 1, as `tools.cli.main` says."""
    complain(command, text)
    raise typer.Exit(exit_code)


def complain(command: str, text: str) -> None:
    """Prints what is wrong on standard error, which may be full as any other file."""
    try:
        for line in text.splitlines() or [""]:
            print(f"{' '.join(['holdfast', *command.split()])}: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)


def say(text: str) -> None:
    """Prints a line of a program that runs for months, and goes on where the disk with its output is full."""
    with suppress(OutputFailed):
        print(text, flush=True)


@contextmanager
def failing_on(*errors: type[Exception], command: str, exit_code: int = 2) -> Iterator[None]:
    """Has these errors end the command with an exit code, as `fail` takes it, and their own text."""
    try:
        yield
    except errors as error:
        fail(command, words_of(error), exit_code)


def words_of(error: Exception) -> str:
    """Returns the words of an error: an error of the system names its file first, and has no number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


class OutputFailed(Exception):
    """Standard output does not take what is printed; ``is_fault`` unless the reader of a pipe has ended."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}")
        self.is_fault = not isinstance(error, BrokenPipeError)


class _CheckedOutput:
    """A stream whose errors are no errors of any other file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _as_output():
            return self._stream.write(text)

    def flush(self) -> None:
        with _as_output():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _as_output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(error) from None


@contextmanager
def checked_output() -> Iterator[None]:
    """Has all that is printed written out at the end. Raises OutputFailed."""
    if (stream := sys.stdout) is None:
        yield
        return
    sys.stdout = cast(TextIO, _CheckedOutput(stream))
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputFailed:
        _give_up(stream)
        raise


def _give_up(stream: TextIO) -> None:
    """Loses what a stream still holds. Python would try again at its end, and end with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
