"""The topic filters to which a route SUBSCRIBEs at an ordinary broker: they cover an interest without overlaps."""

from collections.abc import Iterable

from gateway.routes import FilterTree, disjoint


class Cover:
    """The filters that cover an interest, as it changes.

    ``filters`` are these; no two of them match the same topic name.
    """

    def __init__(self, filters: Iterable[str]) -> None:
        self._wanted = dict.fromkeys(filters)
        self._tree: FilterTree[bool] = FilterTree()
        self.filters: dict[str, None] = {}
        self._renew()

    def change(self, added: Iterable[str], removed: Iterable[str]) -> tuple[list[str], list[str]]:
        """Changes the interest; returns the filters that the cover has now, and those that it no longer has."""
        before = self.filters
        for topic_filter in removed:
            self._wanted.pop(topic_filter, None)
        added = list(added)
        self._wanted.update(dict.fromkeys(added))
        is_apart = all(topic_filter not in before for topic_filter in removed)
        if is_apart and all(self._fits(topic_filter) for topic_filter in added):
            new = [one for one in added if one not in before and next(self._tree.covering(one), None) is None]
            for topic_filter in new:
                self._tree.put(topic_filter, True)
            self.filters = before | dict.fromkeys(new)
        else:
            self._renew()
        return [one for one in self.filters if one not in before], [one for one in before if one not in self.filters]

    def _fits(self, topic_filter: str) -> bool:
        """Whether the cover has a filter already, or can have it besides the others."""
        is_covered = topic_filter in self.filters or next(self._tree.covering(topic_filter), None) is not None
        return is_covered or next(self._tree.overlapping(topic_filter), None) is None

    def _renew(self) -> None:
        self.filters = dict.fromkeys(sorted(disjoint(self._wanted)))
        self._tree = FilterTree()
        for topic_filter in self.filters:
            self._tree.put(topic_filter, True)
