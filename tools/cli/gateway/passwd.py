"""``holdfast gateway passwd``: makes, changes and deletes the accounts of a gateway."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.auth.accounts import check_name, delete_account, make_account, save_account
from gateway.auth.scram import ITERATIONS, ITERATIONS_MIN
from host.errors import HostError
from tools.cli.failure import fail, failing_on


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The accounts file. It is created if there is none.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The user name of the account.")],
    scram: Annotated[bool, typer.Option(help="Whether the account may log in by SCRAM-SHA-256 too.")] = False,
    iterations: Annotated[
        int,
        typer.Option(
            min=ITERATIONS_MIN, help="How often SCRAM hashes the password: fewer for a device with a long random one."
        ),
    ] = ITERATIONS,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the account.")] = False,
) -> None:
    """Add an account or change its password: asked for twice, or read from standard input if that is a pipe."""
    if iterations != ITERATIONS and not scram:
        fail("gateway passwd", "--iterations is for SCRAM, and there is no --scram; nothing is changed")
    with failing_on(HostError, ValueError, command="gateway passwd"):
        if delete:
            _delete(file, user)
        else:
            check_name(user)
            save_account(file, make_account(user, _ask(), with_scram=scram, iterations=iterations))


def _delete(file: Path, user: str) -> None:
    if not delete_account(file, user):
        fail("gateway passwd", f"{file}: {user!r} has no account", exit_code=1)


def _ask() -> bytes:
    """Returns the new password. Raises ValueError."""
    if not sys.stdin.isatty():
        return sys.stdin.buffer.readline().removesuffix(b"\n").removesuffix(b"\r")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise ValueError("the two are not the same, nothing is changed")
    return password.encode()
