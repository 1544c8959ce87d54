"""Questions on a terminal. Without one, a missing answer is an error that names its flag."""

import getpass
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import typer

from tools.cli.columns import printable
from tools.cli.new.answers import AnswerError, Missing

T = TypeVar("T")


class Questions:
    """Asks a person, if there is one: standard input is a terminal.

    Args:
        has_person: whether there is; by default found out.
    """

    def __init__(self, has_person: bool | None = None) -> None:
        self.has_person = sys.stdin.isatty() if has_person is None else has_person

    def text(
        self, flag: str, question: str, read: Callable[[str], T], default: str | None = None, given: str | None = None
    ) -> T:
        """Returns an answer in its form.

        Args:
            flag: which would have answered.
            question: what is asked.
            read: checks an answer; raises AnswerError, and a person is asked again.
            default: the answer if only Enter is pressed, and without a person. None: an answer is required.
            given: the flag's answer.

        Raises:
            Missing: there is neither an answer nor a person.
            AnswerError: the flag's answer cannot be used.
        """
        if given is not None:
            return read(given)
        if not self.has_person:
            if default is None:
                raise Missing(f"{question}: add {flag}; there is no terminal to ask at")
            return read(default)
        while True:
            told = input(f"{question}{f' [{default}]' if default else ''}: ").strip() or default
            if told is None:
                continue
            try:
                return read(told)
            except AnswerError as error:
                typer.echo(str(error))

    def secret(self, flag: str, question: str) -> str:
        """Returns a password, "" for none, which is not shown. Raises Missing."""
        if not self.has_person:
            raise Missing(f"{question}: add {flag}; there is no terminal to ask at")
        return getpass.getpass(f"{question}: ")

    def agrees(self, question: str) -> bool:
        """Whether the person says yes; without a person it is yes."""
        return not self.has_person or input(f"{printable(question)} [Y/n]: ").strip().lower() in ("", "y", "yes")

    def choice(self, options: Sequence[str], question: str) -> int | None:
        """Shows options, and returns which one is taken; None if the person wants to type another answer."""
        for number, option in enumerate(options, 1):
            typer.echo(f"  {number}  {printable(option)}")
        while True:
            told = input(f"{question} [1]: ").strip() or "1"
            if told == "0":
                return None
            if told.isdecimal() and 1 <= int(told) <= len(options):
                return int(told) - 1
