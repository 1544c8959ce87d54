"""The network as one gateway sees it: what is wanted here, and the links over which neighbours are told so.

Sessions and share groups say what they want (`Network.want`). Each change is told at once over all links that are
up (`LinkEnd.tell`), before the message that comes next is handed out: so no request overtakes the interest in its
answer. Changes that come together, as those of one SUBSCRIBE, are told together.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.config.network import NeighbourConfig
from gateway.log_fields import about
from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.network.announcements import Announcer
from gateway.network.conditions import Conditions
from gateway.network.interest import Change, Interest
from gateway.network.link import LinkSettings, listening_settings
from gateway.network.topology import LinkState, LinkStates, decode, encode
from gateway.network.zones import LOCAL, Side, Zone
from gateway.subscriptions import Subscription
from wire.reserved import RESERVED_TOPICS
from wire.topics import matches, parse_shared

UNTOLD = ("$SYS/", "$share/", RESERVED_TOPICS)
"""Beginnings of topic filters that no neighbour is told: they are for this gateway's own topics, or name a share within
a share, which a neighbour would take for a shared subscription."""


TOLD_LEVELS_MAX, TOLD_BYTES_MAX = 128, 4096
"""The most levels and bytes of a topic filter that neighbours are told. Each gateway keeps each level in memory."""
GATHER_S = 0.05  # of link states, before circles are looked for
EARLIER_MAX = 100  # filters that one subscription remembers; beyond it messages may go that are older than it is
LOOK_PART = 20  # the pause after a search for circles, as a multiple of its duration
SETTLE_S = 5.0  # in which both ways of a circle carry, so that what is wanted is known along the one that stays

logger = logging.getLogger(__name__)


def is_told(topic_filter: str) -> bool:
    """Whether neighbours may be told a filter; another one counts at this gateway alone."""
    is_small = topic_filter.count("/") < TOLD_LEVELS_MAX and len(topic_filter.encode()) <= TOLD_BYTES_MAX
    return is_small and not topic_filter.startswith(UNTOLD)


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


class Network:
    """What is wanted at this gateway, and its links.

    Args:
        gateway: the gateway's name.
        summary: topic filters that are always wanted.
        neighbours: the configured settings of links that neighbours dial.

    ``interest`` is what is wanted, ``announcer`` announces it. ``ends`` are this gateway's ends of the links that are
    up, by the name of the link, and ``aside`` the names of the links that are set aside. ``streams`` are the gateway's,
    "" for the default one, which neighbours are told. ``note_streams`` is called with those of a neighbour.
    """

    def __init__(self, gateway: str, summary: Iterable[str] = (), neighbours: Iterable[NeighbourConfig] = ()) -> None:
        self.gateway = gateway
        self.streams: tuple[str, ...] = ("",)
        self.note_streams: Callable[[Iterable[str]], None] = _note_nothing
        self.interest = Interest()
        self.announcer = Announcer(self.interest, os.urandom(8))
        self.ends: dict[str, LinkEnd] = {}
        self.aside: frozenset[str] = frozenset()
        self._states = LinkStates(gateway)
        self._looking: asyncio.TimerHandle | None = None
        self._look_took_s = 0.0
        self.gateways: set[str] = set()
        self.dialled: set[str] = set()
        self._settling: dict[str, asyncio.TimerHandle] = {}  # links that are to be set aside
        self._neighbours = {one.name: one for one in neighbours}
        self._publishers: dict[Side, set[str]] = {}
        self._changes: list[Change] = []
        self._telling: asyncio.Handle | None = None
        self._leaving: list[tuple[list[str], Side]] = []
        self._sweep: asyncio.Task[None] | None = None
        self._summary = tuple(summary)
        for topic_filter in self._summary:
            self.interest.want(topic_filter, LOCAL)

    def neighbour(self, name: str) -> NeighbourConfig:
        """Returns the settings of a neighbour that dials this gateway."""
        return self._neighbours.get(name) or NeighbourConfig(name)

    def settings(self, name: str) -> LinkSettings:
        """Returns the settings of a link that a neighbour dials, as this gateway has them."""
        return listening_settings(self.gateway, self.neighbour(name), self.streams)

    def as_configured(self, theirs: LinkSettings) -> LinkSettings:
        """Returns the stored settings of a link that a neighbour dials, with zone, hops and mode as configured now."""
        one = self.neighbour(theirs.name)
        return msgspec.structs.replace(theirs, zone=one.zone, hops=one.hops, mode=one.mode)

    def conditions(self, theirs: LinkSettings) -> Conditions:
        """Returns what messages have to pass that go to a neighbour which dials this gateway."""
        return Conditions(self.neighbour(theirs.name).outgoing, theirs.incoming)

    def publishers(self, side: Side, publisher: str) -> Container[str]:
        """Returns the publishers whose messages do not leave over a side's links: those on the side.

        Args:
            side: the side.
            publisher: the name that messages have as their publisher which come over one of its links.
        """
        found = self._publishers.setdefault(side, set())
        found.add(publisher)
        return found

    def has_in_summary(self, topic: str) -> bool:
        """Whether neighbours send messages of a topic although no consumer here may want them."""
        return any(matches(topic_filter, topic) for topic_filter in self._summary)

    def want(self, topic_filter: str, side: Side) -> None:
        """One consumer more of a side wants a filter, which may be a shared one."""
        _, bare_filter = parse_shared(topic_filter)
        if is_told(bare_filter):
            self._note(self.interest.want(bare_filter, side))

    def want_no_more(self, topic_filter: str, side: Side) -> None:
        """One consumer less of a side wants a filter."""
        _, bare_filter = parse_shared(topic_filter)
        if is_told(bare_filter):
            self._note(self.interest.want_no_more(bare_filter, side))

    def succeed(
        self, topic_filter: str, side: Side, present: Mapping[str, Subscription], position: int, head: int
    ) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Returns ``since`` and ``earlier`` of a new subscription of a link: it may replace others for which messages
        wait, since a filter is no longer told when another one covers it.

        Args:
            topic_filter: the filter.
            side: the link's side.
            present: the link's subscriptions so far, by topic filter.
            position: no message up to here waits for the link.
            head: the newest position of the log.
        """
        if position >= head:
            return head, ()
        earlier: list[tuple[str, int]] = []
        for other, is_covering in self.interest.related(topic_filter, side):
            if (before := present.get(other)) is None:
                continue
            if is_covering:
                return before.since, before.earlier
            earlier += [(other, before.since), *before.earlier]
            if len(earlier) > EARLIER_MAX:
                return min(since for _, since in earlier), ()
        return head, tuple(earlier)

    def leave(self, topic_filters: Iterable[str], side: Side) -> None:
        """A consumer of a side that wanted these filters has ended: they are wanted no more, slice by slice."""
        self._leaving.append((list(topic_filters), side))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().create_task(self._take_out())

    def tell(self) -> None:
        """Tells what has changed over all links that are up."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        changes, self._changes = self._changes, []
        if changes:
            self.announcer.note(changes)
            for end in list(self.ends.values()):
                try:
                    end.tell(changes)
                except Exception:
                    logger.exception("network: unexpected failure of %s, the other links go on", end.name)

    def flood(self, message: Message) -> None:
        """Sends a real-time message to all gateways that are neighbours and connected, wanted or not."""
        ends = [end for end in self.ends.values() if end.neighbour]
        if ends:
            marked = message.for_neighbours()
            for end in ends:
                end.flood(marked)

    def link_up(self, end: LinkEnd) -> None:
        """A link has come up: it is told of changes from now on, and link states go over it."""
        self.ends[end.name] = end
        asked = self.interest.count_told(end.zone.side(end.name))
        logger.info("link up", extra=about(**_fields(end), wanted=end.wanted_count, asked=asked))
        if end.neighbour:
            self.gateways.add(end.neighbour)
            self._flood(self._states.link_up(end.name, end.neighbour, end.zone), but=end)
            for payload in encode(self._states.whole()):
                end.tell_links(payload)
            self._look_soon()

    def link_down(self, end: LinkEnd) -> None:
        """A link has gone down."""
        if self.ends.get(end.name) is end:
            del self.ends[end.name]
            logger.info("link down", extra=about(**_fields(end)))
            self._flood(self._states.link_down(end.name))
            self._look_soon()

    def hear_links(self, end: LinkEnd, payload: bytes) -> None:
        """A neighbour tells link states. Raises BadLinkStates."""
        news = self._states.heard(decode(payload))
        self.gateways.update(state.gateway for state in news.passed_on)
        self._flood(news.passed_on, but=end)
        self._flood(news.own)
        self._look_soon()

    def circles(self) -> list[str]:
        """Returns why links of this gateway are set aside, a sentence for each."""
        return [str(circle) for circle in self._states.circles() if circle.links[-1] in self.aside]

    def why_aside(self, link: str) -> str:
        """Returns why a link of this gateway is set aside, "" if it is not."""
        if link not in self.aside:
            return ""
        circles = (circle for circle in self._states.circles() if circle.links[-1] == link)
        return next(map(str, circles), f"{link} is set aside until the link states are known")

    def expected(self) -> list[NeighbourConfig]:
        """Returns the settings of the neighbours that the configuration names and that dial this gateway."""
        return list(self._neighbours.values())

    @property
    def problem(self) -> str:
        """What is wrong with the network, "" if nothing is."""
        return f"another gateway of the network is named {self.gateway!r} too" if self._states.has_namesake else ""

    def _flood(self, states: Sequence[LinkState], but: LinkEnd | None = None) -> None:
        for payload in encode(states):
            for end in list(self.ends.values()):
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
        for name in self.ends:
            if name in closing and name not in self.aside and name not in self._settling:
                later = asyncio.get_running_loop().call_later(SETTLE_S, self._set_aside, name)
                self._settling[name] = later
            elif name not in closing:
                if later_one := self._settling.pop(name, None):
                    later_one.cancel()
                self._carry_again(name)

    def _set_aside(self, name: str) -> None:
        del self._settling[name]
        if end := self.ends.get(name):
            self.aside |= {name}
            end.set_aside(is_aside=True)
            for circle in self.circles():
                logger.warning("network: %s", circle)

    def _carry_again(self, name: str) -> None:
        if name in self.aside:
            self.aside -= {name}
            self.ends[name].set_aside(is_aside=False)
            logger.info("network: %s closes no circle any more, and carries messages again", name)

    def close(self) -> None:
        """Tells nothing more."""
        for later in (self._looking, *self._settling.values()):
            if later is not None:
                later.cancel()
        if self._telling is not None:
            self._telling.cancel()
        if self._sweep is not None:
            self._sweep.cancel()

    def _note(self, changes: list[Change]) -> None:
        if changes:
            self._changes += changes
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_soon(self.tell)

    async def _take_out(self) -> None:
        slice_ = Slice()
        while self._leaving:
            topic_filters, side = self._leaving[0]
            while topic_filters:
                self.want_no_more(topic_filters.pop(), side)
                if slice_.is_over:
                    await slice_.give_way()
            self._leaving.pop(0)
        self._sweep = None


def _note_nothing(_streams: Iterable[str]) -> None:
    """The gateway has the streams that it is configured to have."""


def _fields(end: LinkEnd) -> dict[str, str]:
    """Returns the fields of a line about a link."""
    neighbour = end.neighbour or "an ordinary broker"
    return {"link": end.name, "neighbour": neighbour, "zone": end.zone.name, "mode": end.mode}
