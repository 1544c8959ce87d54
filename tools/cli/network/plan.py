"""The network that the configurations of several gateways make: its gateways, the brokers between them, and the links.

It is here and not in `gateway.network`, because it knows routes, which a gateway imports nothing of.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from gateway.auth.permissions import Access
from gateway.config.load import is_loopback
from gateway.config.network import NeighbourConfig
from gateway.config.schema import GatewayConfig
from gateway.network.circles import Link
from gateway.network.zones import Zone
from host.server import parse_server
from uplink.config.route import RouteConfig, RouteNeighbourConfig
from uplink.reading import AnyRoute


@dataclass(frozen=True, eq=False)
class Site:
    """One gateway as its file describes it.

    Args:
        file: the file.
        config: what is in it, but for the routes.
        routes: the routes in their order.
        access: the access rules in force; None if their file is not at hand.
    """

    file: str
    config: GatewayConfig
    routes: list[AnyRoute]
    access: Access | None

    @property
    def name(self) -> str:
        """The gateway's name."""
        return self.config.name

    def neighbour(self, name: str) -> tuple[str, NeighbourConfig]:
        """Returns the key and the settings of a gateway that connects to this one: the defaults without a table."""
        for number, one in enumerate(self.config.neighbour):
            if one.name == name:
                return f"neighbour[{number}]", one
        return "neighbour", NeighbourConfig(name)

    def server_of(self, route: RouteConfig) -> str:
        """Returns the URL of a route's broker, the same for all routes that lead there from any gateway."""
        server = parse_server(route.broker)
        if server.socket:
            return f"{server} at {self.name}"
        own = f" at {self.name}" if is_loopback(server.host) else ""  # each machine has a broker of its own there
        return f"mqtt://{server.authority}{own}"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong or, as a warning, may be: at a key of a file, in words that say what to do."""

    file: str
    key: str
    text: str
    is_warning: bool = False


@dataclass(frozen=True, eq=False)
class PlannedLink:
    """A route to a neighbour. ``listening`` is the gateway that it dials, None for a broker and without its file.
    ``name_key`` is the key that names the neighbour: `fallback_names` for one at a fallback of the route.
    """

    dialling: Site
    number: int
    route: RouteConfig
    neighbour: RouteNeighbourConfig
    listening: Site | None
    name_key: str = "name"

    @property
    def key(self) -> str:
        """The key of the route in the file of the gateway that dials."""
        return f"route[{self.number}]"

    @property
    def name(self) -> str:
        """The link's name, which is the client identifier of the gateway that dials."""
        return f"{self.dialling.name}-{self.route.name}"

    @property
    def other(self) -> str:
        """The neighbour: the name of a gateway, or an ordinary broker's URL."""
        return self.neighbour.name or self.dialling.server_of(self.route)

    @property
    def link(self) -> Link:
        """The link between its two ends, with the zone of the end that dials."""
        first, second = sorted((self.dialling.name, self.other))
        return Link(self.name, first, second, Zone(self.neighbour.zone, self.neighbour.hops == "one"))

    def finding(self, key: str, text: str, *, is_warning: bool = False) -> Finding:
        """Returns a finding at a key of the route."""
        return Finding(self.dialling.file, f"{self.key}.{key}" if key else self.key, text, is_warning)


class Plan:
    """The network of several gateways.

    ``links`` are in the order of the files and of the routes in them. ``standing_in`` are those to the gateways at the
    fallbacks of routes, which never carry beside the route's own link. ``brokers`` has the URLs of the ordinary brokers
    that are neighbours.
    """

    def __init__(self, sites: list[Site]) -> None:
        self.sites = sites
        self.by_name = {site.name: site for site in reversed(sites)}
        self.links = list(self._links())
        self.standing_in = list(self._standing_in())
        self.brokers = {link.other for link in self.links if link.neighbour.name is None}

    def _links(self) -> Iterator[PlannedLink]:
        for site in self.sites:
            for number, route in enumerate(site.routes):
                if isinstance(route, RouteConfig) and route.neighbour is not None:
                    listening = self.by_name.get(route.neighbour.name or "")
                    yield PlannedLink(site, number, route, route.neighbour, listening)

    def _standing_in(self) -> Iterator[PlannedLink]:
        for link in self.links:
            for name in link.neighbour.fallback_names:
                neighbour = msgspec.structs.replace(link.neighbour, name=name)
                yield replace(link, neighbour=neighbour, listening=self.by_name.get(name), name_key="fallback_names")
