"""What gateways tell each other, in networks without lines: against a model that looks at the whole network at once."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.filters.filter_tree import FilterTree
from gateway.network.interest import LOCAL, Change, Interest, changes_for
from gateway.network.zones import Side, Zone
from wire.topics import matches

FILTERS = [
    *("#", "a/#", "a/+", "a/b", "a/b/c", "+/b", "b", "b/+/c", "b/x/c", "b/#", "+/+/c", "$SYS/#", "$SYS/a"),
    *(f"site-{number}/{rest}" for number in range(5) for rest in ("#", "+", "t", "t/1", "t/+")),
]
NAMES = [
    "a",
    "a/b",
    "a/b/c",
    "b",
    "b/x/c",
    "q",
    "$SYS/a",
    *(f"site-{n}/{rest}" for n in range(5) for rest in ("t", "t/1", "u")),
]


class Network:
    """Gateways in a tree or, with one-hop zones, in several cliques; each link is a queue in both directions."""

    def __init__(
        self, count: int, links: list[tuple[int, int]], zone_of: Callable[[int, int], Zone], chance: random.Random
    ) -> None:
        self.chance = chance
        self.interests = [Interest() for _ in range(count)]
        self.wanted: list[dict[str, int]] = [{} for _ in range(count)]
        self.zones = {pair: zone_of(*link) for link in links for pair in (link, link[::-1])}
        self.peers: dict[int, list[int]] = {one: [] for one in range(count)}
        for one, other in links:
            self.peers[one].append(other)
            self.peers[other].append(one)
        self.up: dict[tuple[int, int], bool] = dict.fromkeys(self.zones, False)
        self.queues: dict[tuple[int, int], deque[tuple[bool, str]]] = {pair: deque() for pair in self.zones}
        self.heard: dict[tuple[int, int], dict[str, None]] = {pair: {} for pair in self.zones}
        for link in links:
            self.connect(*link)

    def side(self, here: int, there: int) -> Side:
        return self.zones[here, there].side(str(there))

    def spread(self, here: int, changes: list[Change]) -> None:
        """Tells the neighbours that are connected what has changed for their sides."""
        for there in self.peers[here]:
            side = self.side(here, there)
            for topic_filter, before, now in changes:
                if self.up[here, there] and before.includes(side) != now.includes(side):
                    self.queues[here, there].append((now.includes(side), topic_filter))

    def connect(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.up[here, there] = True
            self.queues[here, there].extend(
                (True, told) for told in self.interests[here].told_to(self.side(here, there))
            )

    def cut(self, one: int, other: int) -> None:
        """The line ends; each side forgets what the other one wanted."""
        for here, there in ((one, other), (other, one)):
            self.up[here, there] = False
            self.queues[here, there].clear()
        for here, there in ((one, other), (other, one)):
            heard, self.heard[here, there] = self.heard[here, there], {}
            for topic_filter in heard:
                self.spread(there, self.interests[there].want_no_more(topic_filter, self.side(there, here)))

    def deliver(self, here: int, there: int) -> None:
        """Takes the next announcement out of a queue."""
        is_wanted, topic_filter = self.queues[here, there].popleft()
        side = self.side(there, here)
        if is_wanted:
            assert topic_filter not in self.heard[here, there]
            self.heard[here, there][topic_filter] = None
            self.spread(there, self.interests[there].want(topic_filter, side))
        else:
            del self.heard[here, there][topic_filter]
            self.spread(there, self.interests[there].want_no_more(topic_filter, side))

    def change(self, here: int) -> None:
        """A local client subscribes or unsubscribes."""
        topic_filter, wanted = self.chance.choice(FILTERS), self.wanted[here]
        if topic_filter in wanted and self.chance.random() < 0.6:
            wanted[topic_filter] -= 1
            if not wanted[topic_filter]:
                del wanted[topic_filter]
            self.spread(here, self.interests[here].want_no_more(topic_filter, LOCAL))
        else:
            wanted[topic_filter] = wanted.get(topic_filter, 0) + 1
            self.spread(here, self.interests[here].want(topic_filter, LOCAL))

    def settle(self) -> None:
        """Delivers until nothing is under way, in any order between links and in order on each."""
        while waiting := [pair for pair, queue in self.queues.items() if queue]:
            for pair in self.chance.sample(waiting, len(waiting)):
                for _ in range(self.chance.randrange(1, 4)):
                    if self.queues[pair]:
                        self.deliver(*pair)

    # The model

    def behind(self, here: int, there: int) -> set[str]:
        """Returns the filters of the local clients that hear what crosses the link from `there` to `here`."""
        found: set[str] = set()
        seen = {(here, there)}
        waiting = [(here, there)]
        while waiting:
            one, came_from = waiting.pop()
            found |= self.wanted[one].keys()
            for other in self.peers[one]:
                if (
                    self.up[one, other]
                    and self.side(one, other) != self.side(one, came_from)
                    and (other, one) not in seen
                ):
                    seen.add((other, one))
                    waiting.append((other, one))
        return found

    def check(self) -> None:
        """Each link has exactly the interest behind it, and no filter that another one covers."""
        for here, there in self.zones:
            told = set(self.heard[here, there])
            behind = self.behind(here, there) if self.up[here, there] else set()
            assert told == {one for one in behind if not any(_covers(other, one) for other in behind if other != one)}
            for name in NAMES:
                assert any(matches(one, name) for one in told) == any(matches(one, name) for one in behind)


def _covers(wide: str, narrow: str) -> bool:
    if narrow.startswith("$") and wide.startswith(("+", "#")):
        return False
    wides, narrows = wide.split("/"), narrow.split("/")
    for place, level in enumerate(wides):
        if level == "#":
            return True
        if place >= len(narrows) or narrows[place] == "#" or level not in ("+", narrows[place]):
            return False
    return len(wides) == len(narrows)


def tree(count: int, chance: random.Random) -> list[tuple[int, int]]:
    return [(chance.randrange(one), one) for one in range(1, count)]


@pytest.mark.parametrize("count", [2, 3, 7, 40])
def test_each_link_of_a_tree_has_exactly_the_interest_behind_it(count: int, seed: int) -> None:
    chance = random.Random(seed)
    links = tree(count, chance)
    network = Network(count, links, lambda *_: Zone(), chance)
    for _ in range(12):
        for _ in range(3 * count):
            match chance.randrange(8):
                case 0:
                    one = chance.choice(links)
                    (network.cut if network.up[one] else network.connect)(*one)
                case 1 | 2 | 3 if waiting := [pair for pair, queue in network.queues.items() if queue]:
                    network.deliver(*chance.choice(waiting))
                case _:
                    network.change(chance.randrange(count))
        network.settle()
        network.check()


def test_cities_with_overlapping_zones_pass_on_what_came_from_another_zone_alone(seed: int) -> None:
    """Three cliques of one hop each; neighbouring ones share a gateway."""
    chance = random.Random(seed)
    cities = [range(5), range(4, 9), range(8, 12)]
    links = [(one, other) for city in cities for one in city for other in city if one < other]
    zones = {
        frozenset(link): Zone(f"city-{max(n for n, city in enumerate(cities) if set(link) <= set(city))}", True)
        for link in links
    }
    network = Network(12, links, lambda *link: zones[frozenset(link)], chance)
    for _ in range(15):
        for _ in range(40):
            network.change(chance.randrange(12))
        network.settle()
        network.check()


def test_a_thousand_gateways_agree_after_a_storm(seed: int) -> None:
    chance = random.Random(seed)
    links = tree(1000, chance)
    network = Network(1000, links, lambda *_: Zone(), chance)
    for _ in range(1500):
        network.change(chance.randrange(1000))
    for link in chance.sample(links, 100):
        network.cut(*link)
    network.settle()
    for link in links:
        if not network.up[link]:
            network.connect(*link)
    network.settle()
    network.check()


def test_no_name_is_without_a_filter_in_between_while_what_is_told_changes(seed: int) -> None:
    """A neighbour that applies the changes one by one has, at each moment, a filter for each name wanted throughout."""
    chance = random.Random(seed)
    interest = Interest()
    sides: list[Side] = [LOCAL, ("link", "x"), ("link", "y"), ("zone", "z")]
    wanted: list[tuple[str, Side]] = []
    for _ in range(1500):
        told = {side: set(interest.told_to(side)) for side in sides[1:]}
        if wanted and chance.random() < 0.5:
            changes = interest.want_no_more(*wanted.pop(chance.randrange(len(wanted))))
        else:
            wanted.append((chance.choice(FILTERS), chance.choice(sides)))
            changes = interest.want(*wanted[-1])
        for side, now in told.items():
            at_end = set(interest.told_to(side))
            throughout = [name for name in NAMES if _has(now, name) and _has(at_end, name)]
            for topic_filter, before, after in changes:
                if after.includes(side) and not before.includes(side):
                    now.add(topic_filter)
                elif before.includes(side) and not after.includes(side):
                    now.remove(topic_filter)
                assert all(_has(now, name) for name in throughout)
            assert now == at_end


def test_a_filter_that_a_wider_one_covers_comes_and_goes_without_a_look_at_those_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    find_covered = FilterTree[Any].covered

    def count(tree: FilterTree[Any], topic_filter: str) -> Iterator[tuple[str, Any]]:
        nonlocal looked_at
        for entry in find_covered(tree, topic_filter):
            looked_at += 1
            yield entry

    monkeypatch.setattr(FilterTree, "covered", count)
    interest = Interest()
    interest.want("#", LOCAL)
    for number in range(1000):
        assert interest.want(f"site/{number}/state", ("link", "x")) == []
        assert interest.want("site/#", ("link", "x")) == []
        assert interest.want_no_more("site/#", ("link", "x")) == []
    for number in range(1000):
        assert interest.want_no_more(f"site/{number}/state", ("link", "x")) == []
    assert looked_at == 0


def _has(filters: set[str], name: str) -> bool:
    return any(matches(one, name) for one in filters)


def test_as_many_filters_are_counted_for_a_side_as_it_is_told(seed: int) -> None:
    chance = random.Random(seed)
    sides: list[Side] = [LOCAL, ("link", "a"), ("link", "b"), ("zone", "z")]
    interest, wanted = Interest(), list[tuple[str, Side]]()
    for _ in range(500):
        if wanted and chance.random() < 0.45:
            interest.want_no_more(*wanted.pop(chance.randrange(len(wanted))))
        else:
            wanted.append((chance.choice(FILTERS), chance.choice(sides)))
            interest.want(*wanted[-1])
        for side in [*sides[1:], ("link", "new")]:
            told = set(interest.told_to(side))
            assert interest.count_told(side) == len(told)
            assert {one for one in FILTERS if interest.is_told(one, side)} == told
        assert set(interest.filters()) == {topic_filter for topic_filter, _ in wanted}
        assert all(interest.count_local(one) == wanted.count((one, LOCAL)) for one in FILTERS)


def test_what_is_told_at_once_is_what_has_changed_in_the_end(seed: int) -> None:
    """Changes that are told together, as those of one SUBSCRIBE, name no filter that comes and goes again."""
    chance = random.Random(seed)
    interest, told, wanted = Interest(), set[str](), list[tuple[str, Side]]()
    here: Side = ("link", "here")
    for _ in range(300):
        changes: list[Change] = []
        for _ in range(chance.randrange(1, 6)):
            if wanted and chance.random() < 0.5:
                changes += interest.want_no_more(*wanted.pop(chance.randrange(len(wanted))))
            else:
                wanted.append((chance.choice(FILTERS), chance.choice([LOCAL, here, ("link", "there")])))
                changes += interest.want(*wanted[-1])
        added, removed = changes_for(here, changes)
        assert told.isdisjoint(added) and told.issuperset(removed)
        told = told - set(removed) | set(added)
        assert told == set(interest.told_to(here))
