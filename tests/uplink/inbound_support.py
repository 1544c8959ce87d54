"""A gateway with a route that receives messages from its broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.broker import Broker
from tests.gateway.support import running as running_broker
from tests.uplink.support import route_config, serving, until
from uplink.config.route import RouteConfig
from uplink.route import Route
from wire.codec.packets import Publish


def receiving_config(port: int, **keys: object) -> RouteConfig:
    return route_config(port, **{"direction": "both", "subscribe": ("#",), **keys})


def route_of(broker: Broker, port: int, gateway_name: str = "gateway-1", **keys: object) -> Route:
    """A route of this gateway, not yet running."""
    return Route(receiving_config(port, **keys), gateway_name, broker.log, services=broker.services)


async def connection_of(route: Route) -> None:
    """Returns when the route is connected, and has subscribed."""
    await until(lambda: route.queue.state.connected)


@asynccontextmanager
async def receiving(
    folder: Path, port: int, settings: dict[str, Any] | None = None, **keys: Any
) -> AsyncIterator[tuple[Broker, Route]]:
    """A gateway with a route that is connected and has subscribed."""
    async with running_broker(folder, **(settings or {})) as broker:
        route = route_of(broker, port, **keys)
        async with serving(route):
            await connection_of(route)
            yield broker, route


def command(
    number: int, qos: int = 1, *, dup: bool = False, payload: bytes | None = None, **properties: Any
) -> Publish:
    """The message of a broker with a number, which is its packet identifier and its payload."""
    identifier = number if qos else None
    return Publish("commands/a", payload or b"%d" % number, qos, False, dup, identifier, dict(properties))
