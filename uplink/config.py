"""The ``[[route]]`` tables of the gateway's configuration file."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from gateway.config import NAME_BYTES_MAX, Count, NonEmpty
from gateway.config_errors import ConfigSource
from gateway.config_file import Table, beside
from wire.errors import WireError
from wire.topics import check_topic_filter

PORTS = {"mqtt": 1883, "mqtts": 8883}
TLS_FILES = ("ca", "certificate", "key")
INFLIGHT_WINDOW_MAX = 65535
"""Packet identifiers of one connection [MQTT-2.2.1]."""


class RouteTlsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a route to `mqtts://` trusts and shows. The files are read again for each connection."""

    ca: NonEmpty | None = None
    """Certificates of the authorities that may vouch for the broker: a PEM file. Without it they are the system's. The
    broker's certificate has to be for the name or address in `broker`."""

    certificate: NonEmpty | None = None
    """The certificate that the route shows, with those between it and the root: a PEM file."""

    key: NonEmpty | None = None
    """The certificate's private key, not encrypted: a PEM file."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("key: certificate and key go together")


class RouteConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A way to another broker: which messages go there."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The route's name in the log, of 127 bytes at most, and the name of its place in the store: renaming a route
    starts it anew. Its client identifier is the gateway's name, `-` and this one."""

    broker: str
    """Where its messages go: `mqtt://host` or `mqtt://host:port`; over TLS `mqtts://host` or `mqtts://host:port`.
    Another Holdfast gateway takes them where a [rule](../how-to/accounts.md#say-who-brings-others-messages) says
    `identify` for this route's `user`."""

    user: NonEmpty | None = None
    """The user name that the route logs in with."""

    password_file: NonEmpty | None = None
    """A file with nothing but that user's password, on one line. It is read again for each connection."""

    tls: RouteTlsConfig | None = None
    """What `mqtts://` needs besides the system's authorities."""

    filters: tuple[str, ...] = ("#",)
    """The topic filters of the messages that it takes. They go on at their QoS, or the highest that the broker takes;
    those of QoS 2 are handed over exactly once as long as the broker keeps the route's session. A message of QoS 0 is
    not stored, so no route takes it."""

    inflight_window: Annotated[int, msgspec.Meta(ge=1, le=INFLIGHT_WINDOW_MAX)] = 1000
    """How many messages may be on the way at once, sent and not yet acknowledged."""

    max_messages: Count | None = None
    """The most messages that may wait for the route; beyond it the oldest are dropped, which leaves a [range in the
    store](store.md#what-was-dropped). That is looked at every ten seconds, or less often where many wait. Without it
    the limit is that of `[store]`."""

    max_bytes: Count | None = None
    """The most bytes of these, counted as for `[queue]`."""

    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 30
    """The longest silence, in seconds, before the link is tested [MQTT-3.1.2-20]."""

    backoff_shortest_ms: Annotated[int, msgspec.Meta(ge=1)] = 250
    """The shortest wait before a new connection attempt, in milliseconds."""

    backoff_longest_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    """The longest wait before a new connection attempt, in milliseconds."""

    def __post_init__(self) -> None:
        if (size := len(self.name.encode())) >= NAME_BYTES_MAX:
            raise ValueError(f"name: {size} bytes, expected {NAME_BYTES_MAX - 1} at most")
        _, _, is_encrypted = parse_broker(self.broker)
        if self.tls is not None and not is_encrypted:
            raise ValueError(f"broker: {self.broker!r}, expected mqtts:// as there is a table tls")
        if self.password_file is not None and self.user is None:
            raise ValueError("password_file: there is no user")
        for topic_filter in self.filters:
            try:
                check_topic_filter(topic_filter)
            except WireError as error:
                raise ValueError(f"filters: {error}") from None
        if self.backoff_longest_ms < self.backoff_shortest_ms:
            raise ValueError("backoff_longest_ms: it is below backoff_shortest_ms")


def parse_broker(url: str) -> tuple[str, int, bool]:
    """Returns host and port of a broker's URL, and whether TLS is spoken there.

    Raises:
        ValueError: the URL is not of the form ``mqtt://host[:port]`` or ``mqtts://host[:port]``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    usual = PORTS.get(parts.scheme)
    if "@" in parts.netloc:
        raise ValueError("broker: expected no user and no password in it: they are `user` and `password_file`")
    if usual is None or not parts.hostname or port == 0 or parts.path or parts.query or parts.fragment:
        raise ValueError(f"broker: {url!r}, expected mqtt://host or mqtt://host:port, or the same with mqtts")
    return parts.hostname, port or usual, parts.scheme == "mqtts"


def decode_routes(file: Path, tables: list[Table]) -> list[RouteConfig]:
    """Checks the ``[[route]]`` tables of a configuration file; relative paths in them start at its folder.

    Raises:
        ConfigError: names the file, the keys and what was expected, a line for each.
    """
    source = ConfigSource(file)
    routes = routes_of(source, tables)
    source.raise_errors()
    return list(routes.values())


def routes_of(source: ConfigSource, tables: list[Table]) -> dict[int, RouteConfig]:
    """Returns the ``[[route]]`` tables that are right, by their numbers, and notes what is wrong with the others."""
    found = {number: source.struct(table, RouteConfig, f"route[{number}]") for number, table in enumerate(tables)}
    routes = {number: _beside(source.path.parent, route) for number, route in found.items() if route is not None}
    names: set[str] = set()
    for number, route in routes.items():
        if route.name in names:
            source.add(f"route[{number}].name", f"two routes are named {route.name!r}")
        names.add(route.name)
    return routes


def _beside(folder: Path, route: RouteConfig) -> RouteConfig:
    tls = None if route.tls is None else beside(folder, route.tls, *TLS_FILES)
    return beside(folder, msgspec.structs.replace(route, tls=tls), "password_file")
