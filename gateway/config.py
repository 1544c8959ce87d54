"""The gateway's configuration file: what may stand in it and what it means."""

import ipaddress
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gateway.errors import ConfigError

Table = dict[str, Any]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class TcpConfig(msgspec.Struct, tag_field="kind", tag="tcp", forbid_unknown_fields=True, frozen=True):
    """A TCP port on which clients connect.

    ``host`` is the address to listen on, ``port`` the TCP port, 0 for one that is free.
    ``allow_anonymous`` says in words that clients need no account; an address that is not loopback requires it.
    """

    host: NonEmpty = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 1883
    allow_anonymous: bool = False

    def __post_init__(self) -> None:
        if not self.allow_anonymous and not _is_loopback(self.host):
            text = "set allow_anonymous = true if everybody who can reach it may connect"
            raise ValueError(f"host {self.host!r} is not loopback: {text}")


class SerialConfig(msgspec.Struct, tag_field="kind", tag="serial", forbid_unknown_fields=True, frozen=True):
    """A serial line with one device at its other end.

    ``device`` is the path of the serial port, ``baud`` its speed in bits per second.
    """

    device: NonEmpty
    baud: Annotated[int, msgspec.Meta(ge=1)] = 115_200


class StoreConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where messages are kept.

    ``path`` is the store's folder; a relative one starts at the configuration file's folder.
    ``commit_interval_ms`` is the shortest time between two commits: 0 is fastest, more wears an SD card less.
    """

    path: NonEmpty
    commit_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0


class GatewayConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file, but for its ``[[route]]`` tables.

    ``name`` is the gateway's name, the origin of the identities that it gives: it never changes in a gateway's life.
    ``store`` and ``listener`` are the tables above.
    """

    name: NonEmpty
    store: StoreConfig
    listener: list[TcpConfig | SerialConfig] = []


class _Routes(msgspec.Struct):
    route: list[Table]


def load(path: Path) -> tuple[GatewayConfig, list[Table]]:
    """Reads a configuration file; returns it and its ``[[route]]`` tables as they stand there.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown, missing or not as expected.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
        routes = msgspec.convert({"route": table.pop("route", [])}, _Routes).route
        config = msgspec.convert(table, GatewayConfig)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain(str(error))}") from error
    store = msgspec.structs.replace(config.store, path=str(path.parent / config.store.path))
    return msgspec.structs.replace(config, store=store), routes


def explain(error: str) -> str:
    """Turns msgspec's words into the file's own: the full key first, then what is wrong with it."""
    what, _, where = error.partition(" - at `$")
    where = where.rstrip("`").lstrip(".")
    if key := re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", what):
        where = f"{where}.{key[2]}".lstrip(".")
        what = "unknown key" if key[1] == "contains unknown" else "missing"
    if where.endswith(".kind"):
        what += ', expected "tcp" or "serial"'
    return f"{where}: {what}" if where else what


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
