"""What a gateway tells its neighbours: the topic filters that its clients and its other neighbours want.

A neighbour is told a filter if the gateway has a use for its messages: a local client wants it, or a neighbour on
another side (see `zones`). A filter that another one covers is not told, as long as the covering one is.

What is told depends on the side that hears it, but for nearly all filters it is the same for all sides, or for all
but one: the only side that wants it. So one `Scope` for each filter serves all neighbours.

This module does no input and no output. It is the same algorithm for one neighbour and for a thousand.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from gateway.filters.filter_tree import FilterTree
from gateway.network.zones import LOCAL, Side

__all__ = ["EVERYWHERE", "LOCAL", "NOWHERE", "Change", "Interest", "Scope"]

SHARED_MAX = 1_000  # values of each kind that are found again, and so shared


class Scope(NamedTuple):
    """The sides that are told a filter: all of them but ``side``, or no other one than it; None stands for no side."""

    side: Side | None
    is_excluded: bool

    def includes(self, side: Side) -> bool:
        """Whether a side is told."""
        return (side != self.side) is self.is_excluded


Sides = tuple[tuple[Side, int], ...]
"""How many consumers of each side want a filter."""

EVERYWHERE = Scope(None, True)
NOWHERE = Scope(None, False)


class Change(NamedTuple):
    """A filter that is now told to other sides than before."""

    topic_filter: str
    before: Scope
    now: Scope


class _Wanted:
    """One filter: how many consumers of each side want it, and which sides are told.

    Nearly all filters of a network have the same few values, so these are made once and shared.
    """

    __slots__ = ("sides", "told")

    def __init__(self) -> None:
        self.sides: Sides = ()
        self.told = NOWHERE

    @property
    def useful(self) -> Scope:
        """The sides whose messages are of use to a consumer."""
        return _useful(self.sides)


class Interest:
    """The topic filters that are wanted at one gateway, and which sides are told of each."""

    def __init__(self) -> None:
        self._wanted: FilterTree[_Wanted] = FilterTree()
        self._told: Counter[Scope] = Counter()  # how many filters are told to these sides

    def want(self, topic_filter: str, side: Side) -> list[Change]:
        """One consumer more of a side wants a filter. Returns what changes, what is newly told first."""
        wanted = self._wanted.get(topic_filter)
        if wanted is None:
            wanted = _Wanted()
            self._wanted.put(topic_filter, wanted)
        return self._count(topic_filter, wanted, side, 1)

    def want_no_more(self, topic_filter: str, side: Side) -> list[Change]:
        """One consumer less of a side wants a filter. Returns what changes, what is newly told first."""
        wanted = self._wanted.get(topic_filter)
        assert wanted is not None
        changes = self._count(topic_filter, wanted, side, -1)
        if not wanted.sides:
            self._wanted.remove(topic_filter)
        return changes

    def related(self, topic_filter: str) -> Iterator[tuple[str, bool]]:
        """Yields the filters that cover a filter (True), then all that overlap it (False), of all sides."""
        for other, _ in self._wanted.covering(topic_filter):
            yield other, True
        for other, _ in self._wanted.overlapping(topic_filter):
            yield other, False

    def told_to(self, side: Side) -> Iterator[str]:
        """Yields the filters that a side is told."""
        return (topic_filter for topic_filter, wanted in self._wanted.items() if wanted.told.includes(side))

    def count_told(self, side: Side) -> int:
        """Returns how many filters a side is told."""
        return sum(count for scope, count in self._told.items() if scope.includes(side))

    def is_told(self, topic_filter: str, side: Side) -> bool:
        """Returns whether a side is told a filter."""
        wanted = self._wanted.get(topic_filter)
        return wanted is not None and wanted.told.includes(side)

    def count_local(self, topic_filter: str) -> int:
        """Returns how many consumers of this gateway want a filter."""
        wanted = self._wanted.get(topic_filter)
        return 0 if wanted is None else dict(wanted.sides).get(LOCAL, 0)

    def filters(self) -> list[str]:
        """Returns all filters that are wanted."""
        return [topic_filter for topic_filter, _ in self._wanted.items()]

    def told_of(self, topic: str, side: Side) -> Iterator[str]:
        """Yields the filters that a side is told and that match a topic name."""
        return (topic_filter for topic_filter, wanted in self._wanted.match(topic) if wanted.told.includes(side))

    def _count(self, topic_filter: str, wanted: _Wanted, side: Side, change: int) -> list[Change]:
        before = wanted.useful
        wanted.sides = _counted(wanted.sides, side, change)
        if wanted.useful == before:
            return []
        uncovered = self._uncovered(topic_filter)
        changes = list(_tell(topic_filter, wanted, uncovered))
        if uncovered != NOWHERE:  # else what this filter covers is told nowhere either, whatever this one is
            is_enough = wanted.useful == EVERYWHERE  # then no side is told what this filter covers
            for other, covered in self._wanted.covered(topic_filter):
                changes += _tell(other, covered, NOWHERE if is_enough else self._uncovered(other))
        for _, told_before, told in changes:
            self._told[told] += 1
            self._told[told_before] -= 1
            if not self._told[told_before]:
                del self._told[told_before]
        return _in_order(changes)

    def _uncovered(self, topic_filter: str) -> Scope:
        """Returns the sides that are told no filter that covers a filter."""
        uncovered = EVERYWHERE
        for _, other in self._wanted.covering(topic_filter):
            useful = other.useful
            if useful == NOWHERE:
                continue
            if useful.side is None or uncovered.side not in (None, useful.side):
                return NOWHERE
            uncovered = _only(useful.side)
        return uncovered


def changes_for(side: Side, changes: Iterable[Change]) -> tuple[list[str], list[str]]:
    """Returns the filters that a side is newly told, and the filters of which it is told that they are wanted no more.

    One that comes and goes again among the changes, as when the next one covers it, is in neither list.
    """
    before: dict[str, bool] = {}
    now: dict[str, bool] = {}
    for topic_filter, told_before, told_now in changes:
        before.setdefault(topic_filter, told_before.includes(side))
        now[topic_filter] = told_now.includes(side)
    changed = [one for one in now if now[one] != before[one]]
    return [one for one in changed if now[one]], [one for one in changed if not now[one]]


@lru_cache(SHARED_MAX)
def _counted(sides: Sides, side: Side, change: int) -> Sides:
    counts = dict(sides)
    counts[side] = counts.get(side, 0) + change
    return tuple((one, count) for one, count in counts.items() if count)


@lru_cache(SHARED_MAX)
def _useful(sides: Sides) -> Scope:
    """Returns the sides that are told of a filter that these sides want, if no other filter covers it."""
    if not sides:
        return NOWHERE
    return EVERYWHERE if len(sides) > 1 or sides[0][0] == LOCAL else Scope(sides[0][0], True)


@lru_cache(SHARED_MAX)
def _only(side: Side) -> Scope:
    return Scope(side, False)


def _tell(topic_filter: str, wanted: _Wanted, uncovered: Scope) -> Iterator[Change]:
    """Finds anew which sides are told a filter: those for which it is useful and which are told none that covers it."""
    before, useful = wanted.told, wanted.useful
    if uncovered == EVERYWHERE:
        wanted.told = useful
    else:
        is_told = uncovered.side is not None and useful.includes(uncovered.side)
        wanted.told = uncovered if is_told else NOWHERE
    if wanted.told != before:
        yield Change(topic_filter, before, wanted.told)


def _in_order(changes: Iterable[Change]) -> list[Change]:
    """Puts what more sides are told before what fewer are: a neighbour must not miss a message in between."""
    return sorted(changes, key=lambda change: change.now == NOWHERE or change.before == EVERYWHERE)
