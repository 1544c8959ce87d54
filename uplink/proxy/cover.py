"""The topic filters to which a route SUBSCRIBEs at an ordinary broker: they cover an interest without overlaps."""

from collections.abc import Iterable, Iterator, Sequence

from gateway.links import disjoint
from gateway.routes import FilterTree


class Cover:
    """The filters that cover an interest, as it changes.

    ``filters`` are these; no two of them match the same topic name.
    """

    def __init__(self, filters: Iterable[str]) -> None:
        self._wanted: FilterTree[bool] = FilterTree()
        for topic_filter in filters:
            self._wanted.put(topic_filter, True)
        self._tree: FilterTree[bool] = FilterTree()
        self.filters: dict[str, None] = {}
        self._changes: dict[str, bool] = {}  # by filter: whether the cover gained it or lost it
        self._renew()

    def change(self, added: Sequence[str], removed: Sequence[str]) -> tuple[list[str], list[str]]:
        """Changes the interest; returns the filters that the cover has gained, and the filters that it has lost."""
        self._changes = {}
        for topic_filter in added:
            self._wanted.put(topic_filter, True)
        for topic_filter in removed:
            self._wanted.remove(topic_filter)
        if not (all(map(self._leave, removed)) and all(map(self._enter, added))):
            self._renew()
        changes = self._changes
        return [one for one, is_there in changes.items() if is_there], [one for one in changes if not changes[one]]

    def of(self, topic: str) -> Iterator[str]:
        """Yields the filter of the cover that matches a topic name, if one does."""
        return (topic_filter for topic_filter, _ in self._tree.match(topic))

    def _enter(self, topic_filter: str) -> bool:
        """Adds a filter to the cover unless it is covered; returns False if it overlaps others."""
        if topic_filter in self.filters or next(self._tree.covering(topic_filter), None):
            return True
        if next(self._tree.overlapping(topic_filter), None):
            return False
        self._put(topic_filter)
        return True

    def _leave(self, topic_filter: str) -> bool:
        """Removes a filter from the cover; returns False if the cover has it, or a wider one, for others too."""
        if topic_filter not in self.filters or next(self._wanted.covered(topic_filter), None):
            return False
        self._take_out(topic_filter)
        return True

    def _renew(self) -> None:
        wanted = disjoint(topic_filter for topic_filter, _ in self._wanted.items())
        for topic_filter in [one for one in self.filters if one not in wanted]:
            self._take_out(topic_filter)
        for topic_filter in sorted(wanted - self.filters.keys()):
            self._put(topic_filter)

    def _put(self, topic_filter: str) -> None:
        self.filters[topic_filter] = None
        self._tree.put(topic_filter, True)
        self._note(topic_filter, is_there=True)

    def _take_out(self, topic_filter: str) -> None:
        del self.filters[topic_filter]
        self._tree.remove(topic_filter)
        self._note(topic_filter, is_there=False)

    def _note(self, topic_filter: str, *, is_there: bool) -> None:
        if self._changes.pop(topic_filter, is_there) == is_there:
            self._changes[topic_filter] = is_there
