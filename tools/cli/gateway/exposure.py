"""Warnings about files of the gateway that other users of the machine can read or change."""

import contextlib
import grp
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.config.schema import GatewayConfig, TcpConfig, WebSocketConfig


def exposed(config: GatewayConfig) -> Iterator[str]:
    """Yields a warning for the store's folder, and for each private key, that other users can read or change.

    An accounts file, or a route's password, that they can read is an error, not a warning.
    """
    folder = Path(config.store.path)
    if folder.is_dir() and folder.stat().st_mode & 0o077:
        yield f"{folder}: other users can look into the store's folder: chmod 700 {shlex.quote(str(folder))}"
    keys = [one.tls.key for one in config.listener if isinstance(one, TcpConfig | WebSocketConfig) and one.tls]
    keys += [config.page.tls.key] if config.page is not None and config.page.tls is not None else []
    yield from exposed_files(keys)


def exposed_files(paths: Iterable[str]) -> Iterator[str]:
    """Yields a warning for each file that other users can read or change, with the command that prevents it."""
    for path in dict.fromkeys(paths):
        try:
            status = os.stat(path)
        except OSError:
            continue  # reading it reports the error
        if status.st_mode & (stat.S_IWGRP | stat.S_IRWXO):
            yield f"{path}: other users can read or change it: {_command_for(path, status)}"


def writable_files(paths: Iterable[str | Path | None]) -> Iterator[str]:
    """Yields a warning for each file that every user can change, with the command that prevents it."""
    for path in paths:
        with contextlib.suppress(OSError):  # reading it reports the error
            mode = 0 if path is None else os.stat(path).st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
                yield f"{path}: other users can change it: chmod o-w {shlex.quote(str(path))}"


def _command_for(path: str, status: os.stat_result) -> str:
    """Returns the command that closes a file to other users and still lets this process read it."""
    file = shlex.quote(path)
    if status.st_uid == os.geteuid():
        return f"chmod 600 {file}"
    if status.st_gid in (os.getegid(), *os.getgroups()):
        return f"chmod 640 {file}"
    return f"chgrp {_own_group()} {file} && chmod 640 {file}"


def _own_group() -> str:
    """Returns the name of this process's group; its number if it has no name, as in many containers."""
    group = os.getegid()
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
