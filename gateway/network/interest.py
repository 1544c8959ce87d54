"""What a gateway tells its neighbours: the topic filters that its clients and its other neighbours want.

A neighbour is told a filter if the gateway has a use for its messages: a local client wants it, or a neighbour on
another side (see `zones`). A filter that another one covers is not told, as long as the covering one is.

What is told depends on the side that hears it, but for nearly all filters it is the same for all sides, or for all
but one: the only side that wants it. So one `Scope` for each filter serves all neighbours.

This module does no input and no output. It is the same algorithm for one neighbour and for a thousand.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.network.filter_tree import FilterTree
from gateway.network.zones import LOCAL, Side

__all__ = ["EVERYWHERE", "LOCAL", "NOWHERE", "Change", "Interest", "Scope"]


class Scope(NamedTuple):
    """The sides that are told a filter: all of them but ``side``, or no other one than it; None stands for no side."""

    side: Side | None
    is_excluded: bool

    def includes(self, side: Side) -> bool:
        """Whether a side is told."""
        return (side != self.side) is self.is_excluded


EVERYWHERE = Scope(None, True)
NOWHERE = Scope(None, False)


class Change(NamedTuple):
    """A filter that is now told to other sides than before."""

    topic_filter: str
    before: Scope
    now: Scope


class _Wanted:
    """One filter: how many consumers of each side want it, and which sides are told."""

    __slots__ = ("sides", "told")

    def __init__(self) -> None:
        self.sides: dict[Side, int] = {}
        self.told = NOWHERE

    @property
    def useful(self) -> Scope:
        """The sides whose messages are of use to a consumer."""
        if len(self.sides) == 1 and (only := next(iter(self.sides))) != LOCAL:
            return Scope(only, True)
        return EVERYWHERE


class Interest:
    """The topic filters that are wanted at one gateway, and which sides are told of each."""

    def __init__(self) -> None:
        self._wanted: FilterTree[_Wanted] = FilterTree()

    def want(self, topic_filter: str, side: Side) -> list[Change]:
        """One consumer more of a side wants a filter. Returns what changes, what is newly told first."""
        wanted = self._wanted.get(topic_filter)
        if wanted is None:
            wanted = _Wanted()
            self._wanted.put(topic_filter, wanted)
        wanted.sides[side] = wanted.sides.get(side, 0) + 1
        return self._tell(topic_filter, wanted) if wanted.sides[side] == 1 else []

    def want_no_more(self, topic_filter: str, side: Side) -> list[Change]:
        """One consumer less of a side wants a filter. Returns what changes, what is newly told first."""
        wanted = self._wanted.get(topic_filter)
        assert wanted is not None
        wanted.sides[side] -= 1
        if wanted.sides[side]:
            return []
        del wanted.sides[side]
        if wanted.sides:
            return self._tell(topic_filter, wanted)
        self._wanted.remove(topic_filter)
        changes = self._tell_covered(topic_filter)
        return _in_order([*changes, *_change(topic_filter, wanted.told, NOWHERE)])

    def told_to(self, side: Side) -> Iterator[str]:
        """Yields the filters that a side is told."""
        return (topic_filter for topic_filter, wanted in self._wanted.items() if wanted.told.includes(side))

    def _tell(self, topic_filter: str, wanted: _Wanted) -> list[Change]:
        return _in_order([*self._scope(topic_filter, wanted), *self._tell_covered(topic_filter)])

    def _tell_covered(self, topic_filter: str) -> Iterator[Change]:
        for other, wanted in self._wanted.covered(topic_filter):
            yield from self._scope(other, wanted)

    def _scope(self, topic_filter: str, wanted: _Wanted) -> Iterator[Change]:
        """Finds anew which sides are told a filter."""
        before, wanted.told = wanted.told, self._told(topic_filter, wanted.useful)
        yield from _change(topic_filter, before, wanted.told)

    def _told(self, topic_filter: str, useful: Scope) -> Scope:
        """Returns the sides for which a filter is useful and which are told no filter that covers it."""
        uncovered: Side | None = None
        for _, other in self._wanted.covering(topic_filter):
            excluded = other.useful.side
            if excluded is None or uncovered not in (None, excluded):
                return NOWHERE
            uncovered = excluded
        if uncovered is None:
            return useful
        return Scope(uncovered, False) if useful.includes(uncovered) else NOWHERE


def _change(topic_filter: str, before: Scope, now: Scope) -> Iterator[Change]:
    if before != now:
        yield Change(topic_filter, before, now)


def _in_order(changes: Iterable[Change]) -> list[Change]:
    """Puts what more sides are told before what fewer are: a neighbour must not miss a message in between."""
    return sorted(changes, key=lambda change: change.now == NOWHERE or change.before == EVERYWHERE)
