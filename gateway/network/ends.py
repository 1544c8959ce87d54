"""This gateway's ends of the links that are up: what is told of them, and which of them carry nothing."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from gateway.log_fields import about
from gateway.message import Message
from gateway.network.interest import Change, Interest
from gateway.network.topology import LinkState, LinkStates, decode, encode
from gateway.network.zones import Zone

GATHER_S = 0.05  # of link states, before circles are looked for
LOOK_PART = 20  # the pause after a search for circles, as a multiple of its duration
SETTLE_S = 5.0  # in which both ways of a circle carry, so that what is wanted is known along the one that stays

logger = logging.getLogger(__name__)


class LinkEnd(Protocol):
    """This gateway's end of a link that is up. ``neighbour`` is the gateway at the other end, "" an ordinary broker."""

    @property
    def name(self) -> str: ...

    @property
    def neighbour(self) -> str: ...

    @property
    def zone(self) -> Zone: ...

    @property
    def mode(self) -> str: ...

    @property
    def since_ms(self) -> int:
        """Since when the link is up, as Unix time."""

    @property
    def wanted_count(self) -> int:
        """How many topic filters the other end wants here."""

    def tell(self, changes: Sequence[Change]) -> None:
        """Tells the other end what has changed."""

    def tell_links(self, payload: bytes) -> None:
        """Tells the other end link states."""

    def flood(self, message: Message) -> None:
        """Sends a real-time message to the other end, unless it is for the side that it came from."""

    def set_aside(self, *, is_aside: bool) -> None:
        """Carries nothing from now on but what waits, as the link closes a circle; or carries messages again."""


class LinkEnds:
    """The links that are up, with the link states of the network, by which some of them are set aside.

    Args:
        gateway: the gateway's name.
        interest: what is wanted here.

    ``up`` are the ends by the name of the link, and ``aside`` the names of the links that are set aside. ``gateways``
    are all other ones of the network that were heard of.
    """

    def __init__(self, gateway: str, interest: Interest) -> None:
        self.up: dict[str, LinkEnd] = {}
        self.aside: frozenset[str] = frozenset()
        self.gateways: set[str] = set()
        self._gateway = gateway
        self._interest = interest
        self._states = LinkStates(gateway)
        self._looking: asyncio.TimerHandle | None = None
        self._look_took_s = 0.0
        self._settling: dict[str, asyncio.TimerHandle] = {}  # links that are to be set aside

    def add(self, end: LinkEnd) -> None:
        """A link has come up: it is told of changes from now on, and link states go over it."""
        self.up[end.name] = end
        asked = self._interest.count_told(end.zone.side(end.name))
        logger.info("link up", extra=about(**_fields(end), wanted=end.wanted_count, asked=asked))
        if end.neighbour:
            self.gateways.add(end.neighbour)
            self._pass_on(self._states.link_up(end.name, end.neighbour, end.zone), but=end)
            for payload in encode(self._states.whole()):
                end.tell_links(payload)
            self._look_soon()

    def remove(self, end: LinkEnd) -> None:
        """A link has gone down."""
        if self.up.get(end.name) is end:
            del self.up[end.name]
            logger.info("link down", extra=about(**_fields(end)))
            self._pass_on(self._states.link_down(end.name))
            self._look_soon()

    def hear(self, end: LinkEnd, payload: bytes) -> None:
        """A neighbour tells link states. Raises BadLinkStates."""
        news = self._states.heard(decode(payload))
        self.gateways.update(state.gateway for state in news.passed_on)
        self._pass_on(news.passed_on, but=end)
        self._pass_on(news.own)
        self._look_soon()

    def flood(self, message: Message) -> None:
        """Sends a real-time message to all gateways that are neighbours and connected, wanted or not."""
        ends = [end for end in self.up.values() if end.neighbour]
        if ends:
            marked = message.for_neighbours()
            for end in ends:
                end.flood(marked)

    def circles(self) -> list[str]:
        """Returns why links of this gateway are set aside, a sentence for each."""
        return [str(circle) for circle in self._states.circles() if circle.links[-1] in self.aside]

    def why_aside(self, link: str) -> str:
        """Returns why a link of this gateway is set aside, "" if it is not."""
        if link not in self.aside:
            return ""
        circles = (circle for circle in self._states.circles() if circle.links[-1] == link)
        return next(map(str, circles), f"{link} is set aside until the link states are known")

    @property
    def problem(self) -> str:
        """What is wrong with the network, "" if nothing is."""
        return f"another gateway of the network is named {self._gateway!r} too" if self._states.has_namesake else ""

    def close(self) -> None:
        """Looks for no circles any more."""
        for later in (self._looking, *self._settling.values()):
            if later is not None:
                later.cancel()

    def _pass_on(self, states: Sequence[LinkState], but: LinkEnd | None = None) -> None:
        for payload in encode(states):
            for end in list(self.up.values()):
                if end is not but and end.neighbour:
                    end.tell_links(payload)

    def _look_soon(self) -> None:
        """Looks for circles when the link states that come together are here."""
        if self._looking is None:
            wait_s = max(GATHER_S, LOOK_PART * self._look_took_s)
            self._looking = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._looking = None
        began_s = time.perf_counter()
        closing = self._states.set_aside()
        self._look_took_s = time.perf_counter() - began_s
        for name in self.up:
            if name in closing and name not in self.aside and name not in self._settling:
                later = asyncio.get_running_loop().call_later(SETTLE_S, self._set_aside, name)
                self._settling[name] = later
            elif name not in closing:
                if later_one := self._settling.pop(name, None):
                    later_one.cancel()
                self._carry_again(name)

    def _set_aside(self, name: str) -> None:
        del self._settling[name]
        if end := self.up.get(name):
            self.aside |= {name}
            end.set_aside(is_aside=True)
            for circle in self.circles():
                logger.warning("network: %s", circle)

    def _carry_again(self, name: str) -> None:
        if name in self.aside:
            self.aside -= {name}
            self.up[name].set_aside(is_aside=False)
            logger.info("network: %s closes no circle any more, and carries messages again", name)


def _fields(end: LinkEnd) -> dict[str, str]:
    """Returns the fields of a line about a link."""
    neighbour = end.neighbour or "an ordinary broker"
    return {"link": end.name, "neighbour": neighbour, "zone": end.zone.name, "mode": end.mode}
