"""Which patterns a route subscribes to in another system, for the topic filters of what it imports.

The other systems send a message once for each pattern of a connection that it matches: filters that overlap would bring
it twice. So ``exact`` refuses such filters, ``cover`` joins them into as few as cover all of them without an overlap,
and ``all`` subscribes to each as it is.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from gateway.links import disjoint
from gateway.routes import FilterTree
from uplink.foreign.names import Names

BELOW = "below/"  # so that no level is the first one: MQTT's wildcards pass over `$` there, and the others do not
SubscribeMode = Literal["exact", "cover", "all"]


class Overlap(NamedTuple):
    """Two topic filters that match the same topic name: the later one by its place, and the earlier one."""

    place: int
    first: str
    second: str


def overlaps(filters: Sequence[str]) -> Iterator[Overlap]:
    """Yields each topic filter that overlaps an earlier one."""
    tree: FilterTree[bool] = FilterTree()
    for place, topic_filter in enumerate(BELOW + one for one in filters):
        covering = [topic_filter] if tree.get(topic_filter) else [one for one, _ in tree.covering(topic_filter)]
        found = covering or [one for one, _ in tree.covered(topic_filter)]
        found = found or [one for one, _ in tree.overlapping(topic_filter)]
        if found:
            yield Overlap(place, found[0].removeprefix(BELOW), topic_filter.removeprefix(BELOW))
        tree.put(topic_filter, True)


def patterns(filters: Sequence[str], mode: SubscribeMode, names: Names) -> list[str]:
    """Returns the patterns to subscribe to, each once. Raises NoName."""
    wanted = list(filters)
    if mode == "cover":
        wanted = sorted(one.removeprefix(BELOW) for one in disjoint(BELOW + one for one in filters))
    return list(dict.fromkeys(pattern for one in wanted for pattern in names.patterns_of(one)))
