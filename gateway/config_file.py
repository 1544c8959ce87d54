"""The gateway's configuration file: read, and held against what is on this machine."""

import ipaddress
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from gateway.config import GatewayConfig, ListenerConfig, TcpConfig, UnixConfig, WebSocketConfig
from gateway.config_errors import from_syntax, from_validation, located
from gateway.errors import ConfigError

DEFAULT_PATH = Path("/etc/holdfast/gateway.toml")
TLS_FILES = ("certificate", "key", "client_ca", "client_crl")

Table = dict[str, Any]
Struct = TypeVar("Struct", bound=msgspec.Struct)


class _Routes(msgspec.Struct):
    route: list[Table]


class _WithRoutes(GatewayConfig, frozen=True):
    """All that may stand in the file."""

    route: list[Table] = msgspec.field(default_factory=list)


def load(path: Path) -> tuple[GatewayConfig, list[Table]]:
    """Reads a configuration file; returns it, its relative paths made to start at the file's folder, and its
    ``[[route]]`` tables as they stand there.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown, missing or not as expected.
    """
    try:
        text = path.read_text("utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise from_syntax(path, text, error) from error
    try:
        routes = msgspec.convert({"route": table.pop("route", [])}, _Routes).route
        config = msgspec.convert(table, GatewayConfig)
    except msgspec.ValidationError as error:
        raise from_validation(path, error, _WithRoutes, table) from error
    for key, what in _strangers_welcome(config):
        raise located(path, key, what)
    return _all_beside(path.parent, config), routes


def check_files(path: Path, config: GatewayConfig) -> None:
    """Raises ConfigError for the first file that a configuration names and that cannot be read."""
    named = [("accounts", config.accounts), ("acl", config.acl)]
    for number, listener in enumerate(config.listener):
        if isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
            tls = msgspec.structs.asdict(listener.tls)
            named += [(f"listener[{number}].tls.{key}", tls[key]) for key in TLS_FILES]
    check_readable(path, named)


def check_readable(path: Path, named: Iterable[tuple[str, str | None]]) -> None:
    """Raises ConfigError for the first of some keys whose file cannot be read."""
    for key, file in named:
        try:
            if file is not None:
                open_file(file).close()
        except ConfigError as error:
            raise located(path, key, str(error)) from error


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


def _strangers_welcome(config: GatewayConfig) -> Iterator[tuple[str, str]]:
    """The listeners that strangers reach though nothing says so."""
    for number, listener in enumerate(config.listener):
        if isinstance(listener, TcpConfig | WebSocketConfig) and not _is_loopback(listener.host):
            knows_its_clients = config.accounts or (listener.tls and listener.tls.client_ca)
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


def _all_beside(folder: Path, config: GatewayConfig) -> GatewayConfig:
    listeners: list[ListenerConfig] = []
    for listener in config.listener:
        if isinstance(listener, UnixConfig):
            listener = beside(folder, listener, "path")
        elif isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
            tls = beside(folder, listener.tls, *TLS_FILES)
            listener = msgspec.structs.replace(listener, tls=tls)
        listeners.append(listener)
    store = beside(folder, config.store, "path")
    config = msgspec.structs.replace(config, store=store, listener=listeners)
    return beside(folder, config, "accounts", "acl")
