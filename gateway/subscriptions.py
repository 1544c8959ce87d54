"""A subscription, what a session's subscriptions cost, and the tree that finds the subscribers of a topic."""

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from wire.topics import parse_shared

Subscriber = TypeVar("Subscriber")
LEVELS_OF_ONE, CHARACTERS_OF_ONE = 10, 500
SIZE_OF_ONE, SIZE_OF_LEVEL, SIZE_OF_SHARED = 700, 350, 6_000
SELECTED_BY_ONE, SIZE_OF_SELECTOR, SIZE_OF_SELECTING = 100, 1_200, 210  # the last one for each character
SHARED_COUNTS = 10  # a shared subscription counts as this many: it is a consumer of its own
PATTERNS_MAX = 100  # of one session: no more than this, and one more, of its subscriptions match one topic name
_NOTHING: dict[Any, Any] = {}  # shared by all nodes: most have either subscribers or children, not both


@dataclass(slots=True, frozen=True)
class Subscription:
    """One topic filter of one consumer.

    ``qos`` is its maximum QoS. ``since`` is the log's position when it was made: it takes messages behind that alone.
    ``not_from`` is the client identifier whose messages it does not take (No Local). ``retain_as_published`` keeps a
    message's RETAIN flag. ``identifier`` is its Subscription Identifier, 0 for none. ``takes_qos_0``: messages of QoS 0
    are stored for it, and it takes them at QoS 1. ``select`` is the selector that its messages have to pass, "": none.
    """

    topic_filter: str
    qos: int = 2
    since: int = 0
    not_from: str | None = None
    retain_as_published: bool = False
    identifier: int = 0
    takes_qos_0: bool = False
    select: str = ""


class Demand:
    """What one session's subscriptions cost, by their topic filters; a shared one begins with its share name.

    ``weight`` is their sum: one for each, ten for a shared one, and one more for every ten slashes and for every 500
    characters, since the tree has a node for each level and holds each character. A selector weighs one for every 100
    characters.

    Filters with wildcards at the same levels have the same pattern. Two filters of a pattern never match the same topic
    name, so a name matches at most one subscription for each pattern, and one without wildcards.
    """

    __slots__ = ("_patterns", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self._patterns: dict[str, int] = {}

    def fits(self, topic_filter: str, most: int, select: str = "") -> bool:
        """Whether one more subscription stays within the weight ``most`` and within PATTERNS_MAX."""
        if self.weight + _weight(topic_filter, select) > most:
            return False
        pattern = _pattern(topic_filter)
        return not pattern or pattern in self._patterns or len(self._patterns) < PATTERNS_MAX

    def add(self, topic_filter: str, select: str = "") -> None:
        """Counts a subscription."""
        self.weight += _weight(topic_filter, select)
        if pattern := _pattern(topic_filter):
            self._patterns[pattern] = self._patterns.get(pattern, 0) + 1

    def remove(self, topic_filter: str, select: str = "") -> None:
        """Counts a subscription no more."""
        self.weight -= _weight(topic_filter, select)
        if pattern := _pattern(topic_filter):
            self._patterns[pattern] -= 1
            if not self._patterns[pattern]:
                del self._patterns[pattern]


def size_of(topic_filter: str, select: str = "") -> int:
    """Returns about how many bytes of memory a subscription takes, rather too many than too few."""
    shared = SIZE_OF_SHARED if topic_filter.startswith("$share/") else 0
    selecting = SIZE_OF_SELECTOR + SIZE_OF_SELECTING * len(select) if select else 0
    return SIZE_OF_ONE + SIZE_OF_LEVEL * (1 + topic_filter.count("/")) + 2 * len(topic_filter) + shared + selecting


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


@dataclass(slots=True)
class _Node(Generic[Subscriber]):
    children: dict[str, "_Node[Subscriber]"] = field(default_factory=lambda: _NOTHING)
    subscribers: dict[Subscriber, None] = field(default_factory=lambda: _NOTHING)  # an empty set takes more memory


class SubscriptionTree(Generic[Subscriber]):
    """Subscribers by topic filter, level by level; ``+`` and ``#`` are levels like any other."""

    def __init__(self) -> None:
        self._root: _Node[Subscriber] = _Node()

    def add(self, topic_filter: str, subscriber: Subscriber) -> None:
        """Adds a subscriber; adding it again changes nothing."""
        node = self._root
        for level in topic_filter.split("/"):
            if node.children is _NOTHING:
                node.children = {}
            node = node.children.setdefault(level, _Node())
        if node.subscribers is _NOTHING:
            node.subscribers = {}
        node.subscribers[subscriber] = None

    def discard(self, topic_filter: str, subscriber: Subscriber) -> None:
        """Removes a subscriber, and the nodes that are empty then."""
        levels = topic_filter.split("/")
        path = [self._root]
        for level in levels:
            if level not in path[-1].children:
                return
            path.append(path[-1].children[level])
        path[-1].subscribers.pop(subscriber, None)
        for level, node, parent in zip(reversed(levels), reversed(path), reversed(path[:-1]), strict=False):
            if not node.children and not node.subscribers:
                del parent.children[level]

    def match(self, topic: str) -> set[Subscriber]:
        """Returns the subscribers of a topic name, each once, however many of its filters match."""
        found: set[Subscriber] = set()
        nodes = [self._root]
        wildcards = not topic.startswith("$")  # no wildcard at the first level matches such a name [MQTT-4.7.2-1]
        for level in topic.split("/"):
            following = []
            for node in nodes:
                children = node.children
                if level in children:
                    following.append(children[level])
                if wildcards and "+" in children:
                    following.append(children["+"])
                if wildcards and "#" in children:
                    found.update(children["#"].subscribers)
            nodes, wildcards = following, True
        for node in nodes:
            found.update(node.subscribers)
            if "#" in node.children:  # "a/#" matches "a" too
                found.update(node.children["#"].subscribers)
        return found
