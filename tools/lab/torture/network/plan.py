"""What a run's network looks like: its gateways, its links, and which messages have a way to which gateway."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.network.zones import LOCAL, Side, Zone

GATEWAYS = (2, 5)
DEFAULT, CITY = Zone(), Zone("city", is_one_hop=True)
ACTIVE, PASSIVE = "active-active", "active-passive"


@dataclass(frozen=True)
class Link:
    """A link between two gateways, by their numbers.

    Args:
        dialler: the one that has the route.
        is_double: whether the route knows two lines to the other one: its broker and a fallback.
        is_added: whether it closes a circle, and is there only now and then.
    """

    dialler: int
    dialled: int
    zone: Zone = DEFAULT
    mode: str = ACTIVE
    is_double: bool = False
    is_added: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        return self.dialler, self.dialled

    @property
    def name(self) -> str:
        return f"g{self.dialler}-to-g{self.dialled}"


@dataclass(frozen=True)
class Plan:
    """A network.

    Args:
        count: of the gateways, which form a tree but for added links.
        between: two gateways that dial an ordinary broker, instead of a link between them; None without one.
    """

    count: int
    links: list[Link] = field(default_factory=list)
    between: tuple[int, int] | None = None

    def ways(self, start: int) -> dict[int, list[Link | None]]:
        """Returns, by gateway, the links over which messages come that are published at one of them: those of the
        tree, None for the ordinary broker. A gateway that messages do not reach is missing."""
        found: dict[int, list[Link | None]] = {start: []}
        waiting: deque[tuple[int, Side]] = deque([(start, LOCAL)])
        while waiting:
            here, came_from = waiting.popleft()
            for there, link in self._beside(here):
                if there not in found and _side(link, there) != came_from:
                    found[there] = [*found[here], link]
                    waiting.append((there, _side(link, here)))
        return found

    def circle(self) -> list[Link]:
        """Returns the links of the tree that an added link joins to a circle; none without an added link."""
        added = next((link for link in self.links if link.is_added), None)
        if added is None:
            return []
        return [link for link in self.ways(added.dialler)[added.dialled] if link]

    def _beside(self, here: int) -> Iterator[tuple[int, Link | None]]:
        for link in self.links:
            if here in link.ends and not link.is_added:
                yield sum(link.ends) - here, link
        if self.between and here in self.between:
            yield sum(self.between) - here, None


def _side(link: Link | None, there: int) -> Side:
    return (link.zone if link else DEFAULT).side(str(there))


def draw(chance: random.Random, has_broker: bool) -> Plan:
    """Draws a network. `has_broker`: whether an ordinary broker may be in it."""
    count = chance.randint(*GATEWAYS)
    pairs = [(chance.randrange(one), one) for one in range(1, count)]
    between = pairs.pop(chance.randrange(len(pairs))) if has_broker and chance.random() < 0.3 else None
    city = chance.randrange(count) if chance.random() < 0.25 else None
    passive = chance.randrange(len(pairs)) if pairs and chance.random() < 0.4 else None
    links = []
    for place, pair in enumerate(pairs):
        dialler, dialled = chance.sample(pair, 2)
        zone = CITY if city in pair else DEFAULT
        mode = PASSIVE if place == passive else ACTIVE
        links.append(Link(dialler, dialled, zone, mode, is_double=chance.random() < 0.3))
    plan = Plan(count, links, between)
    if city is None and passive is None and between is None and count > 2 and chance.random() < 0.5:
        joined = {frozenset(link.ends) for link in links}
        free = [(a, b) for a in range(count) for b in range(count) if a != b and frozenset((a, b)) not in joined]
        links.append(Link(*chance.choice(free), is_added=True))
    return plan
