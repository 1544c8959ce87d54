"""A gateway's configuration, for `gateway run` and `gateway check-config`."""

import errno
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gateway.auth.accounts import load_accounts
from gateway.auth.rules import WATCH, load_rules
from gateway.config.connectors import command_topics
from gateway.config.errors import ConfigSource
from gateway.config.load import (
    TLS_FILES,
    Draft,
    check_places,
    check_readable,
    draft_of,
    is_loopback,
    named_files,
    tls_tables,
)
from gateway.config.schema import (
    GatewayConfig,
    TcpConfig,
    UnixConfig,
    WebSocketConfig,
    store_of,
    with_taken_streams,
)
from gateway.config.streams import FOLDER
from gateway.listeners.accept import why_no_address, why_no_socket
from gateway.listeners.newest_lists import NewestLists
from gateway.listeners.tls import load_files
from gateway.store import why_unusable
from host.errors import ConfigError
from host.mounts import why_volatile
from host.pem import validities
from tools.cli.gateway.exposure import exposed, exposed_files, writable_files
from uplink.connect import credentials
from uplink.reading import AnyRoute, check_local_users, check_streams, routes_of

MAY_PASS = (errno.EACCES, errno.ENOENT, errno.EROFS)
"""Why a path cannot be used until its disk is mounted, or mounted for writing."""


@dataclass
class Configuration:
    """A configuration with which a gateway can start.

    ``warnings`` say what should be otherwise: an event for the log, and its reason.
    """

    config: GatewayConfig
    routes: list[AnyRoute]
    warnings: list[tuple[str, str]]


def read_configuration(path: Path, text: str | None = None) -> Configuration:
    """Reads a configuration file and all files that it names, and looks at the store's folder.

    Args:
        path: the file.
        text: what is in it, where it has been read.

    Raises:
        ConfigError: a gateway cannot start with it; a line for each thing that is wrong.
    """
    source = ConfigSource(path, text)
    draft = draft_of(source)
    routes = routes_of(source, draft.routes)
    _check_files(source, draft)
    credentials.check(source, routes)
    streams = [one.name for one in draft.config.stream]
    check_streams(source, routes, streams)
    check_local_users(source, routes, has_rules=draft.config.acl is not None)
    check_places(source, draft)
    _check_addresses(source, draft)
    _check_store(source, draft)
    source.raise_errors()
    config, served = draft.config, list(routes.values())
    return Configuration(config, served, _warnings(path, config, served))


def wants_json(text: str) -> bool:
    """Whether a configuration file asks for a log in JSON, also where it is wrong otherwise."""
    try:
        log = tomllib.loads(text).get("log")
        return isinstance(log, dict) and log.get("format") == "json"
    except tomllib.TOMLDecodeError:
        return bool(re.search(r"""^\s*(log\.)?format\s*=\s*["']json["']""", text, re.MULTILINE))


def changed_keys(before: Configuration, after: Configuration) -> list[str]:
    """Returns the keys whose values are not the same in two configurations."""
    return list(_changed(_tables_of(before), _tables_of(after), ""))


def _tables_of(configuration: Configuration) -> dict[str, Any]:
    tables: dict[str, Any] = msgspec.to_builtins(configuration.config)
    return tables | {"route": msgspec.to_builtins(configuration.routes)}


def _changed(before: Any, after: Any, key: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            yield from _changed(before.get(name), after.get(name), f"{key}.{name}" if key else name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changed(old, new, f"{key}[{number}]")
    elif before != after:
        yield key


def _check_files(source: ConfigSource, draft: Draft) -> None:
    unreadable = check_readable(source, named_files(draft))
    config = draft.config
    for key, file, read in (("accounts", config.accounts, load_accounts), ("acl", config.acl, load_rules)):
        if file is not None and key not in unreadable:
            try:
                read(Path(file))
            except ConfigError as error:
                source.include(key, error)
    for key, tls in tls_tables(draft):
        if unreadable.isdisjoint(f"{key}.{file}" for file in TLS_FILES):
            try:
                _, lists = load_files(tls)
                if tls.client_crl is not None and config.store.path:
                    NewestLists(Path(config.store.path)).check(tls.client_crl, lists)
            except ConfigError as error:
                source.add(key, str(error), may_pass=error.may_pass)


def _may_be_watched(config: GatewayConfig) -> bool:
    """Whether a visitor of the status page may be allowed to look."""
    if config.acl is not None:
        return any(rule.allows and WATCH in rule.actions for rule in load_rules(Path(config.acl)))
    return config.accounts is None and (config.page is None or is_loopback(config.page.host))


def _check_addresses(source: ConfigSource, draft: Draft) -> None:
    """Does not check whether a port is in use: a running gateway uses its own."""
    if draft.config.page is not None and (why := why_no_address(draft.config.page.host)):
        source.add("page.host", f"{draft.config.page.host!r}: {why}", may_pass=True)
    for number, listener in draft.listeners.items():
        if isinstance(listener, TcpConfig | WebSocketConfig) and (why := why_no_address(listener.host)):
            source.add(f"listener[{number}].host", f"{listener.host!r}: {why}", may_pass=True)  # not up yet
        elif isinstance(listener, UnixConfig) and (error := why_no_socket(listener.path)):
            _add_path(source, f"listener[{number}].path", error)


def _add_path(source: ConfigSource, key: str, why: OSError) -> None:
    source.add(key, f"{why.filename}: {why.strerror}", may_pass=why.errno in MAY_PASS)


def _check_store(source: ConfigSource, draft: Draft) -> None:
    folders: dict[str, str | None] = {"store.path": draft.config.store.path}
    folders |= {f"stream[{number}].path": one.path for number, one in enumerate(draft.config.stream)}
    for key, folder in folders.items():
        if folder and (error := why_unusable(Path(folder))):
            _add_path(source, key, error)
        elif folder and not draft.config.store.volatile and (why := why_volatile(Path(folder))):
            source.add(
                key, f"{folder}: on {why}. So no acknowledgement would hold; volatile = true in [store] allows it"
            )


def _warnings(path: Path, config: GatewayConfig, routes: list[AnyRoute]) -> list[tuple[str, str]]:
    warnings = [
        ("a secret is open to others", reason)
        for reason in (*exposed(config), *exposed_files(credentials.private_keys(routes)))
    ]
    warnings += [("a rule is open to others", reason) for reason in writable_files([path, config.acl])]
    now = datetime.now(UTC)
    shown: list[tuple[str, str | None]] = []
    for tls in (one.tls for one in config.listener if isinstance(one, TcpConfig | WebSocketConfig) and one.tls):
        shown.append(("clients refuse a certificate", tls.certificate))
        shown.append(("no client with a certificate gets in", tls.client_crl))
    if config.page is not None and config.page.tls is not None:
        shown.append(("browsers refuse a certificate", config.page.tls.certificate))
        shown.append(("the status page lets in no user with a certificate", config.page.tls.client_crl))
    shown += [("a broker refuses a route's certificate", one.tls.certificate) for one in routes if one.tls]
    found = [(event, one) for event, file in shown if file for one in validities(file)]
    warnings += [(event, reason) for event, one in found if (reason := one.problem(now))]
    warnings += [("a certificate ends soon", reason) for _, one in found if (reason := one.note(now))]
    taken = with_taken_streams(config)
    served = {os.path.realpath(store_of(taken, one.name).path) for one in taken.stream}
    for path in sorted(Path(config.store.path, FOLDER).glob("*/messages.sqlite")):
        if os.path.realpath(path.parent) not in served:
            text = f"{path.parent}: what is stored there waits until there is a [[stream]] for it, or path names it"
            warnings.append(("a stream's store is not used", text))
    if config.metrics is not None and config.metrics.firmware is not None:
        folder = config.metrics.firmware
        what = "every user of this machine can read it at /firmware/, with the passwords of its device"
        there = Path(folder, "manifest.json").is_file()
        warnings.append(("firmware is served", f"{folder}: {what if there else 'there is no such page'}"))
    if config.page is not None and not _may_be_watched(config):
        reason = "no access rule lets a user watch, as allow NAME watch * does: every visitor is refused"
        warnings.append(("the status page is shown to no user", reason))
    if config.acl is None:
        for one in config.connector:
            for topic in command_topics(one):
                reason = f"connector {one.name}: there are no access rules (acl) for {topic}"
                warnings.append(("every client may set values of a unit", reason))
    if not config.listener:
        warnings.append(("no client can connect", "there is no [[listener]]"))
    return warnings
