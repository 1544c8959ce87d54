"""A network of gateways that tell each other their links, over lines that are queues."""

import random
from collections import deque

from gateway.network.circles import Link, closing_links, reachable
from gateway.network.topology import LinkState, LinkStates, decode, encode

Pair = tuple[str, str]
"""A gateway and the name of its link: one direction of a line, from there."""


class Flooding:
    """Gateways by name, and the links that there can be. An end learns some time later than the other that a line has
    ended; all payloads on a line that ends are lost."""

    def __init__(self, links: list[Link], chance: random.Random) -> None:
        self.chance = chance
        self.links = {one.name: one for one in links}
        self.states = {end: LinkStates(end) for one in links for end in (one.first, one.second)}
        self.up: set[str] = set()
        self.queues: dict[Pair, deque[bytes]] = {
            (end, one.name): deque() for one in links for end in (one.first, one.second)
        }
        self.unnoticed: set[Pair] = set()
        self.payloads = 0
        self.bytes = 0

    def connect(self, name: str) -> None:
        link = self.links[name]
        self.up.add(name)
        for end in (link.first, link.second):
            self.notice(end, name)
            self.tell(end, self.states[end].link_up(name, link.other(end), link.zone), but=name)
        for end in (link.first, link.second):
            self.send(end, name, self.states[end].whole())

    def begin(self) -> None:
        """All links are up, and all gateways know it, without a payload."""
        told: list[LinkState] = []
        for link in self.links.values():
            self.up.add(link.name)
            for end in (link.first, link.second):
                told += self.states[end].link_up(link.name, link.other(end), link.zone)
        for states in self.states.values():
            states.heard(told)

    def cut(self, name: str) -> None:
        link = self.links[name]
        self.up.discard(name)
        for end in (link.first, link.second):
            self.queues[end, name].clear()
            self.unnoticed.add((end, name))
        self.notice(self.chance.choice((link.first, link.second)), name)

    def notice(self, end: str, name: str) -> None:
        """A gateway learns that a line has ended."""
        if (end, name) in self.unnoticed:
            self.unnoticed.remove((end, name))
            self.tell(end, self.states[end].link_down(name), but=name)

    def restart(self, gateway: str) -> None:
        """A gateway starts anew and has forgotten all serials; later its links come up again."""
        at = [name for name in self.up if gateway in (self.links[name].first, self.links[name].second)]
        for name in at:
            self.cut(name)
        self.unnoticed = {(end, name) for end, name in self.unnoticed if end != gateway}
        self.states[gateway] = LinkStates(gateway)
        for name in at:
            self.connect(name)

    def tell(self, gateway: str, states: list[LinkState], but: str | None = None) -> None:
        for name in self.up:
            if name != but and gateway in (self.links[name].first, self.links[name].second):
                self.send(gateway, name, states)

    def send(self, gateway: str, name: str, states: list[LinkState]) -> None:
        for payload in encode(states):
            self.queues[gateway, name].append(payload)
            self.payloads += 1
            self.bytes += len(payload)

    def deliver(self, pair: Pair) -> None:
        """Takes the next payload of one direction of a line."""
        end, name = pair
        there = self.links[name].other(end)
        news = self.states[there].heard(decode(self.queues[pair].popleft()))
        self.tell(there, news.passed_on, but=name)
        self.tell(there, news.own)

    def waiting(self) -> list[Pair]:
        return [pair for pair, queue in self.queues.items() if queue]

    def settle(self) -> None:
        """Delivers until nothing is under way, in any order between lines."""
        for pair in self.chance.sample(sorted(self.unnoticed), len(self.unnoticed)):
            self.notice(*pair)
        while waiting := self.waiting():
            for pair in self.chance.sample(waiting, len(waiting)):
                if self.queues[pair]:
                    self.deliver(pair)

    def check(self) -> None:
        """Both ends of each link set aside what a model does that sees the whole network, and know the circle."""
        links = [self.links[name] for name in self.up]
        closing = closing_links(links)
        for gateway, states in self.states.items():
            expected = {one.name for one in closing if gateway in (one.first, one.second)}
            assert states.set_aside() == expected
            assert {circle.links[-1] for circle in states.circles()} == expected
            for circle in states.circles():
                assert circle.gateways[0] == circle.gateways[-1] == gateway and self.up.issuperset(circle.links)
                assert len({*circle.gateways}) == len(circle.links)
            assert not states.has_namesake
            told = {state.gateway for state in states.whole()}
            assert reachable(gateway, links) - told in (set(), {gateway})
