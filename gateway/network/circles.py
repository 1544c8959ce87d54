"""Circles: which links of a network are set aside so that there is one path between any two gateways.

A message that finds two paths to a gateway comes twice, and an interest that comes back to its origin is never
withdrawn. So of each circle one link carries nothing. Kruskal's algorithm chooses it: it takes the links in an order,
and sets aside each one whose ends are joined already. The order depends on names alone, so every gateway that knows
the same links sets aside the same ones, whichever came first.

First come the one-hop zones, as their links are worth more together: in the order of their names, gateway by gateway.
A gateway that joins a zone gets its links to all that are in it, or none if another path leads there already. Between
two gateways a zone has one link. Then come the multi-hop links in the order of their names. So the last link of a
circle is set aside, and a multi-hop link rather than a gateway's place in a zone.

Source: J. B. Kruskal, "On the shortest spanning subtree of a graph", 1956: the last edge of a circle is never in the
tree, and each edge that is not in it is the last one of a circle.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gateway.network.zones import Zone


class Link(NamedTuple):
    """A link between two gateways. ``first`` and ``second`` are their names, in the order of the alphabet."""

    name: str
    first: str
    second: str
    zone: Zone

    def other(self, gateway: str) -> str:
        """Returns the gateway at the other end."""
        return self.second if gateway == self.first else self.first


class Circle(NamedTuple):
    """A circle, once around: the first gateway is the last one too. The last link is set aside."""

    gateways: tuple[str, ...]
    links: tuple[str, ...]

    def __str__(self) -> str:
        way = "".join(f" -({link})- {there}" for link, there in zip(self.links, self.gateways[1:], strict=True))
        return f"{self.links[-1]} is set aside, as it closes the circle {self.gateways[0]}{way}"


class _Groups:
    """Disjoint sets of gateways, which only ever grow together."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def join(self, one: str, other: str) -> bool:
        """Joins the sets of two gateways; returns whether they were apart."""
        one, other = self._top(one), self._top(other)
        self._above[other] = one
        return one != other

    def are_joined(self, one: str, other: str) -> bool:
        return self._top(one) == self._top(other)

    def _top(self, one: str) -> str:
        above = self._above
        while (top := above.setdefault(one, one)) != one:
            above[one] = above[top]  # each look makes the way shorter
            one = top
        return one


def closing_links(links: Iterable[Link]) -> set[Link]:
    """Returns the links that are set aside."""
    multi_hop: list[Link] = []
    one_hop: dict[Zone, list[Link]] = {}
    for link in links:
        (one_hop.setdefault(link.zone, []) if link.zone.is_one_hop else multi_hop).append(link)
    joined = _Groups()
    found = {link for zone in sorted(one_hop) for link in _closing_in_zone(one_hop[zone], joined)}
    found.update(link for link in sorted(multi_hop) if not joined.join(link.first, link.second))
    return found


def _closing_in_zone(links: list[Link], joined: _Groups) -> Iterator[Link]:
    """Lets the gateways of a one-hop zone join it in the order of their names; yields the links that are set aside.

    Where links are missing in the zone, or set aside, it has several parts, and a gateway may join one and not another.
    """
    parts = _Groups()
    linked: set[tuple[str, str]] = set()
    for link in sorted(links, key=lambda link: (link.second, link.first, link.name)):  # second is the one that joins
        ends = link.first, link.second
        if ends not in linked and parts.are_joined(*ends) and link.first != link.second:
            linked.add(ends)
        elif ends not in linked and joined.join(*ends):
            linked.add(ends)
            parts.join(*ends)
        else:
            yield link


def circles_at(own: str, links: Iterable[Link], set_aside: set[Link]) -> list[Circle]:
    """Returns the circle of each link of a gateway that is set aside."""
    at: dict[str, list[Link]] = {}
    for link in sorted(link for link in links if link not in set_aside):
        for gateway in {link.first, link.second}:
            at.setdefault(gateway, []).append(link)
    came = _ways_from(own, at)
    return [_circle(own, link, came) for link in sorted(set_aside) if own in (link.first, link.second)]


def reachable(own: str, links: Iterable[Link]) -> set[str]:
    """Returns the gateways to which links lead from a gateway, with itself."""
    at: dict[str, list[Link]] = {}
    for link in links:
        at.setdefault(link.first, []).append(link)
        at.setdefault(link.second, []).append(link)
    return _ways_from(own, at).keys() | {own}


def _ways_from(own: str, at: Mapping[str, Iterable[Link]]) -> dict[str, Link]:
    """Returns the last link of a shortest way from a gateway to each other one."""
    came: dict[str, Link] = {}
    waiting = [own]
    for gateway in waiting:
        for link in at.get(gateway, ()):
            there = link.other(gateway)
            if there != own and there not in came:
                came[there] = link
                waiting.append(there)
    return came


def _circle(own: str, closing: Link, came: Mapping[str, Link]) -> Circle:
    gateways, links = [closing.other(own)], [closing.name]
    while (here := gateways[-1]) != own:
        gateways.append(came[here].other(here))
        links.append(came[here].name)
    return Circle((*reversed(gateways), own), tuple(reversed(links)))
