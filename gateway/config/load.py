"""The gateway's configuration file: read, and held against what is on this machine."""

import ipaddress
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from gateway.config import (
    NAME_BYTES_MAX,
    GatewayConfig,
    ListenerConfig,
    StoreConfig,
    TcpConfig,
    UnixConfig,
    WebSocketConfig,
)
from gateway.config_errors import ConfigSource
from gateway.errors import ConfigError

DEFAULT_PATH = Path("/etc/holdfast/gateway.toml")
TLS_FILES = ("certificate", "key", "client_ca", "client_crl")

Table = dict[str, Any]
Struct = TypeVar("Struct", bound=msgspec.Struct)


class _WithRoutes(GatewayConfig, frozen=True):
    """All that may stand in the file."""

    route: list[Table] = msgspec.field(default_factory=list)


@dataclass
class Draft:
    """What is right in a configuration file, so that this can be held against the machine whatever else is wrong.

    ``config`` has an empty name or store where there is none that is right. ``listeners`` and ``routes`` have the
    tables that are right by their numbers; routes are not looked into. Relative paths start at the file's folder.
    """

    config: GatewayConfig
    listeners: dict[int, ListenerConfig]
    routes: list[Table]


def load(path: Path) -> tuple[GatewayConfig, list[Table]]:
    """Reads a configuration file; returns it, its relative paths made to start at the file's folder, and its
    ``[[route]]`` tables as they stand there.

    Raises:
        ConfigError: the file cannot be read, or keys are unknown, missing or not as expected: a line for each.
    """
    source = ConfigSource(path)
    draft = draft_of(source)
    source.raise_errors()
    return draft.config, draft.routes


def draft_of(source: ConfigSource) -> Draft:
    """Reads what is right in a configuration file, and notes in it what is wrong."""
    values = source.fields(source.table, _WithRoutes)
    routes = values.pop("route", [])
    folder = source.path.parent
    found = enumerate(values.pop("listener", []))
    if (size := len(values.get("name", "").encode())) > NAME_BYTES_MAX:
        source.add("name", f"{size} bytes, expected {NAME_BYTES_MAX} at most")
    listeners = {number: _listener_beside(folder, listener) for number, listener in found if listener is not None}
    values = {"name": "", "store": StoreConfig(""), **values}
    config = GatewayConfig(**values, listener=list(listeners.values()))
    if config.store.path:
        config = msgspec.structs.replace(config, store=beside(folder, config.store, "path"))
    config = beside(folder, config, "accounts", "acl")
    draft = Draft(config, listeners, routes)
    for key, what in _strangers_welcome(draft, "accounts" in source.table):
        source.add(key, what)
    return draft


def named_files(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yields the files that a configuration names, by their keys."""
    named = [("accounts", draft.config.accounts), ("acl", draft.config.acl)]
    for number, listener in draft.listeners.items():
        if isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
            tls = msgspec.structs.asdict(listener.tls)
            named += [(f"listener[{number}].tls.{key}", tls[key]) for key in TLS_FILES]
    return ((key, file) for key, file in named if file is not None)


def check_readable(source: ConfigSource, named: Iterable[tuple[str, str]]) -> set[str]:
    """Notes the files that cannot be read, by their keys; returns these keys."""
    unreadable = set()
    for key, file in named:
        try:
            open_file(file).close()
        except ConfigError as error:
            source.add(key, str(error))
            unreadable.add(key)
    return unreadable


def open_file(path: str | Path) -> BinaryIO:
    """Opens a file that a configuration names. It never waits, as to open a FIFO would.

    Raises:
        ConfigError: it cannot be read, or is no regular file.
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
    """Returns what is in a file that a configuration names. Raises ConfigError."""
    with open_file(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error


def beside(folder: Path, struct: Struct, *keys: str) -> Struct:
    """The same with the paths of these keys, where they are relative, beginning at a folder."""
    paths = {key: str(folder / path) for key in keys if (path := getattr(struct, key)) is not None}
    return msgspec.structs.replace(struct, **paths)


def _strangers_welcome(draft: Draft, has_accounts: bool) -> Iterator[tuple[str, str]]:
    """The listeners that strangers reach though nothing says so."""
    for number, listener in draft.listeners.items():
        if isinstance(listener, TcpConfig | WebSocketConfig) and not _is_loopback(listener.host):
            knows_its_clients = has_accounts or (listener.tls and listener.tls.client_ca)
            if not (listener.allow_anonymous or knows_its_clients):
                yield (
                    f"listener[{number}].host",
                    f"{listener.host!r} is not loopback: expected accounts, tls.client_ca, or "
                    "allow_anonymous = true if everybody who can reach it may connect",
                )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listener_beside(folder: Path, listener: ListenerConfig) -> ListenerConfig:
    if isinstance(listener, UnixConfig):
        return beside(folder, listener, "path")
    if isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
        return msgspec.structs.replace(listener, tls=beside(folder, listener.tls, *TLS_FILES))
    return listener
