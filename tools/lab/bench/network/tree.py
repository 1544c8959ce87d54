"""A thousand gateways in a tree, without lines: how many announcements a change of interest takes over each link."""

import random
from collections import Counter, deque
from collections.abc import Iterator

from gateway.network.announcements import Announcer, Heard, Mark
from gateway.network.interest import LOCAL, Change, Interest
from gateway.network.zones import Zone
from tools.lab.figure import Figure

ANNOUNCEMENTS_MAX = 1
SUBSCRIPTIONS, CHANGES = 500, 200
FILTERS = [
    "plant/#",
    *(f"plant/{line}/{rest}" for line in range(20) for rest in ("#", "+", "+/state", *map(str, range(20)))),
]
SEED = 1
Link = tuple[int, int]
"""Which gateway tells, and which one hears."""


class Tree:
    """Gateways, each joined to one of those before it. An announcement is under way until it is delivered, in order.

    Args:
        count: of the gateways.
        chance: draws the links, and the order in which announcements are delivered.

    Attributes:
        taken: the announcements that went over each link, in one direction, since it was cleared.
    """

    def __init__(self, count: int, chance: random.Random) -> None:
        self.taken: Counter[Link] = Counter()
        self._chance = chance
        self._interests = [Interest() for _ in range(count)]
        self._announcers = [Announcer(one, chance.randbytes(8)) for one in self._interests]
        self._peers: list[list[int]] = [[] for _ in range(count)]
        for one in range(1, count):
            other = chance.randrange(one)
            self._peers[one].append(other)
            self._peers[other].append(one)
        self._heard = {(here, there): Heard() for here in range(count) for there in self._peers[here]}
        self._under_way: dict[Link, deque[bytes]] = {}  # of the links with any
        self._marks = {link: self._announcers[link[0]].mark() for link in self._heard}
        for here, there in self._heard:
            self._tell(here, there, Heard().mark)
        self.settle()

    def want(self, here: int, topic_filter: str) -> None:
        """A client subscribes, which no other one of this gateway has done."""
        self._spread(here, self._interests[here].want(topic_filter, LOCAL))

    def want_no_more(self, here: int, topic_filter: str) -> None:
        """This client unsubscribes."""
        self._spread(here, self._interests[here].want_no_more(topic_filter, LOCAL))

    def heard(self, here: int) -> set[str]:
        """Returns what the neighbours of a gateway have told it."""
        return {one for there in self._peers[here] for one in self._heard[there, here].filters}

    def settle(self) -> None:
        """Delivers until nothing is under way."""
        while self._under_way:
            for link in self._chance.sample(list(self._under_way), len(self._under_way)):
                here, there = link
                added, removed = self._heard[link].take(self._under_way[link].popleft())
                if not self._under_way[link]:
                    del self._under_way[link]
                side, interest = Zone().side(str(here)), self._interests[there]
                changes = [change for one in added for change in interest.want(one, side)]
                changes += [change for one in removed for change in interest.want_no_more(one, side)]
                self._spread(there, changes)

    def _spread(self, here: int, changes: list[Change]) -> None:
        self._announcers[here].note(changes)
        for there in self._peers[here] if changes else ():
            self._tell(here, there, self._marks[here, there])

    def _tell(self, here: int, there: int, mark: Mark) -> None:
        announcer = self._announcers[here]
        for payload in announcer.news(Zone().side(str(there)), mark):
            self.taken[here, there] += 1
            self._under_way.setdefault((here, there), deque()).append(payload)
        self._marks[here, there] = announcer.mark()


def tree(count: int, changes: int = CHANGES) -> Iterator[Figure]:
    """Counts the announcements of single changes, in a tree with many subscriptions."""
    chance = random.Random(SEED)
    network = Tree(count, chance)
    wanted = [(chance.randrange(count), chance.choice(FILTERS)) for _ in range(SUBSCRIPTIONS)]
    wanted = list(dict.fromkeys(wanted))
    for here, topic_filter in wanted:
        network.want(here, topic_filter)
    network.settle()
    most = 0
    for _ in range(changes):
        network.taken.clear()
        if wanted and chance.random() < 0.5:
            network.want_no_more(*wanted.pop(chance.randrange(len(wanted))))
        else:
            wanted.append((chance.randrange(count), f"plant/{chance.randrange(20)}/{chance.randrange(1000)}/new"))
            network.want(*wanted[-1])
        network.settle()
        most = max(most, *network.taken.values(), 0)
    name = f"{count:,} gateways in a tree: announcements of one change over one link, each way, at most"
    yield Figure(name, "", most, None, ANNOUNCEMENTS_MAX, at_most=True)
