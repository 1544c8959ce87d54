"""The ``[[route]]`` tables of the gateway's configuration file."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from gateway.config import Table
from gateway.config_errors import from_validation, located
from wire.errors import WireError
from wire.topics import check_topic_filter

INFLIGHT_WINDOW_MAX = 65535
"""Packet identifiers of one connection [MQTT-2.2.1]."""


class RouteConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A way to another broker: which messages go there."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The route's name in the log, and the name of its place in the store: renaming a route starts it anew."""

    broker: str
    """Where its messages go: `mqtt://host` or `mqtt://host:port`. Another Holdfast gateway takes them where a
    [rule](../how-to/accounts.md#say-who-brings-others-messages) says `identify` for this one."""

    filters: tuple[str, ...] = ("#",)
    """The topic filters of the messages that it takes. They go on at their QoS, or the highest that the broker takes;
    those of QoS 2 are handed over exactly once as long as the broker keeps the route's session."""

    inflight_window: Annotated[int, msgspec.Meta(ge=1, le=INFLIGHT_WINDOW_MAX)] = 1000
    """How many messages may be on the way at once, sent and not yet acknowledged."""

    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 30
    """The longest silence, in seconds, before the link is tested [MQTT-3.1.2-20]."""

    backoff_shortest_ms: Annotated[int, msgspec.Meta(ge=1)] = 250
    """The shortest wait before a new connection attempt, in milliseconds."""

    backoff_longest_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    """The longest wait before a new connection attempt, in milliseconds."""

    def __post_init__(self) -> None:
        parse_broker(self.broker)
        for topic_filter in self.filters:
            try:
                check_topic_filter(topic_filter)
            except WireError as error:
                raise ValueError(f"filters: {error}") from None
        if self.backoff_longest_ms < self.backoff_shortest_ms:
            raise ValueError("backoff_longest_ms: it is below backoff_shortest_ms")


class _File(msgspec.Struct):
    route: list[RouteConfig]


def parse_broker(url: str) -> tuple[str, int]:
    """Returns host and port of a broker's URL.

    Raises:
        ValueError: the URL is not of the form ``mqtt://host[:port]``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme != "mqtt" or not parts.hostname or port == 0 or parts.path or parts.query or parts.username:
        raise ValueError(f"broker: {url!r}, expected mqtt://host or mqtt://host:port")
    return parts.hostname, port or 1883


def decode_routes(file: Path, tables: list[Table]) -> list[RouteConfig]:
    """Checks the ``[[route]]`` tables of a configuration file.

    Raises:
        ConfigError: names the file, the key and what was expected.
    """
    try:
        routes = msgspec.convert({"route": tables}, _File).route
    except msgspec.ValidationError as error:
        raise from_validation(file, error, _File, {"route": tables}) from error
    names = [route.name for route in routes]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise located(file, f"route[{number}].name", f"two routes are named {name!r}")
    return routes
