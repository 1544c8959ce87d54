"""Loads the gateway's configuration file and checks it against the machine."""

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.config.connectors import ConnectorConfig, errors_among_connectors, with_profiles
from gateway.config.errors import ConfigSource
from gateway.config.kinds import NAME_BYTES_MAX, errors_in_gateway_name
from gateway.config.multicast import errors_among
from gateway.config.network import names_twice
from gateway.config.schema import (
    GatewayConfig,
    ListenerConfig,
    SerialConfig,
    StoreConfig,
    TcpConfig,
    TlsConfig,
    UnixConfig,
    WebSocketConfig,
    store_of,
    with_taken_streams,
)
from host.errors import ConfigError
from host.files import open_file
from wire.reserved import STREAM_TOPICS

DEFAULT_PATH = Path("/etc/holdfast/gateway.toml")
TLS_FILES = ("certificate", "key", "client_ca", "client_crl")

Table = dict[str, Any]
Struct = TypeVar("Struct", bound=msgspec.Struct)


class _WithRoutes(GatewayConfig, frozen=True):
    """All tables and keys of the file."""

    route: list[Table] = msgspec.field(default_factory=list)


@dataclass
class Draft:
    """The valid part of a configuration file, so that it can be checked against the machine whatever else is wrong.

    ``config`` has an empty name or store path if the file has no valid one. ``listeners`` has the valid tables by their
    index, ``routes`` all tables without a check. Relative paths begin at the file's folder.
    """

    config: GatewayConfig
    listeners: dict[int, ListenerConfig]
    routes: list[Table]


def load(path: Path) -> tuple[GatewayConfig, list[Table]]:
    """Reads a configuration file; returns it, with relative paths made to begin at its folder and with the streams that
    were taken of neighbours, and its ``[[route]]`` tables as they are.

    Raises:
        ConfigError: the file cannot be read, or keys are unknown, missing or not as expected: one line for each.
    """
    source = ConfigSource(path)
    draft = draft_of(source)
    source.raise_errors()
    return with_taken_streams(draft.config), draft.routes


def draft_of(source: ConfigSource) -> Draft:
    """Reads the valid part of a configuration file, and adds its errors to ``source``."""
    values = source.fields(source.table, _WithRoutes)
    routes = values.pop("route", [])
    folder = source.path.parent
    found = enumerate(values.pop("listener", []))
    connectors = {number: one for number, one in enumerate(values.pop("connector", [])) if one is not None}
    if (size := len(values.get("name", "").encode())) > NAME_BYTES_MAX:
        source.add("name", f"{size} bytes, expected {NAME_BYTES_MAX} at most")
    for what in errors_in_gateway_name(values.get("name", "")):
        source.add("name", f"{what}: it is a level of topic names")
    for key in ("neighbour", "stream", "topic", "multicast"):
        values[key] = [one for one in values.pop(key, []) if one is not None]
    for number, name in names_twice(values["neighbour"]):
        source.add(f"neighbour[{number}].name", f"two neighbours are named {name!r}")
    listeners = {number: _listener_beside(folder, listener) for number, listener in found if listener is not None}
    for key, what in errors_among(values["multicast"], listeners.values()):
        source.add(key, what)
    values = {"name": "", "store": StoreConfig(""), **values}
    connectors = _connectors(source, connectors, listeners)
    config = GatewayConfig(**values, listener=list(listeners.values()), connector=list(connectors.values()))
    if config.store.path:
        config = msgspec.structs.replace(config, store=beside(folder, config.store, "path"))
    config = beside(folder, config, "accounts", "acl")
    if config.metrics is not None:
        config = msgspec.structs.replace(config, metrics=beside(folder, config.metrics, "firmware"))
    if config.page is not None and config.page.tls is not None:
        page = msgspec.structs.replace(config.page, tls=beside(folder, config.page.tls, *TLS_FILES))
        config = msgspec.structs.replace(config, page=page)
    streams = [beside(folder, one, "path") for one in config.stream]
    config = msgspec.structs.replace(config, stream=streams)
    _check_streams(source, config, listeners)
    draft = Draft(config, listeners, routes)
    has_accounts = "accounts" in source.table
    for key, what in (*_unintended_listeners(draft, has_accounts), *_unintended_page(config, has_accounts)):
        source.add(key, what)
    return draft


def _connectors(
    source: ConfigSource, connectors: dict[int, ConnectorConfig], listeners: dict[int, ListenerConfig]
) -> dict[int, ConnectorConfig]:
    """Returns the connectors with their profiles; adds an error for each that overlaps another, or cannot be."""
    connectors = with_profiles(source, connectors)
    taken = {one.device: f"listener[{number}]" for number, one in listeners.items() if isinstance(one, SerialConfig)}
    for key, what in errors_among_connectors(connectors, taken):
        source.add(key, what)
    return connectors


def _check_streams(source: ConfigSource, config: GatewayConfig, listeners: dict[int, ListenerConfig]) -> None:
    """Adds an error for each stream, or user of one, that is there twice, and for each that no table describes."""
    names: set[str] = set()
    users: dict[str, str] = {}
    folders = {os.path.realpath(config.store.path): "[store]"}
    for number, one in enumerate(config.stream):
        if one.name in names:
            source.add(f"stream[{number}].name", f"two streams are named {one.name!r}")
        names.add(one.name)
        for user in one.users:
            if users.setdefault(user, one.name) != one.name:
                source.add(f"stream[{number}].users", f"{user!r} is a user of stream {users[user]!r} already")
        folder = os.path.realpath(store_of(config, one.name).path)
        if folder in folders:
            source.add(f"stream[{number}].path", f"{folder!r}: {folders[folder]} is there already")
        folders[folder] = f"stream {one.name!r}"
    for number, limited in enumerate(config.topic):
        name = limited.filter.removeprefix(STREAM_TOPICS).partition("/")[0]
        if limited.filter.startswith(STREAM_TOPICS) and name not in names:
            source.add(f"topic[{number}].filter", f"{limited.filter!r}: no stream is named {name!r}")
    for number, listener in listeners.items():
        if listener.stream and listener.stream not in names:
            known = ", ".join(sorted(names)) or "none: there is no [[stream]]"
            source.add(f"listener[{number}].stream", f"no stream is named {listener.stream!r}, expected one of {known}")


def named_files(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yields the keys with file names in a configuration, and these files."""
    named = [("accounts", draft.config.accounts), ("acl", draft.config.acl)]
    for table, tls in tls_tables(draft):
        files = msgspec.structs.asdict(tls)
        named += [(f"{table}.{key}", files[key]) for key in TLS_FILES]
    return ((key, file) for key, file in named if file is not None)


def tls_tables(draft: Draft) -> Iterator[tuple[str, TlsConfig]]:
    """Yields the key of each table of TLS of a listener or of the status page, and the table."""
    for number, listener in draft.listeners.items():
        if isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
            yield f"listener[{number}].tls", listener.tls
    if draft.config.page is not None and draft.config.page.tls is not None:
        yield "page.tls", draft.config.page.tls


def check_readable(source: ConfigSource, named: Iterable[tuple[str, str]]) -> set[str]:
    """Adds an error for each file that cannot be read; returns their keys."""
    unreadable = set()
    for key, file in named:
        try:
            open_file(file).close()
        except ConfigError as error:
            source.add(key, str(error), may_pass=error.may_pass)
            unreadable.add(key)
    return unreadable


def beside(folder: Path, struct: Struct, *keys: str) -> Struct:
    """Returns the struct with the relative paths of these keys made to begin at a folder."""
    paths = {key: str(folder / path) for key in keys if (path := getattr(struct, key)) is not None}
    return msgspec.structs.replace(struct, **paths)


def _unintended_listeners(draft: Draft, has_accounts: bool) -> Iterator[tuple[str, str]]:
    """Yields the listeners that other machines reach without accounts, and without a word that this is meant."""
    for number, listener in draft.listeners.items():
        if not isinstance(listener, TcpConfig | WebSocketConfig):
            continue
        proxies = [key for key in ("proxy_from", "forwarded_from") if getattr(listener, key, ())]
        if proxies or not is_loopback(listener.host):
            key = proxies[0] if proxies else "host"
            why = "others connect through a proxy" if proxies else f"{listener.host!r} is not loopback"
            knows_its_clients = has_accounts or (listener.tls and listener.tls.client_ca)
            if not (listener.allow_anonymous or knows_its_clients):
                yield (
                    f"listener[{number}].{key}",
                    f"{why}: expected accounts, tls.client_ca, or "
                    "allow_anonymous = true if every client that can reach it may connect",
                )


def _unintended_page(config: GatewayConfig, has_accounts: bool) -> Iterator[tuple[str, str]]:
    """Yields what a status page lacks that other machines reach."""
    page = config.page
    if page is None or is_loopback(page.host):
        return
    if page.tls is None:
        yield "page.host", f"{page.host!r} is not loopback: expected [page.tls], as passwords go over this connection"
    if not has_accounts and (page.tls is None or page.tls.client_ca is None):
        yield (
            "page.host",
            f"{page.host!r} is not loopback: expected accounts or page.tls.client_ca, for users to log in",
        )


def is_loopback(host: str) -> bool:
    """Whether an address, or the name `localhost`, is this machine's own and cannot be reached from others."""
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


Place = tuple[str, int | str]


def check_places(source: ConfigSource, draft: Draft) -> None:
    """Adds an error for each listener with the same address, path or device as an earlier one."""
    taken: dict[Place, str] = {}
    if draft.config.metrics is not None:
        taken["127.0.0.1", draft.config.metrics.port] = "[metrics]"
    if (page := draft.config.page) is not None:
        if (page.host, page.port) in taken:
            source.add("page.port", f"{page.port}: [metrics] listens there already")
        taken[page.host, page.port] = "[page]"
    for number, listener in draft.listeners.items():
        key, place = _place_of(listener)
        if place in taken:
            source.add(f"listener[{number}].{key}", f"{place[1]!r}: {taken[place]} listens there already")
        if place[1] != 0:  # the system chooses a free port
            taken[place] = f"listener[{number}]"


def _place_of(listener: ListenerConfig) -> tuple[str, Place]:
    """Returns the key of a listener's place, and the place."""
    match listener:
        case UnixConfig():
            return "path", ("unix", listener.path)
        case SerialConfig():
            return "device", ("serial", listener.device)
        case _:
            return "port", (listener.host, listener.port)
