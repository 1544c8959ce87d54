"""The accounts file: one account for each line, ``name:password hash`` or ``name:password hash:SCRAM keys``.

The gateway comes without accounts, and no file has a password.

Passwords are hashed with Argon2id [RFC 9106]: at the same resistance it takes a tenth of scrypt's time, and its memory
and its time can be chosen separately. 12 MiB and three passes make guesses expensive, and still let a small board check
the logins of all devices at once after a power cut.
"""

import base64
import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.auth.scram import ITERATIONS, ScramKeys, decode_keys, make_keys
from host.errors import ConfigError
from host.files import locked, read_secret, replace_file

NAME_SIZE_MAX = 256  # characters
RESERVED_NAMES = ("*", "-")  # the access rules use them for all clients and for clients without a user
MEMORY_KIB = 12 * 1024
PASSES = 3
SALT_SIZE, HASH_SIZE = 16, 32  # bytes
PASSWORD_SIZE_MAX = 1024  # bytes; a client cannot make the gateway keep or hash more
PREFIX = "$argon2id$"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@dataclass(slots=True, frozen=True)
class Account:
    """One account: ``password_hash`` is of Argon2id, ``scram`` has the SCRAM keys of a user with SCRAM."""

    name: str
    password_hash: str = field(repr=False)
    scram: ScramKeys | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.name}:{self.password_hash}" + (f":{self.scram}" if self.scram else "")


class Accounts:
    """The accounts of one file.

    Raises:
        ConfigError: the file cannot be read, a line is not an account, or other users may read or change the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._accounts = load_accounts(path)

    def get(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def reload(self) -> set[str]:
        """Reads the file again; returns the names of removed and changed accounts. On ConfigError nothing changes."""
        before, self._accounts = self._accounts, load_accounts(self._path)
        return {name for name, account in before.items() if self._accounts.get(name) != account}


def load_accounts(path: Path) -> dict[str, Account]:
    """Reads an accounts file. Raises ConfigError with a line of text for each line that is wrong."""
    try:
        lines = read_secret(path).decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8") from error
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
    """Makes an account with a new password; ``iterations`` is for its SCRAM keys.

    Raises ValueError if the name or the password cannot be used.
    """
    check_name(name)
    if not 0 < len(secret) <= PASSWORD_SIZE_MAX:
        raise ValueError(f"a password has 1 to {PASSWORD_SIZE_MAX} bytes")
    keys = make_keys(secret, iterations) if with_scram else None
    return Account(name, hash_password(secret), keys)


def save_account(path: Path, account: Account) -> None:
    """Writes an account to the file, in place of the one with this name; makes the file if it is missing.

    Raises:
        ConfigError: the file cannot be read or written, or is not an accounts file.
    """

    def change(lines: list[str]) -> list[str]:
        places = [place for place, line in enumerate(lines) if _name(line) == account.name]
        return [*lines, str(account)] if not places else [*lines[: places[0]], str(account), *lines[places[0] + 1 :]]

    _edit(path, change)


def delete_account(path: Path, name: str) -> bool:
    """Removes an account from the file; returns whether there was one. Raises ConfigError."""
    found = name in load_accounts(path)
    _edit(path, lambda lines: [line for line in lines if _name(line) != name])
    return found


def _edit(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Replaces the file by a changed one atomically: a reader sees the old or the new one, whole."""
    path = path.resolve()
    try:
        with locked(path.parent):
            lines = []
            if path.exists():
                load_accounts(path)
                lines = path.read_text("utf-8").removesuffix("\n").split("\n")
            replace_file(path, "".join(f"{line}\n" for line in change(lines)).encode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


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


def hash_password(password: bytes) -> str:
    """Returns a new hash, with its parameters and its own salt; blocks for some ten milliseconds."""
    from argon2.low_level import Type, hash_secret  # a gateway without accounts does not need it

    salt = os.urandom(SALT_SIZE)
    return hash_secret(password, salt, PASSES, MEMORY_KIB, 1, HASH_SIZE, Type.ID).decode()


def unmatchable_hash() -> str:
    """Returns a hash that no password has; a comparison with it takes as long as with any other."""
    salt, digest = (base64.b64encode(os.urandom(size)).decode().rstrip("=") for size in (SALT_SIZE, HASH_SIZE))
    return f"{PREFIX}v=19$m={MEMORY_KIB},t={PASSES},p=1${salt}${digest}"


def is_password(password: bytes, password_hash: str) -> bool:
    """Whether a password has this hash; blocks for some ten milliseconds, whatever the answer."""
    from argon2.exceptions import InvalidHashError, VerificationError
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(password_hash.encode(), password, Type.ID)
    except (VerificationError, InvalidHashError):
        return False


def keep_memory_apart() -> None:
    """Makes glibc return the memory of hashes to the system; by default it would keep as much for each thread.

    Its thresholds grow with the sizes that a process frees. Here they are fixed at half of a hash's memory.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, MEMORY_KIB * 1024 // 2)
        mallopt(M_TRIM_THRESHOLD, MEMORY_KIB * 1024)
