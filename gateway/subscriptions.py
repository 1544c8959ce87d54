"""Who wants which topics: one subscription, and the tree that finds the subscribers of a topic."""

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from wire.topics import parse_shared

Subscriber = TypeVar("Subscriber")


@dataclass(slots=True, frozen=True)
class Subscription:
    """One topic filter of one consumer.

    ``qos`` is the highest QoS it takes; ``since`` is the log's position when it was made: what is stored up to
    there is not for it; ``not_from`` is the client whose own messages it does not want (No Local).
    ``retain_as_published`` leaves a message its RETAIN flag; ``identifier`` is the subscription's, 0 for none.
    """

    topic_filter: str
    qos: int = 2
    since: int = 0
    not_from: str | None = None
    retain_as_published: bool = False
    identifier: int = 0


LEVELS_OF_ONE, CHARACTERS_OF_ONE = 10, 500
SIZE_OF_ONE, SIZE_OF_LEVEL, SIZE_OF_SHARED = 700, 350, 6_000
SHARED_COUNTS = 10  # as how many subscriptions a shared one does: it is a consumer by itself
PATTERNS_MAX = 100  # of one session: so many of its subscriptions, and one more, can match one topic name


class Demand:
    """What one session's subscriptions cost, by their topic filters; a shared one's begins with its share name.

    ``weight`` is as how many they count: each once, a shared one ten times, and each once more for every ten slashes
    and 500 characters, since the tree has a branch for each level and keeps each character.

    Filters with wildcards in the same places are of one pattern. Two of a pattern never match the same topic name, so a
    name matches as many of a session's subscriptions as there are patterns, and one without wildcards.
    """

    __slots__ = ("_patterns", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self._patterns: dict[str, int] = {}

    def fits(self, topic_filter: str, most: int) -> bool:
        """Whether a subscription more stays within a weight, and within PATTERNS_MAX."""
        if self.weight + _weight(topic_filter) > most:
            return False
        pattern = _pattern(topic_filter)
        return not pattern or pattern in self._patterns or len(self._patterns) < PATTERNS_MAX

    def add(self, topic_filter: str) -> None:
        """Counts a subscription."""
        self.weight += _weight(topic_filter)
        if pattern := _pattern(topic_filter):
            self._patterns[pattern] = self._patterns.get(pattern, 0) + 1

    def remove(self, topic_filter: str) -> None:
        """The opposite of ``add``."""
        self.weight -= _weight(topic_filter)
        if pattern := _pattern(topic_filter):
            self._patterns[pattern] -= 1
            if not self._patterns[pattern]:
                del self._patterns[pattern]


def size_of(topic_filter: str) -> int:
    """Returns the bytes of memory that a subscription takes, roughly and rather too many."""
    shared = SIZE_OF_SHARED if topic_filter.startswith("$share/") else 0
    return SIZE_OF_ONE + SIZE_OF_LEVEL * (1 + topic_filter.count("/")) + 2 * len(topic_filter) + shared


def _weight(topic_filter: str) -> int:
    once = SHARED_COUNTS if topic_filter.startswith("$share/") else 1
    return once + topic_filter.count("/") // LEVELS_OF_ONE + len(topic_filter) // CHARACTERS_OF_ONE


def _pattern(topic_filter: str) -> str:
    """Its wildcards, and for each other level nothing; "" where there are none. Share names differ in what they get, so
    each of them makes patterns of its own."""
    share_name, bare_filter = parse_shared(topic_filter)
    if "+" not in bare_filter and "#" not in bare_filter:
        return "" if share_name is None else f"$share/{share_name}"
    pattern = "/".join(level if level in ("+", "#") else "" for level in bare_filter.split("/"))
    return pattern if share_name is None else f"$share/{share_name}/{pattern}"


_NOTHING: dict[Any, Any] = {}  # of all nodes that have none: most have either subscribers or children


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
        """Takes a subscriber out again, and with it the branches that then lead nowhere."""
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
        wildcards = not topic.startswith("$")  # none at the first level match such names [MQTT-4.7.2-1]
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
            if "#" in node.children:  # the parent level is taken as well
                found.update(node.children["#"].subscribers)
        return found
