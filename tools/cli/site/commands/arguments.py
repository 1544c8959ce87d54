"""What the commands of ``holdfast site`` have in common: the folder of the site, and the passphrase of its key."""

import getpass
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from host.errors import HostError
from tools.cli.failure import complain, failing_on
from tools.cli.site.errors import SiteError
from tools.cli.site.site import Site

DEFAULT_FOLDER = Path("site")
PASSPHRASE_BYTES_MAX = 1024

SiteFolder = Annotated[Path, typer.Option("--site", metavar="DIR", help="The site's folder.")]
PassphraseFd = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="The file descriptor with the passphrase of the site key on one line; else it is asked.",
    ),
]


@contextmanager
def opened(command: str, folder: Path, passphrase_fd: int | None = None) -> Iterator[Site]:
    """Opens a site for a command, which ends with 2 if something of it cannot be used, and says what was put right."""
    with failing(command):
        site = Site.open(folder, lambda: passphrase_from(passphrase_fd))
        try:
            yield site
        finally:
            for note in site.notes:
                complain(command, note)


def failing(command: str) -> AbstractContextManager[None]:
    """Has the errors of a site end a command with 2."""
    return failing_on(HostError, OSError, sqlite3.Error, command=command)


def passphrase_from(descriptor: int | None, *, again: bool = False) -> bytes:
    """Returns the passphrase of the site key: from a file descriptor, from the terminal or from standard input.

    Args:
        descriptor: the file descriptor; None for the others.
        again: whether a terminal is asked twice.

    Raises:
        SiteError: there is none, or the two are not the same.
    """
    if descriptor is not None:
        try:
            with open(descriptor, "rb", closefd=False) as file:
                return _line(file.readline)
        except OSError as error:
            raise SiteError(f"--passphrase-fd {descriptor}: {error.strerror}") from error
    if not sys.stdin.isatty():
        return _line(sys.stdin.buffer.readline)
    passphrase = getpass.getpass("Passphrase of the site key: ")
    if again and getpass.getpass("Again: ") != passphrase:
        raise SiteError("the two are not the same, nothing is made")
    if not passphrase:
        raise SiteError("expected a passphrase")
    return passphrase.encode()


def _line(read: Callable[[int], bytes]) -> bytes:
    line = read(PASSPHRASE_BYTES_MAX + 2).removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(line) <= PASSPHRASE_BYTES_MAX:
        raise SiteError(f"expected the passphrase of the site key, one line of at most {PASSPHRASE_BYTES_MAX} bytes")
    return line


def shown(path: Path) -> str:
    """Returns a path as a user reads it: from the current folder, if it is below that."""
    here = Path(os.getcwd()).resolve()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
