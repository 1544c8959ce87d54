"""The ``[[route]]`` tables of the gateway's configuration file."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from gateway.config import Table, explain
from gateway.errors import ConfigError
from wire.errors import WireError
from wire.topics import check_topic_filter

INFLIGHT_WINDOW_MAX = 65535
"""Packet identifiers of one connection [MQTT-2.2.1]."""


class RouteConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One route: which messages go to which broker.

    ``name`` names the route in logs and is the key of its durable cursor: renaming it starts it anew.
    ``broker`` is where messages go: ``mqtt://host`` or ``mqtt://host:port``.
    ``filters`` are the topic filters of the messages that the route takes.
    ``inflight_window`` is how many messages may be on the way at once, sent and not yet acknowledged.
    ``keep_alive_s`` is the longest silence, in seconds, before the link is tested [MQTT-3.1.2-20].
    ``backoff_shortest_ms`` is the shortest wait before a new connection attempt.
    ``backoff_longest_ms`` is the longest wait before a new connection attempt.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    broker: str
    filters: tuple[str, ...] = ("#",)
    inflight_window: Annotated[int, msgspec.Meta(ge=1, le=INFLIGHT_WINDOW_MAX)] = 1000
    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 30
    backoff_shortest_ms: Annotated[int, msgspec.Meta(ge=1)] = 250
    backoff_longest_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000

    def __post_init__(self) -> None:
        parse_broker(self.broker)
        for topic_filter in self.filters:
            try:
                check_topic_filter(topic_filter)
            except WireError as error:
                raise ValueError(f"filter {topic_filter!r}: {error}") from None
        if self.backoff_longest_ms < self.backoff_shortest_ms:
            raise ValueError("backoff_longest_ms is below backoff_shortest_ms")


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
        raise ValueError(f"broker {url!r}: expected mqtt://host or mqtt://host:port")
    return parts.hostname, port or 1883


def decode_routes(file: Path, tables: list[Table]) -> list[RouteConfig]:
    """Checks the ``[[route]]`` tables of a configuration file.

    Raises:
        ConfigError: names the file, the key and what was expected.
    """
    try:
        routes = msgspec.convert(tables, list[RouteConfig])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: route{explain(str(error))}") from error
    names = [route.name for route in routes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"{file}: route: two routes are named {min(twice)!r}")
    return routes
