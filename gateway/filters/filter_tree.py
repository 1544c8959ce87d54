"""Topic filters with a value each: which of them match a topic name, and which cover one another or overlap.

A filter covers another one if it matches each topic name that the other one matches. ``#`` and ``+/#`` match the same
names; here ``#`` covers ``+/#``, and not the other way round, so that no two filters cover each other. Two filters
overlap if they match the same topic name.

A filter without wildcards is a topic name. It is a key of a dictionary, so it takes little memory and is found at once.
Filters with wildcards are in a tree, which has a node for each level.

Source: MQTT 5.0, section 4.7; in [MQTT-4.7.2-1] a wildcard at the first level does not match names with ``$``.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from gateway.filters.sorted_names import SortedNames

Value = TypeVar("Value")
Entry = tuple[str, Value]
"""A filter with its value."""


class FilterTree(Generic[Value]):
    """Values by topic filter; no value is None."""

    def __init__(self) -> None:
        self._names: dict[str, Value] = {}
        self._order = SortedNames()  # the same names
        self._root: _Node[Value] = _Node()
        self._patterns = 0  # filters with wildcards

    def __len__(self) -> int:
        return len(self._names) + self._patterns

    def get(self, topic_filter: str) -> Value | None:
        """Returns the value of a filter, None without one."""
        if not _has_wildcard(topic_filter):
            return self._names.get(topic_filter)
        levels, is_open = _levels_of(topic_filter)
        node: _Node[Value] | None = self._root
        for level in levels:
            if node is None:
                return None
            node = node.child(level)
        entry = node and (node.below if is_open else node.here)
        return entry[1] if entry else None

    def put(self, topic_filter: str, value: Value) -> None:
        """Sets the value of a filter."""
        if not _has_wildcard(topic_filter):
            if topic_filter not in self._names:
                self._order.add(topic_filter)
            self._names[topic_filter] = value
            return
        levels, is_open = _levels_of(topic_filter)
        node = self._root
        for level in levels:
            node = node.child(level) or node.grow(level)
        if is_open:
            self._patterns += node.below is None
            node.below = (topic_filter, value)
        else:
            self._patterns += node.here is None
            node.here = (topic_filter, value)

    def remove(self, topic_filter: str) -> None:
        """Removes a filter that is there."""
        if not _has_wildcard(topic_filter):
            del self._names[topic_filter]
            self._order.remove(topic_filter)
            return
        levels, is_open = _levels_of(topic_filter)
        path = [self._root]
        for level in levels:
            node = path[-1].child(level)
            assert node is not None
            path.append(node)
        if is_open:
            path[-1].below = None
        else:
            path[-1].here = None
        self._patterns -= 1
        while levels and path.pop().is_empty:
            path[-1].prune(levels.pop())

    def items(self) -> Iterator[Entry[Value]]:
        """Yields all filters with their values."""
        yield from self._names.items()
        yield from _all_below([self._root])

    def match(self, topic: str) -> list[Entry[Value]]:
        """Returns the filters that match a topic name, with their values."""
        found = self._covering(topic)
        value = self._names.get(topic)
        if value is not None:
            found.append((topic, value))
        return found

    def covering(self, topic_filter: str) -> Iterator[Entry[Value]]:
        """Yields the other filters that cover a filter, with their values."""
        return (entry for entry in self._covering(topic_filter) if entry[0] != topic_filter)

    def covered(self, topic_filter: str) -> Iterator[Entry[Value]]:
        """Yields the other filters that a filter covers, with their values."""
        return self._reached(topic_filter, is_each_wide=False)

    def overlapping(self, topic_filter: str) -> Iterator[Entry[Value]]:
        """Yields the other filters that match a topic name which a filter matches, with their values."""
        return self._reached(topic_filter, is_each_wide=True)

    def _covering(self, topic_filter: str) -> list[Entry[Value]]:
        """Returns the filters with wildcards that cover a filter, itself too, or that match a topic name."""
        levels, is_open = _levels_of(topic_filter)
        found: list[Entry[Value]] = []
        nodes = [self._root]
        if topic_filter.startswith("$"):  # no wildcard at the first level stands for such a level
            first = self._root.child(levels.pop(0))
            nodes = [] if first is None else [first]
        for level in levels:
            following: list[_Node[Value]] = []
            for node in nodes:
                if node.below is not None:
                    found.append(node.below)
                if node.plus is not None:
                    following.append(node.plus)
                if node.children is not None and level in node.children:
                    following.append(node.children[level])
            if not following:
                return found
            nodes = following
        for node in nodes:
            if node.below is not None:  # "a/#" matches the parent level "a" too
                found.append(node.below)
            if node.here is not None and not is_open:
                found.append(node.here)
        return found

    def _reached(self, topic_filter: str, is_each_wide: bool) -> Iterator[Entry[Value]]:
        """Yields the other filters that a filter covers or, if each one's wildcards count, overlaps."""
        if _has_wildcard(topic_filter):
            for name in self._order.matching(topic_filter):
                yield name, self._names[name]
        elif not is_each_wide:
            return  # a topic name covers nothing
        for entry in self._reached_patterns(topic_filter, is_each_wide):
            if entry[0] != topic_filter:
                yield entry

    def _reached_patterns(self, topic_filter: str, is_each_wide: bool) -> Iterator[Entry[Value]]:
        levels, is_open = _levels_of(topic_filter)
        is_hidden = topic_filter.startswith("$")
        nodes = [self._root]
        for place, level in enumerate(levels or ["+"]):  # "#" matches the same names as "+/#"
            following: list[_Node[Value]] = []
            for node in nodes:
                if is_each_wide and node.below is not None and not is_hidden:
                    yield node.below
                if node.plus is not None and (level == "+" or (is_each_wide and not is_hidden)):
                    following.append(node.plus)
                if node.children is not None and level == "+":
                    following += _visible(node.children) if place == 0 else node.children.values()
                elif node.children is not None and level in node.children:
                    following.append(node.children[level])
            nodes, is_hidden = following, False
        if is_open:
            yield from _all_below(nodes)
            return
        for node in nodes:
            if node.here is not None:
                yield node.here
            if is_each_wide and node.below is not None:
                yield node.below


class _Node(Generic[Value]):
    """A level of some filters with wildcards.

    ``here`` is the filter that ends at this level, ``below`` the one that goes on with ``#``. ``plus`` is the next
    level ``+``, ``children`` are the other ones. Each is None where there is none.
    """

    __slots__ = ("below", "children", "here", "plus")

    def __init__(self) -> None:
        self.here: Entry[Value] | None = None
        self.below: Entry[Value] | None = None
        self.plus: _Node[Value] | None = None
        self.children: dict[str, _Node[Value]] | None = None

    @property
    def is_empty(self) -> bool:
        return self.here is None and self.below is None and self.plus is None and self.children is None

    def child(self, level: str) -> "_Node[Value] | None":
        if level == "+":
            return self.plus
        return None if self.children is None else self.children.get(level)

    def grow(self, level: str) -> "_Node[Value]":
        """Adds the node of a next level that is not there."""
        node: _Node[Value] = _Node()
        if level == "+":
            self.plus = node
        elif self.children is None:
            self.children = {level: node}
        else:
            self.children[level] = node
        return node

    def prune(self, level: str) -> None:
        """Removes the node of a next level."""
        if level == "+":
            self.plus = None
        elif self.children is not None:
            del self.children[level]
            self.children = self.children or None


def _has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter


def _levels_of(topic_filter: str) -> tuple[list[str], bool]:
    """Returns the levels of a filter, and whether they go on with ``#``, which is left out."""
    levels = topic_filter.split("/")
    is_open = levels[-1] == "#"
    return (levels[:-1] if is_open else levels), is_open


def _visible(children: dict[str, _Node[Value]]) -> Iterator[_Node[Value]]:
    """Yields the nodes that a wildcard at the first level stands for [MQTT-4.7.2-1]."""
    return (node for level, node in children.items() if not level.startswith("$"))


def _all_below(nodes: list[_Node[Value]]) -> Iterator[Entry[Value]]:
    """Yields what ends at some nodes or below them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.here is not None:
            yield node.here
        if node.below is not None:
            yield node.below
        if node.plus is not None:
            waiting.append(node.plus)
        if node.children is not None:
            waiting += node.children.values()
