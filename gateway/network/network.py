"""The network as one gateway sees it: what is wanted here, and the links over which neighbours are told so.

Sessions and share groups say what they want (`Network.want`). Each change is told at once over all links that are
up (`LinkEnd.tell`), before the message that comes next is handed out: so no request overtakes the interest in its
answer. Changes that come together, as those of one SUBSCRIBE, are told together.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import msgspec

from gateway.config.network import NeighbourConfig
from gateway.loop.pace import Slice
from gateway.network.announcements import Announcer
from gateway.network.conditions import Conditions
from gateway.network.ends import LinkEnds
from gateway.network.interest import Change, Interest
from gateway.network.link import LinkSettings, listening_settings
from gateway.network.zones import LOCAL, Side
from gateway.subscriptions import Subscription
from wire.reserved import RESERVED_TOPICS
from wire.topics import matches, parse_shared

UNTOLD = ("$SYS/", "$share/", RESERVED_TOPICS)
"""Beginnings of topic filters that no neighbour is told: they are for this gateway's own topics, or name a share within
a share, which a neighbour would take for a shared subscription."""


TOLD_LEVELS_MAX, TOLD_BYTES_MAX = 128, 4096
"""The most levels and bytes of a topic filter that neighbours are told. Each gateway keeps each level in memory."""
EARLIER_MAX = 100  # filters that one subscription remembers; beyond it messages may go that are older than it is
RELATED_MAX = 1000  # filters that are looked at for one subscription, of all sides; beyond it the same

logger = logging.getLogger(__name__)


def is_told(topic_filter: str) -> bool:
    """Whether neighbours may be told a filter; another one counts at this gateway alone."""
    is_small = topic_filter.count("/") < TOLD_LEVELS_MAX and len(topic_filter.encode()) <= TOLD_BYTES_MAX
    return is_small and not topic_filter.startswith(UNTOLD)


class Network:
    """What is wanted at this gateway, and its links.

    Args:
        gateway: the gateway's name.
        summary: topic filters that are always wanted.
        neighbours: the configured settings of links that neighbours dial.

    ``interest`` is what is wanted, ``announcer`` announces it. ``links`` are the ones that are up, and ``dialled`` the
    names of the ones that this gateway dials. ``streams`` are the gateway's, "" for the default one, which neighbours
    are told. ``note_streams`` is called with those of a neighbour.
    """

    def __init__(self, gateway: str, summary: Iterable[str] = (), neighbours: Iterable[NeighbourConfig] = ()) -> None:
        self.gateway = gateway
        self.streams: tuple[str, ...] = ("",)
        self.note_streams: Callable[[Iterable[str]], None] = _note_nothing
        self.interest = Interest()
        self.announcer = Announcer(self.interest, os.urandom(8))
        self.links = LinkEnds(gateway, self.interest)
        self.dialled: set[str] = set()
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
        self, topic_filter: str, present: Mapping[str, Subscription], position: int, head: int
    ) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Returns ``since`` and ``earlier`` of a new subscription of a link: it may replace others for which messages
        wait, since a filter is no longer told when another one covers it, and is told again without that one.

        Args:
            topic_filter: the filter.
            present: the link's subscriptions so far, by topic filter.
            position: no message up to here waits for the link.
            head: the newest position of the log.
        """
        if position >= head:
            return head, ()
        earlier: list[tuple[str, int]] = []
        for looked_at, (other, is_covering) in enumerate(self.interest.related(topic_filter)):
            if looked_at >= RELATED_MAX:
                return position, ()
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
            for end in list(self.links.up.values()):
                try:
                    end.tell(changes)
                except Exception:
                    logger.exception("network: unexpected failure of %s, the other links go on", end.name)

    def told_of(self, topic: str, side: Side) -> Iterator[str]:
        """Yields the filters that a side has been told and that match a topic name; what has changed is told first."""
        if self._changes:
            self.tell()
        return self.interest.told_of(topic, side)

    def expected(self) -> list[NeighbourConfig]:
        """Returns the settings of the neighbours that the configuration names and that dial this gateway."""
        return list(self._neighbours.values())

    def close(self) -> None:
        """Tells nothing more."""
        self.links.close()
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
