"""Which of a gateway's secrets other users of the machine can read, and what closes them."""

import contextlib
import grp
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.config import GatewayConfig, TcpConfig, WebSocketConfig


def exposed(config: GatewayConfig) -> Iterator[str]:
    """Yields a warning for the store's folder, and for each private key, that other users can read or change.

    An accounts file that they can read is an error of its own.
    """
    folder = Path(config.store.path)
    if folder.is_dir() and folder.stat().st_mode & 0o077:
        yield f"{folder}: other users can look into the store's folder: chmod 700 {shlex.quote(str(folder))}"
    keys = (one.tls.key for one in config.listener if isinstance(one, TcpConfig | WebSocketConfig) and one.tls)
    yield from exposed_files(keys)


def exposed_files(paths: Iterable[str]) -> Iterator[str]:
    """Yields a warning for each file that other users can read or change, with the command that ends this."""
    for path in dict.fromkeys(paths):
        try:
            status = os.stat(path)
        except OSError:
            continue  # to read it says what is wrong
        if status.st_mode & (stat.S_IWGRP | stat.S_IRWXO):
            yield f"{path}: other users can read or change it: {_command_for(path, status)}"


def writable_files(paths: Iterable[str | Path | None]) -> Iterator[str]:
    """Yields a warning for each file that every user can change, with the command that ends this."""
    for path in paths:
        with contextlib.suppress(OSError):  # to read it says what is wrong
            mode = 0 if path is None else os.stat(path).st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
                yield f"{path}: other users can change it: chmod o-w {shlex.quote(str(path))}"


def _command_for(path: str, status: os.stat_result) -> str:
    """The command after which this process can still read the file."""
    file = shlex.quote(path)
    if status.st_uid == os.geteuid():
        return f"chmod 600 {file}"
    if status.st_gid in (os.getegid(), *os.getgroups()):
        return f"chmod 640 {file}"
    return f"chgrp {grp.getgrgid(os.getegid()).gr_name} {file} && chmod 640 {file}"
