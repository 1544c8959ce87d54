"""Who may log in: the accounts file, one account a line, ``name:password hash`` or ``name:password hash:SCRAM keys``.

There is no account unless somebody has made it, and no file names a password.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config_file import open_file
from gateway.errors import ConfigError
from gateway.password import PASSWORD_SIZE_MAX, PREFIX, hash_password
from gateway.scram import ITERATIONS, ScramKeys, decode_keys, make_keys

NAME_SIZE_MAX = 256  # characters
RESERVED_NAMES = ("*", "-")  # what the access rules call everybody and nobody
TOO_OPEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


@dataclass(slots=True, frozen=True)
class Account:
    """One user: ``password_hash`` is Argon2id's, ``scram`` the keys of SCRAM where it may use that."""

    name: str
    password_hash: str = field(repr=False)
    scram: ScramKeys | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.name}:{self.password_hash}" + (f":{self.scram}" if self.scram else "")


class Accounts:
    """The accounts of one file.

    Raises:
        ConfigError: the file cannot be read, a line is no account, or others may read or change the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._accounts = load_accounts(path)

    def get(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def reload(self) -> set[str]:
        """Reads the file again; returns the names whose account is gone or another. On ConfigError all stays."""
        before, self._accounts = self._accounts, load_accounts(self._path)
        return {name for name, account in before.items() if self._accounts.get(name) != account}


def load_accounts(path: Path) -> dict[str, Account]:
    """Reads an accounts file. Raises ConfigError, which names each line that is wrong, on one of its own."""
    try:
        with open_file(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().decode().replace("\r\n", "\n").split("\n")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8") from error
    if mode & TOO_OPEN:
        raise ConfigError(f"{path}: others may read or change it; expected the permissions 0600 or 0640")
    accounts: dict[str, Account] = {}
    errors: list[str] = []
    for number, line in enumerate(lines, 1):
        if not _is_account(line):
            continue
        try:
            account = _decode(line)
        except ValueError as error:
            errors.append(f"{path}:{number}: {error}")
            continue
        if account.name in accounts:
            errors.append(f"{path}:{number}: {account.name!r} has an account already")
        accounts[account.name] = account
    if errors:
        raise ConfigError("\n".join(errors))
    return accounts


def check_name(name: str) -> None:
    """Raises ValueError unless an account may have this name."""
    if not name or name in RESERVED_NAMES or len(name) > NAME_SIZE_MAX:
        raise ValueError(f"no account can be called {name!r}")
    if ":" in name or name.startswith("#") or name != name.strip() or not name.isprintable():
        raise ValueError(f"{name!r}: a name has no colon, control character or blank at its ends, nor # before it")


def make_account(name: str, secret: bytes, *, with_scram: bool, iterations: int = ITERATIONS) -> Account:
    """Makes an account of a new password; ``iterations`` are those of its keys for SCRAM.

    Raises ValueError when name or password cannot be used.
    """
    check_name(name)
    if not 0 < len(secret) <= PASSWORD_SIZE_MAX:
        raise ValueError(f"a password has 1 to {PASSWORD_SIZE_MAX} bytes")
    keys = make_keys(secret, iterations) if with_scram else None
    return Account(name, hash_password(secret), keys)


def save_account(path: Path, account: Account) -> None:
    """Puts an account into the file, in the place of the one of this name; makes the file where there is none.

    Raises:
        ConfigError: the file cannot be read or written, or is no accounts file.
    """

    def change(lines: list[str]) -> list[str]:
        places = [place for place, line in enumerate(lines) if _name(line) == account.name]
        return [*lines, str(account)] if not places else [*lines[: places[0]], str(account), *lines[places[0] + 1 :]]

    _edit(path, change)


def delete_account(path: Path, name: str) -> bool:
    """Takes an account out of the file; returns whether there was one. Raises ConfigError."""
    found = name in load_accounts(path)
    _edit(path, lambda lines: [line for line in lines if _name(line) != name])
    return found


def _edit(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Replaces the file by its changed self at once: whoever reads it sees the old or the new one, whole."""
    path = path.resolve()
    try:
        with _locked(path.parent) as folder:
            lines = []
            if path.exists():
                load_accounts(path)
                lines = path.read_text("utf-8").removesuffix("\n").split("\n")
            _replace(path, "".join(f"{line}\n" for line in change(lines)))
            os.fsync(folder)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if path.exists():
                before = path.stat()
                os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except OSError:
        os.unlink(new)
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_account(line: str) -> bool:
    return bool(line) and not line.startswith("#")


def _name(line: str) -> str:
    return line.partition(":")[0] if _is_account(line) else ""


def _decode(line: str) -> Account:
    name, *secrets = line.split(":")
    check_name(name)
    if not 1 <= len(secrets) <= 2 or not secrets[0].startswith(PREFIX):
        of_mosquitto = len(secrets) == 1 and secrets[0].startswith(("$6$", "$7$"))
        raise ValueError(
            "expected 'name:password hash' as 'holdfast gateway passwd' writes it"
            + (": a hash of mosquitto's is of no use here, docs/how-to/mosquitto.md" if of_mosquitto else "")
        )
    try:
        keys = decode_keys(secrets[1]) if secrets[1:] else None
    except ValueError:
        raise ValueError(f"the SCRAM keys of {name!r} cannot be read") from None
    return Account(name, secrets[0], keys)
