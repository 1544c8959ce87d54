"""The ``[[route]]`` tables of the gateway's configuration file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from gateway.routes import NAME_BYTES_MAX, Checked, ConfigSource, Count, NonEmpty, Table, beside
from wire.errors import WireError
from wire.topics import check_topic_filter

PORTS = {"mqtt": 1883, "mqtts": 8883}
TLS_FILES = ("ca", "certificate", "key")
INFLIGHT_WINDOW_MAX = 65535
"""Packet identifiers of one connection [MQTT-2.2.1]."""


class RouteTlsConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """The certificates that a route to `mqtts://` trusts and shows. The files are read again for each connection."""

    ca: NonEmpty | None = None
    """A PEM file with the certificates of the authorities that may sign the broker's certificate. Without it the
    system's authorities are trusted. The broker's certificate must be for the name or address in `broker`."""

    certificate: NonEmpty | None = None
    """A PEM file with the certificate that the route shows, and the certificates between it and the root."""

    key: NonEmpty | None = None
    """The certificate's private key, not encrypted: a PEM file."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if {"certificate", "key"} <= values.keys() and (values["certificate"] is None) != (values["key"] is None):
            yield "key", "certificate and key go together"


class RouteConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A route to another broker: the messages that it sends there, and how it connects."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The route's name in the log, of at most 127 bytes, and the name of its cursor in the store: if you rename a
    route, it begins anew. Its client identifier is the gateway's name, `-` and this name."""

    broker: str
    """The broker to which the messages go: `mqtt://host` or `mqtt://host:port`; with TLS `mqtts://host` or
    `mqtts://host:port`. It speaks MQTT 5 or 3.1.1, which the route finds out; over 3.1.1 no identities travel. Another
    Holdfast gateway accepts the messages if a [rule](../how-to/accounts.md#let-a-client-forward-others-messages) allows
    `identify` for this route's `user`."""

    user: NonEmpty | None = None
    """The user name with which the route logs in."""

    password_file: NonEmpty | None = None
    """A file that contains only this user's password, on one line. It is read again for each connection. Others may
    neither read nor change it: its permissions are 0600 or 0640."""

    tls: RouteTlsConfig | None = None
    """Certificates for `mqtts://`, besides the system's authorities."""

    filters: tuple[str, ...] = ("#",)
    """The topic filters of the messages that the route sends. It sends each at its QoS, or at the highest QoS that the
    broker supports. Messages of QoS 2 arrive exactly once as long as the broker keeps the route's session. The gateway
    does not store messages of QoS 0, so no route sends them."""

    inflight_window: Annotated[int, msgspec.Meta(ge=1, le=INFLIGHT_WINDOW_MAX)] = 1000
    """The most messages in flight: sent and not yet acknowledged."""

    max_messages: Count | None = None
    """The most messages that may wait for the route. Beyond it the oldest are dropped, which leaves a [range in the
    store](store.md#what-was-dropped). Without it only the limit of `[store]` applies."""

    max_bytes: Count | None = None
    """The most bytes of these, counted as for `[queue]`."""

    needs_subscriber: bool = True
    """Whether a message waits that no client at the broker has subscribed to: the broker acknowledges it with reason
    code 0x10, and keeps no copy. With `false` the route takes such an acknowledgement for success."""

    retry_interval_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 20
    """How long the broker may leave a message unacknowledged, in seconds. Then the route connects again and sends what
    is not acknowledged [MQTT-4.4.0-1]."""

    max_age_s: Count | None = None
    """The longest time in seconds since the first gateway accepted a message, by this gateway's clock. Older messages
    that wait are dropped, which leaves a range `expired`."""

    max_messages_per_origin: Count | None = None
    """The most messages of one [origin](wire.md#identity) that may wait for the route. Beyond it the oldest of this
    origin are dropped, when the route comes to them; they do not count for `max_messages` and `max_bytes`. So an origin
    that sends too much does not push out the messages of others."""

    max_bytes_per_origin: Count | None = None
    """The most bytes of these, counted as for `[queue]`."""

    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 30
    """The longest silence, in seconds, before the link is tested [MQTT-3.1.2-20]."""

    backoff_shortest_ms: Annotated[int, msgspec.Meta(ge=1)] = 250
    """The shortest wait before a new connection attempt, in milliseconds."""

    backoff_longest_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    """The longest wait before a new connection attempt, in milliseconds."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if (size := len(values.get("name", "").encode())) >= NAME_BYTES_MAX:
            yield "name", f"{size} bytes, expected {NAME_BYTES_MAX - 1} at most"
        if "broker" in values:
            yield from _errors_in_broker(values["broker"], has_tls=values.get("tls") is not None)
        if values.get("password_file") is not None and values.get("user", "") is None:
            yield "password_file", "there is no user"
        for topic_filter in values.get("filters", ()):
            try:
                check_topic_filter(topic_filter)
            except WireError as error:
                yield "filters", str(error)
        shortest_ms, longest_ms = values.get("backoff_shortest_ms"), values.get("backoff_longest_ms")
        if shortest_ms is not None and longest_ms is not None and longest_ms < shortest_ms:
            yield "backoff_longest_ms", "it is below backoff_shortest_ms"


def _errors_in_broker(url: str, *, has_tls: bool) -> Iterator[tuple[str, str]]:
    try:
        _, _, is_encrypted = parse_broker(url)
    except ValueError as error:
        yield "broker", str(error)
    else:
        if has_tls and not is_encrypted:
            yield "broker", f"{url!r}, expected mqtts:// as there is a table tls"


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
        raise ValueError("expected no user and no password in it: they are `user` and `password_file`")
    if usual is None or not parts.hostname or port == 0 or parts.path or parts.query or parts.fragment:
        raise ValueError(f"{url!r}, expected mqtt://host or mqtt://host:port, or the same with mqtts")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError(f"{url!r}, expected a host name without empty parts, of at most 63 characters each") from None
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
