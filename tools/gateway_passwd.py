"""``holdfast gateway passwd``: makes, changes and deletes the accounts of a gateway."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.accounts import check_name, delete_account, make_account, save_account
from gateway.errors import GatewayError
from gateway.scram import ITERATIONS, ITERATIONS_MIN
from tools.failure import fail, failing_on


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The accounts file; it is made where there is none.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="The account's name.")],
    scram: Annotated[bool, typer.Option(help="Let it log in by SCRAM-SHA-256 as well.")] = False,
    iterations: Annotated[
        int,
        typer.Option(
            min=ITERATIONS_MIN, help="Of the keys for SCRAM: fewer for a device, with a long random password."
        ),
    ] = ITERATIONS,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the account.")] = False,
) -> None:
    """Give USER a new password, asked for twice, or read as one line where standard input is no terminal."""
    with failing_on(GatewayError, ValueError, command="gateway passwd"):
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
