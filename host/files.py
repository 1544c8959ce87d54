"""The files that a configuration or an option names: opened without blocking, and secrets that are for few eyes."""

import os
import stat
from codecs import BOM_UTF8
from pathlib import Path
from typing import BinaryIO

from host.errors import ConfigError

PASSWORD_BYTES_MAX = 65_535  # [section 3.1.3.6]
TOO_OPEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def open_file(path: str | Path) -> BinaryIO:
    """Opens a regular file for reading. It never blocks, as opening a FIFO would.

    Raises:
        ConfigError: it cannot be read, or is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{path}: expected a regular file")
    return os.fdopen(descriptor, "rb")


def read_file(path: str | Path) -> bytes:
    """Returns the contents of a file. Raises ConfigError."""
    with open_file(path) as file:
        return _read(file, path)


def read_secret(path: str | Path, bytes_max: int = -1) -> bytes:
    """Returns the first bytes of a file with secrets, all by default.

    Raises:
        ConfigError: it cannot be read, or other users may read or change it.
    """
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_mode & TOO_OPEN:
            raise ConfigError(f"{path}: others may read or change it; expected the permissions 0600 or 0640")
        return _read(file, path, bytes_max)


def read_password(path: str | Path) -> bytes:
    """Returns the password in a file with one line, which ends as it likes. Raises ConfigError."""
    content = read_secret(path, len(BOM_UTF8) + PASSWORD_BYTES_MAX + len(b"\r\n\n"))
    password = content.removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(password) <= PASSWORD_BYTES_MAX or b"\n" in password:
        raise ConfigError(f"{path}: expected a password on one line, of at most {PASSWORD_BYTES_MAX} bytes")
    return password


def _read(file: BinaryIO, path: str | Path, bytes_max: int = -1) -> bytes:
    try:
        return file.read(bytes_max)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
