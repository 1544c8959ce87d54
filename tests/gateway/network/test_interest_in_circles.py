"""Interest in networks with circles: each gateway leaves out the links that it sets aside, as soon as it does."""

import random

from gateway.network.circles import closing_links
from gateway.network.topology import LinkState, LinkStates
from gateway.network.zones import LOCAL, Zone
from tests.gateway.network.test_circles import link
from tests.gateway.network.test_interest import Network, tree

Pair = tuple[int, int]


class Circles(Network):
    """Gateways that tell each other their links too, on the same lines.

    A gateway notes what a neighbour wants also where it has set the link aside, and uses it when the link comes back.
    """

    def __init__(self, count: int, links: list[Pair], zones: dict[Pair, Zone], chance: random.Random) -> None:
        self.states = [LinkStates(name_of(one)) for one in range(count)]
        self.told: dict[Pair, list[list[LinkState]]] = {pair: [] for link in links for pair in (link, link[::-1])}
        self.in_use: dict[Pair, bool] = dict.fromkeys(self.told, False)
        super().__init__(count, links, lambda *pair: zones[min(pair), max(pair)], chance)

    def connect(self, one: int, other: int) -> None:
        super().connect(one, other)
        for here, there in ((one, other), (other, one)):
            self.tell(here, self.states[here].link_up(link_name(here, there), name_of(there), self.zones[here, there]))
            self.in_use[here, there] = True
        for here, there in ((one, other), (other, one)):
            self.told[here, there].append(self.states[here].whole())
            self.set_aside(here)

    def cut(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.use(here, there, False)
            self.heard[there, here] = {}
            self.told[here, there].clear()
        super().cut(one, other)
        for here, there in ((one, other), (other, one)):
            self.tell(here, self.states[here].link_down(link_name(here, there)))
            self.set_aside(here)

    def tell(self, here: int, states: list[LinkState], but: int | None = None) -> None:
        for there in self.peers[here]:
            if states and self.up[here, there] and there != but:
                self.told[here, there].append(states)

    def hear(self, here: int, there: int) -> None:
        """A gateway takes in the next link states that a neighbour has told it."""
        news = self.states[there].heard(self.told[here, there].pop(0))
        self.tell(there, news.passed_on, but=here)
        self.tell(there, news.own)
        self.set_aside(there)

    def set_aside(self, here: int) -> None:
        """A gateway takes the links out of use that it sets aside, and takes the others into use again."""
        aside = self.states[here].set_aside()
        for there in self.peers[here]:
            if self.up[here, there]:
                self.use(here, there, link_name(here, there) not in aside)

    def use(self, here: int, there: int, is_used: bool) -> None:
        if self.in_use[here, there] != is_used:
            self.in_use[here, there] = is_used
            interest, side = self.interests[here], self.side(here, there)
            for topic_filter in self.heard[there, here]:
                change = interest.want if is_used else interest.want_no_more
                self.spread(here, change(topic_filter, side))

    def deliver(self, here: int, there: int) -> None:
        if self.in_use[there, here]:
            super().deliver(here, there)
            return
        is_wanted, topic_filter = self.queues[here, there].popleft()
        if is_wanted:
            self.heard[here, there][topic_filter] = None
        else:
            del self.heard[here, there][topic_filter]

    def settle(self) -> None:
        """Delivers all in any order, also between the two kinds of what is told."""
        while waiting := [
            *((self.hear, pair) for pair, told in self.told.items() if told),
            *((self.deliver, pair) for pair, queue in self.queues.items() if queue),
        ]:
            for take, pair in self.chance.sample(waiting, len(waiting)):
                if self.told[pair] if take == self.hear else self.queues[pair]:
                    take(*pair)

    def withdraw_all(self) -> None:
        for here, wanted in enumerate(self.wanted):
            for topic_filter, count in wanted.items():
                for _ in range(count):
                    self.spread(here, self.interests[here].want_no_more(topic_filter, LOCAL))
            wanted.clear()

    def check(self) -> None:
        """Each link that is in use has exactly the interest behind it; those in use are the model's, at both ends."""
        up = {
            pair: link(link_name(*pair), name_of(min(pair)), name_of(max(pair)), self.zones[pair])
            for pair in self.zones
            if self.up[pair]
        }
        closing = closing_links(set(up.values()))
        assert {pair: up.get(pair) not in {None, *closing} for pair in self.in_use} == self.in_use
        pairs, self.up = self.up, self.in_use
        zones, self.zones = self.zones, {pair: zone for pair, zone in self.zones.items() if self.in_use[pair]}
        super().check()
        self.up, self.zones = pairs, zones


def name_of(number: int) -> str:
    return f"g{number:02}"


def link_name(here: int, there: int) -> str:
    return f"{name_of(min(here, there))}-to-{name_of(max(here, there))}"


def with_circles(chance: random.Random) -> tuple[int, list[Pair], dict[Pair, Zone]]:
    """A tree of 3 to 15 gateways with some more links; or zones of one hop that overlap anywhere."""
    count = chance.randrange(3, 16)
    if chance.random() < 0.5:
        more = {(one, other) for one in range(count) for other in range(one + 1, count) if chance.random() < 0.1}
        links = sorted({*tree(count, chance), *more})
        return count, links, dict.fromkeys(links, Zone())
    zones: dict[Pair, Zone] = {}
    for number in range(4):
        members = sorted(chance.sample(range(count), chance.randrange(2, min(count, 5) + 1)))
        for pair in ((one, other) for one in members for other in members if one < other):
            zones.setdefault(pair, Zone(f"z{number}", True))
    return count, list(zones), zones


def test_interest_in_any_network_is_that_of_the_tree_and_goes_with_the_last_client(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        count, links, zones = with_circles(chance)
        network = Circles(count, links, zones, chance)
        for _ in range(4):
            for _ in range(3 * count):
                pair = chance.choice([*network.in_use])
                match chance.randrange(8):
                    case 0:
                        (network.cut if network.up[pair] else network.connect)(*pair)
                    case 1 | 2 if network.told[pair]:
                        network.hear(*pair)
                    case 3 | 4 if network.queues[pair]:
                        network.deliver(*pair)
                    case _:
                        network.change(chance.randrange(count))
            network.settle()
            network.check()
        network.withdraw_all()
        network.settle()
        assert [told for told in network.heard.values() if told] == []


def test_while_no_link_of_a_circle_is_set_aside_interest_stays_when_the_client_has_gone(seed: int) -> None:
    """The simulation shows the fault for which links are set aside."""
    ring = [(0, 1), (1, 2), (0, 2)]
    network = Network(3, ring, lambda *_: Zone(), random.Random(seed))
    network.spread(0, network.interests[0].want("a", LOCAL))
    network.settle()
    network.spread(0, network.interests[0].want_no_more("a", LOCAL))
    network.settle()
    assert {*map(tuple, network.heard.values())} == {("a",)}
