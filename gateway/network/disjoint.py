"""Topic filters for a broker that knows nothing of neighbours: as few as cover an interest, and no two that overlap.

mosquitto and NATS send a message once for each subscription that it matches. So what a gateway SUBSCRIBEs to at such a
broker never overlaps: two filters that match the same topic name become one that covers both. It may match more, which
the gateway then drops.
"""

from collections.abc import Iterable

from gateway.filters.filter_tree import FilterTree


def disjoint(filters: Iterable[str]) -> set[str]:
    """Returns filters that match all topic names that the given ones match, no two of them the same name."""
    found: FilterTree[bool] = FilterTree()
    waiting = list(filters)
    while waiting:
        topic_filter = waiting.pop()
        if found.get(topic_filter) or next(found.covering(topic_filter), None):
            continue
        overlapping = [other for other, _ in found.overlapping(topic_filter)]
        for other in overlapping:
            found.remove(other)
            topic_filter = join(topic_filter, other)
        if overlapping:
            waiting.append(topic_filter)  # it matches more than its parts, and may overlap others
        else:
            found.put(topic_filter, True)
    return {topic_filter for topic_filter, _ in found.items()}


def join(first: str, second: str) -> str:
    """Returns the narrowest filter that covers two filters which match the same topic name."""
    if "#" in (first, second):
        return "#"
    levels, others = first.split("/"), second.split("/")
    joined: list[str] = []
    for level, other in zip(levels, others, strict=False):
        if "#" in (level, other):
            return "/".join([*joined, "#"])
        joined.append(level if level == other else "+")
    return "/".join(joined if len(levels) == len(others) else [*joined, "#"])  # "a/#" matches "a" too
