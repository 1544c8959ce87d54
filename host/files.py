"""The files that a configuration or an option names: opened without blocking, and secrets that are for few eyes."""

import fcntl
import os
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from host.errors import ConfigError

PASSWORD_BYTES_MAX = 65_535  # [section 3.1.3.6]
SECRET_MODE = 0o600
LOCK_FILE = ".lock"
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


def write_no_bytecode() -> None:
    """Keeps Python from writing the modules to disk that it loads from now on.

    On a full disk, Python before 3.13.1 writes a part of a module, and no later start can read it (python/cpython,
    issue 126606). What runs for long loads some modules while its disk is full.
    """
    sys.dont_write_bytecode = True


def open_lock(path: Path) -> int:
    """Opens a file to be locked, which is made if it is not there; returns its descriptor.

    Its owner closes it to others: a user who can open a file for reading can lock it, and keep it. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, SECRET_MODE)
    return descriptor


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other programs from changing the files of a folder that take this lock too.

    The lock is on a file of its own, closed to each user who may not change the folder: a user who can open a file or a
    folder for reading can lock it, and so could keep all others waiting. A folder in which all users may write, such as
    /tmp, gets no such file; there the folder itself is locked. Raises OSError.
    """
    descriptor = _open_lock(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_new(path: Path, content: bytes, mode: int = SECRET_MODE) -> None:
    """Writes a file that does not exist yet, and syncs it. It never has wider permissions than ``mode``.

    Raises OSError; then the file is gone again.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink()
        error.filename = error.filename or str(path)  # a descriptor has no name
        raise


def replace_file(path: Path, content: bytes, mode: int = SECRET_MODE) -> None:
    """Replaces a file atomically and syncs it: a reader sees the old or the new one, whole.

    Owner, group and permissions stay; a new file has ``mode``. The caller has locked its folder. Raises OSError; then
    the file is as it was.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # of a process that was killed
    write_new(new, content)
    try:
        before = path.stat() if path.exists() else None
        if before is not None:
            os.chown(new, before.st_uid, before.st_gid)
        os.chmod(new, mode if before is None else stat.S_IMODE(before.st_mode))
        os.replace(new, path)
        sync_folder(path.parent)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Makes the names of the files in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_lock(folder: Path) -> int:
    """Opens what to lock for a folder. The file has the folder's owner and group, also if root makes it."""
    about = folder.stat()
    if about.st_mode & stat.S_IWOTH:
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(folder / LOCK_FILE, flags)
    descriptor = os.open(folder / LOCK_FILE, flags | os.O_CREAT, SECRET_MODE)
    with suppress(PermissionError):
        os.fchown(descriptor, -1 if os.geteuid() else about.st_uid, about.st_gid)
        if about.st_mode & stat.S_IWGRP:
            os.fchmod(descriptor, SECRET_MODE | stat.S_IRGRP | stat.S_IWGRP)
    return descriptor


def _read(file: BinaryIO, path: str | Path, bytes_max: int = -1) -> bytes:
    try:
        return file.read(bytes_max)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
