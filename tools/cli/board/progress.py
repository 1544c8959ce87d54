"""What `holdfast flash` says while it works: each step with what it took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tools.cli.columns import printable

STEP_PERCENT = 10


class Progress:
    """Prints a line for each step, and on a terminal how far it has come; nothing at all if it `is_silent`.

    Args:
        board: begins each line, where several boards are flashed at once; then there is no more than the lines.
    """

    def __init__(self, is_silent: bool = False, board: str = "") -> None:
        self._is_silent = is_silent
        self._began_s = time.monotonic()
        self._is_shown = sys.stderr.isatty() and not is_silent and not board
        self._board = f"{board}: " if board else ""
        self._name = ""

    def say(self, text: str) -> None:
        """Prints lines. What a board has said may be in them: a terminal gets nothing that it would obey."""
        self._clear()
        if self._is_silent:
            return
        for line in text.splitlines():
            typer.echo(f"{time.monotonic() - self._began_s:6.1f} s  {self._board}{printable(line)}")
        sys.stdout.flush()

    def show(self, percent: float) -> None:
        """Shows how far the step has come, where there is a terminal."""
        if self._is_shown and self._name:
            print(f"\r          {printable(self._name)}: {percent:3.0f} %", end="", file=sys.stderr, flush=True)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Says at its end what took how long."""
        began_s = time.monotonic()
        self._name = name
        try:
            yield
        finally:
            self._clear()
            self._name = ""
        self.say(f"{name}: {time.monotonic() - began_s:.1f} s")

    def _clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
