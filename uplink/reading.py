"""Which routes a configuration has: the ``[[route]]`` tables of every kind, and the streams that their links carry."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from gateway.routes import ConfigSource, SelectConfig, Table, beside
from uplink.config.route import RouteConfig
from uplink.config.tls import TLS_FILES
from uplink.foreign.config import AmqpConfig, ForeignConfig, ImportingConfig, NatsConfig, SparkplugConfig
from wire.reserved import STREAM_TOPICS

FOREIGN: dict[str, type[ForeignConfig]] = {
    "nats": NatsConfig,
    "amqp": AmqpConfig,
    "sparkplug": SparkplugConfig,
}

AnyRoute = RouteConfig | ForeignConfig


def decode_routes(file: Path, tables: list[Table]) -> list[AnyRoute]:
    """Checks the ``[[route]]`` tables of a configuration file; relative paths in them start at its folder.

    Raises:
        ConfigError: names the file, the keys and what was expected, a line for each.
    """
    source = ConfigSource(file)
    routes = routes_of(source, tables)
    source.raise_errors()
    return list(routes.values())


def routes_of(source: ConfigSource, tables: list[Table]) -> dict[int, AnyRoute]:
    """Returns the ``[[route]]`` tables that are right, by their numbers, and notes what is wrong with the others."""
    found = {number: _route_of(source, table, f"route[{number}]") for number, table in enumerate(tables)}
    routes = {number: _beside(source.path.parent, route) for number, route in found.items() if route is not None}
    names: set[str] = set()
    for number, route in routes.items():
        if route.name in names:
            source.add(f"route[{number}].name", f"two routes are named {route.name!r}")
        names.add(route.name)
    return routes


def check_streams(source: ConfigSource, routes: dict[int, AnyRoute], streams: Sequence[str]) -> None:
    """Adds an error for each stream that a route names and the gateway has not."""
    known = ", ".join(map(repr, streams)) or "none: there is no [[stream]]"
    for number, route in routes.items():
        if not isinstance(route, RouteConfig):
            continue
        if route.stream and route.stream not in streams:
            source.add(f"route[{number}].stream", f"no stream is named {route.stream!r}, expected one of {known}")
        for name in (route.neighbour and route.neighbour.streams) or ():
            if name not in streams:
                key = f"route[{number}].neighbour.streams"
                source.add(key, f"no stream is named {name!r}, expected some of {known}")


def check_local_users(source: ConfigSource, routes: dict[int, AnyRoute], has_rules: bool) -> None:
    """Adds an error for each route whose `local_user` stands for no rights, as the gateway has no access rules."""
    for number, route in routes.items():
        if isinstance(route, RouteConfig | ImportingConfig) and route.local_user is not None and not has_rules:
            source.add(f"route[{number}].local_user", "there are no access rules: expected acl, or no local_user")


def with_streams(routes: Iterable[AnyRoute], streams: Sequence[str]) -> Iterator[AnyRoute]:
    """Yields the routes, and behind each link of the default stream its links of other streams.

    Args:
        routes: the routes as they are configured.
        streams: the gateway's streams besides the default one.
    """
    for route in routes:
        yield route
        if not isinstance(route, RouteConfig) or not (route.neighbour and route.neighbour.name) or route.stream:
            continue
        for stream in streams if route.neighbour.streams is None else route.neighbour.streams:
            yield msgspec.structs.replace(
                route,
                name=f"{route.name}@{stream}",
                stream=stream,
                filters=None,
                subscribe=(),
                incoming=list(_conditions_in(stream, route.incoming)),
                outgoing=list(_conditions_in(stream, route.outgoing)),
            )


def _route_of(source: ConfigSource, table: Table, key: str) -> AnyRoute | None:
    kind = table.get("kind") if isinstance(table, dict) else None
    if kind is None:
        return source.struct(table, RouteConfig, key)
    expected = FOREIGN.get(kind) if isinstance(kind, str) else None
    if expected is None:
        kinds = " or ".join(f'"{one}"' for one in FOREIGN)
        source.add(f"{key}.kind", f"{kind!r}, expected {kinds}, or no kind for a route to an MQTT broker")
        return None
    return source.struct(table, expected, key)


def _beside(folder: Path, route: AnyRoute) -> AnyRoute:
    tls = None if route.tls is None else beside(folder, route.tls, *TLS_FILES)
    files = ("password_file", "credentials") if isinstance(route, NatsConfig) else ("password_file",)
    return beside(folder, msgspec.structs.replace(route, tls=tls), *files)


def _conditions_in(stream: str, conditions: Iterable[SelectConfig]) -> Iterator[SelectConfig]:
    prefix = f"{STREAM_TOPICS}{stream}/"
    for one in conditions:
        if one.topic.startswith(prefix):
            yield msgspec.structs.replace(one, topic=one.topic.removeprefix(prefix))
