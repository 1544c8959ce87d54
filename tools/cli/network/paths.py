"""The paths that messages take in a network, gateway by gateway, and two of them that lead to one gateway."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.network.circles import Link, closing_links
from gateway.network.zones import LOCAL, Side, Zone

Step = tuple[Link, str]
"""A link, and the gateway or broker to which it leads."""


class TwoPaths(NamedTuple):
    """Two paths from one gateway to one gateway, and the links that are set aside at run time so that one is left."""

    start: str
    paths: tuple[list[Step], list[Step]]
    closing: list[Link]

    def __str__(self) -> str:
        first, second = (f"{self.start}{''.join(map(_in_words, path))}" for path in self.paths)
        return f"two paths from {self.start} to {self.paths[1][-1][1]}: {first}, and {second}"


class Paths:
    """The paths over links between gateways and ordinary brokers, which know nothing of zones."""

    def __init__(self, links: Iterable[Link], brokers: set[str]) -> None:
        self._links = list(links)
        self._brokers = brokers
        self._at: dict[str, set[Link]] = {}
        for link in self._links:
            for end in (link.first, link.second):
                self._at.setdefault(end, set()).add(link)

    def reached_from(self, start: str) -> set[str]:
        """Returns the gateways and brokers to which messages of a gateway come, with itself."""
        reached: set[tuple[str, Side]] = {(start, LOCAL)}
        waiting = [(start, LOCAL)]
        for here, side in waiting:
            for link in self._leaving(here, side):
                there = link.other(here)
                arrival = there, self._side(there, link)
                if arrival not in reached:
                    reached.add(arrival)
                    waiting.append(arrival)
        return {gateway for gateway, _ in reached}

    def two_paths(self) -> Iterator[TwoPaths]:
        """Yields two paths to one gateway for each link, or place of a gateway in a one-hop zone, that is one too many.

        The links that are set aside at run time are left out after that.
        """
        known = {link: link._replace(zone=Zone()) if self._brokers & {*link[1:3]} else link for link in self._links}
        last_ones = closing_links(known.values())
        closing = {link for link, one in known.items() if one in last_ones}
        left = Paths(self._links, self._brokers)
        for start in sorted(self._at) if closing else ():  # without closing links there is one path anywhere
            while (found := left._second_path(start)) is not None:
                first, second = _without_common_start(*found)
                begin = start if len(first) == len(found[0]) else found[0][-len(first) - 1][1]
                on_it = {link for link, _ in (*first, *second) if link in closing}
                out = left._set_aside(max(on_it, key=lambda link: (not link.zone.is_one_hop, link)), closing)
                yield TwoPaths(begin, (first, second), out)

    def _second_path(self, start: str) -> tuple[list[Step], list[Step]] | None:
        """Returns the first path to a gateway or broker that a second one leads to, and the second one."""
        came: dict[str, Step] = {}  # the link of the first path, and where it comes from
        waiting: list[tuple[str, Side]] = [(start, LOCAL)]
        for here, side in waiting:
            for link in self._leaving(here, side):
                there = link.other(here)
                if there == start or there in came:
                    return _path(came, start, there), [*_path(came, start, here), (link, there)]
                came[there] = link, here
                waiting.append((there, self._side(there, link)))
        return None

    def _set_aside(self, last: Link, closing: set[Link]) -> list[Link]:
        """Takes out a multi-hop link, or all links that a gateway sets aside in a one-hop zone; returns these."""
        out = [last]
        if last.zone.is_one_hop:
            for end in (last.second, last.first):
                more = [link for link in self._at[end] if link in closing and link.zone == last.zone]
                out = max(out, sorted(more), key=len)
        for link in out:
            self._at[link.first].discard(link)
            self._at[link.second].discard(link)
        return out

    def _leaving(self, here: str, side: Side) -> Iterator[Link]:
        return (link for link in sorted(self._at.get(here, ())) if self._side(here, link) != side)

    def _side(self, here: str, link: Link) -> Side:
        return (Zone() if here in self._brokers else link.zone).side(link.name)


def _path(came: dict[str, Step], start: str, end: str) -> list[Step]:
    path: list[Step] = []
    while end != start:
        link, before = came[end]
        path.append((link, end))
        end = before
    return path[::-1]


def _without_common_start(first: list[Step], second: list[Step]) -> tuple[list[Step], list[Step]]:
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    return first[same:], second[same:]


def _in_words(step: Step) -> str:
    link, there = step
    return f" -({link.name}, zone {link.zone.name}{', one hop' if link.zone.is_one_hop else ''})- {there}"
