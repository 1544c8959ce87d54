"""Topic filters with a value each, and which of them cover one another.

A filter covers another one if it matches each topic name that the other one matches. ``#`` and ``+/#`` match the same
names; here ``#`` covers ``+/#``, and not the other way round, so that no two filters cover each other.

Source: MQTT 5.0, section 4.7; in [MQTT-4.7.2-1] a wildcard at the first level does not match names with ``$``.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _Node(Generic[Value]):
    """A level of some filters. ``value`` is that of the filter that ends here, None if none does."""

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Value]] | None = None  # most nodes are the last level of one filter
        self.value: Value | None = None

    def child(self, level: str) -> "_Node[Value] | None":
        return None if self.children is None else self.children.get(level)


_Place = tuple[_Node[Value], str]
"""A node, and the filter that ends there."""


class FilterTree(Generic[Value]):
    """Values by topic filter."""

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, topic_filter: str) -> Value | None:
        """Returns the value of a filter, None without one."""
        node: _Node[Value] | None = self._root
        for level in topic_filter.split("/"):
            node = node and node.child(level)
        return node.value if node else None

    def put(self, topic_filter: str, value: Value) -> None:
        """Sets the value of a filter."""
        node = self._root
        for level in topic_filter.split("/"):
            if node.children is None:
                node.children = {}
            node = node.children.get(level) or node.children.setdefault(level, _Node())
        self._count += node.value is None
        node.value = value

    def remove(self, topic_filter: str) -> None:
        """Removes a filter that is there."""
        levels = topic_filter.split("/")
        path = [self._root]
        for level in levels:
            assert path[-1].children is not None
            path.append(path[-1].children[level])
        path[-1].value = None
        self._count -= 1
        for level, node, parent in zip(reversed(levels), reversed(path), reversed(path[:-1]), strict=False):
            if node.children or node.value is not None:
                break
            assert parent.children is not None
            del parent.children[level]
            parent.children = parent.children or None

    def items(self) -> Iterator[tuple[str, Value]]:
        """Yields all filters with their values."""
        return _values(_below([(child, level) for level, child in (self._root.children or {}).items()]))

    def covering(self, topic_filter: str) -> Iterator[tuple[str, Value]]:
        """Yields the other filters that cover a filter, with their values."""
        return (found for found in _values(self._covering(topic_filter)) if found[0] != topic_filter)

    def covered(self, topic_filter: str) -> Iterator[tuple[str, Value]]:
        """Yields the other filters that a filter covers, with their values."""
        return (found for found in _values(self._covered(topic_filter)) if found[0] != topic_filter)

    def overlapping(self, topic_filter: str) -> Iterator[tuple[str, Value]]:
        """Yields the other filters that match a topic name which a filter matches, with their values."""
        return (found for found in _values(self._overlapping(topic_filter)) if found[0] != topic_filter)

    def _overlapping(self, topic_filter: str) -> Iterator[_Place[Value]]:
        first, *levels = topic_filter.split("/")
        children = [(node, level) for level, node in (self._root.children or {}).items()]
        if first in ("+", "#"):
            places = [place for place in children if not place[1].startswith("$")]
        else:
            places = self._first_places(first, *(("+", "#") if not first.startswith("$") else ()))
        for level in levels if first != "#" else ():
            yield from (place for place in places if _last(place) == "#")
            places = [place for place in places if _last(place) != "#"]
            if level == "#":
                break
            if level == "+":
                places = [place for one in places for place in _children(one)]
            else:
                places = _next(places, level, "+", "#")
        if topic_filter.endswith("#"):
            yield from _below(places)
        else:
            yield from places
            yield from _next(places, "#")

    def _covering(self, topic_filter: str) -> Iterator[_Place[Value]]:
        places = self._first_places("#") if not topic_filter.startswith("$") else []
        yield from places
        first, *levels = topic_filter.split("/")
        places = [] if first == "#" else self._first_places(first, "+" if not topic_filter.startswith("$") else first)
        for level in levels:
            yield from _next(places, "#")
            places = [] if level == "#" else _next(places, level, "+")
        yield from places
        yield from _next(places, "#")  # "a/#" matches the parent level "a" too

    def _covered(self, topic_filter: str) -> Iterator[_Place[Value]]:
        first, *levels = topic_filter.split("/")
        places = self._first_places(first)
        if first in ("+", "#"):
            children = self._root.children or {}
            places = [(node, level) for level, node in children.items() if not level.startswith("$")]
        if first == "+":
            places = [place for place in places if place[1] != "#"]
        for level in levels:
            if level == "#":
                break
            if level == "+":
                below = [place for one in places for place in _children(one)]
                places = [place for place in below if _last(place) != "#"]
            else:
                places = _next(places, level)
        return _below(places) if topic_filter.endswith("#") else iter(places)

    def _first_places(self, *levels: str) -> list[_Place[Value]]:
        children = self._root.children or {}
        return [(children[level], level) for level in dict.fromkeys(levels) if level in children]


def _next(places: list[_Place[Value]], *levels: str) -> list[_Place[Value]]:
    return [
        (child, f"{before}/{level}")
        for node, before in places
        for level in dict.fromkeys(levels)
        if (child := node.child(level)) is not None
    ]


def _children(place: _Place[Value]) -> Iterator[_Place[Value]]:
    node, before = place
    return ((child, f"{before}/{level}") for level, child in (node.children or {}).items())


def _last(place: _Place[Value]) -> str:
    return place[1].rpartition("/")[2]


def _below(places: list[_Place[Value]]) -> Iterator[_Place[Value]]:
    """Yields places and all places below them."""
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        yield place
        waiting += _children(place)


def _values(places: Iterator[_Place[Value]]) -> Iterator[tuple[str, Value]]:
    return ((topic_filter, node.value) for node, topic_filter in places if node.value is not None)
