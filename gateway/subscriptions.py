"""A subscription, what a session's subscriptions cost, and the tree that finds the subscribers of a topic."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.filters.filter_tree import FilterTree
from wire.topics import parse_shared

Subscriber = TypeVar("Subscriber")
LEVELS_OF_ONE, CHARACTERS_OF_ONE = 10, 500
SIZE_OF_ONE, SIZE_OF_SHARED = 500, 6_000
SIZE_OF_LEVEL = 350  # of a filter with wildcards: the tree has no nodes for the others
SELECTED_BY_ONE, SIZE_OF_SELECTOR, SIZE_OF_SELECTING = 100, 1_200, 210  # the last one for each character
SHARED_COUNTS = 10  # a shared subscription counts as this many: it is a consumer of its own
SELECTED_MAX = 10_240
"""The most characters of a session's selectors that look at one topic name: one takes up to 0.7 µs for each message."""
PATTERNS_MAX = 100  # of one session: no more than this, and one more, of its subscriptions match one topic name


@dataclass(slots=True, frozen=True)
class Subscription:
    """One topic filter of one consumer.

    ``qos`` is its maximum QoS. ``since`` is the log's position when it was made: it takes messages behind that alone.
    ``not_from`` is the client identifier whose messages it does not take (No Local). ``retain_as_published`` keeps a
    message's RETAIN flag. ``identifier`` is its Subscription Identifier, 0 for none. ``takes_qos_0``: messages of QoS 0
    are stored for it, and it takes them at QoS 1. ``select`` is the selector that its messages have to pass, "": none.
    ``naming`` is how its client has named the stream (`gateway.streams.names`).
    ``earlier`` are narrower filters that it replaces, each with its ``since``: it takes what waited for them too.
    """

    topic_filter: str
    qos: int = 2
    since: int = 0
    not_from: str | None = None
    retain_as_published: bool = False
    identifier: int = 0
    takes_qos_0: bool = False
    select: str = ""
    earlier: tuple[tuple[str, int], ...] = ()
    naming: str = ""


class Demand:
    """What one session's subscriptions cost, by their topic filters; a shared one begins with its share name.

    ``weight`` is their sum: one for each, ten for a shared one, and one more for every ten slashes and for every 500
    characters, since it takes time to look at each of them. A selector weighs one for every 100
    characters.

    Filters with wildcards at the same levels have the same pattern. Two filters of a pattern never match the same topic
    name, so a name matches at most one subscription for each pattern, and one without wildcards.
    """

    __slots__ = ("_patterns", "_selected", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self._patterns: dict[str, int] = {}
        self._selected: dict[str, int] | None = None  # the characters of the longest selector of each pattern

    def fits(self, topic_filter: str, most: int, select: str = "") -> bool:
        """Whether one more subscription stays within the weight ``most``, PATTERNS_MAX and SELECTED_MAX."""
        if self.weight + _weight(topic_filter, select) > most:
            return False
        pattern = _pattern(topic_filter)
        if select and sum(self._selected_with(pattern, select).values()) > SELECTED_MAX:
            return False
        return not pattern or pattern in self._patterns or len(self._patterns) < PATTERNS_MAX

    def add(self, topic_filter: str, select: str = "") -> None:
        """Counts a subscription."""
        self.weight += _weight(topic_filter, select)
        if pattern := _pattern(topic_filter):
            self._patterns[pattern] = self._patterns.get(pattern, 0) + 1
        if select:
            self._selected = self._selected_with(_pattern(topic_filter), select)

    def remove(self, topic_filter: str, select: str = "") -> None:
        """Counts a subscription no more."""
        self.weight -= _weight(topic_filter, select)
        if pattern := _pattern(topic_filter):
            self._patterns[pattern] -= 1
            if not self._patterns[pattern]:
                del self._patterns[pattern]
                if self._selected is not None:
                    self._selected.pop(pattern, None)

    def _selected_with(self, pattern: str, select: str) -> dict[str, int]:
        selected = self._selected or {}
        return {**selected, pattern: max(selected.get(pattern, 0), len(select))}


def size_of(topic_filter: str, select: str = "") -> int:
    """Returns about how many bytes of memory a subscription takes, rather too many than too few."""
    shared = SIZE_OF_SHARED if topic_filter.startswith("$share/") else 0
    selecting = SIZE_OF_SELECTOR + SIZE_OF_SELECTING * len(select) if select else 0
    levels = 1 + topic_filter.count("/") if "+" in topic_filter or "#" in topic_filter else 0
    return SIZE_OF_ONE + SIZE_OF_LEVEL * levels + 2 * len(topic_filter) + shared + selecting


def _weight(topic_filter: str, select: str) -> int:
    once = SHARED_COUNTS if topic_filter.startswith("$share/") else 1
    of_filter = topic_filter.count("/") // LEVELS_OF_ONE + len(topic_filter) // CHARACTERS_OF_ONE
    return once + of_filter + -(-len(select) // SELECTED_BY_ONE)


def _pattern(topic_filter: str) -> str:
    """A filter's wildcards with an empty level for each other one; "" if it has none.

    Each share name has patterns of its own, since two shares of a filter get different messages.
    """
    share_name, bare_filter = parse_shared(topic_filter)
    if "+" not in bare_filter and "#" not in bare_filter:
        return "" if share_name is None else f"$share/{share_name}"
    pattern = "/".join(level if level in ("+", "#") else "" for level in bare_filter.split("/"))
    return pattern if share_name is None else f"$share/{share_name}/{pattern}"


class SubscriptionTree(Generic[Subscriber]):
    """Subscribers by topic filter."""

    def __init__(self) -> None:
        self._tree: FilterTree[Subscriber | _Several[Subscriber]] = FilterTree()

    def add(self, topic_filter: str, subscriber: Subscriber) -> None:
        """Adds a subscriber; adding it again changes nothing."""
        there = self._tree.get(topic_filter)
        if there is None:
            self._tree.put(topic_filter, subscriber)
        elif isinstance(there, _Several):
            there[subscriber] = None
        elif there != subscriber:
            self._tree.put(topic_filter, _Several({there: None, subscriber: None}))

    def discard(self, topic_filter: str, subscriber: Subscriber) -> None:
        """Removes a subscriber of a filter, if it is one."""
        there = self._tree.get(topic_filter)
        if isinstance(there, _Several):
            there.pop(subscriber, None)
            if len(there) == 1:
                self._tree.put(topic_filter, next(iter(there)))
        elif there == subscriber:
            self._tree.remove(topic_filter)

    def match(self, topic: str) -> list[tuple[str, Collection[Subscriber]]]:
        """Returns the filters that match a topic name, each with its subscribers."""
        found = self._tree.match(topic)
        return [(one, there if isinstance(there, _Several) else (there,)) for one, there in found]


class _Several(dict[Subscriber, None]):
    """The subscribers of one filter; most filters have a single one, which takes no dictionary."""

    __slots__ = ()
