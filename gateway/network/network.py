"""The network as one gateway sees it: what is wanted here, and the links over which neighbours are told so.

Sessions and share groups say what they want (`Network.want`). Each change is told at once over all links that are
up (`LinkEnd.tell`), before the message that comes next is handed out: so no request overtakes the interest in its
answer. Changes that come together, as those of one SUBSCRIBE, are told together.
"""

import asyncio
import os
from collections.abc import Container, Iterable, Sequence
from typing import Protocol

from gateway.config.network import NeighbourConfig
from gateway.network.announcements import Announcer
from gateway.network.conditions import Conditions
from gateway.network.interest import Change, Interest
from gateway.network.link import LinkSettings, listening_settings
from gateway.network.zones import LOCAL, Side
from gateway.pace import Slice
from wire.reserved import RESERVED_TOPICS
from wire.topics import parse_shared

UNTOLD = ("$SYS/", RESERVED_TOPICS)
"""Beginnings of topic filters that are for this gateway's own topics: no neighbour is told them."""


class LinkEnd(Protocol):
    """This gateway's end of a link that is up."""

    def tell(self, changes: Sequence[Change]) -> None:
        """Tells the other end what has changed."""


class Network:
    """What is wanted at this gateway, and its links.

    Args:
        gateway: the gateway's name.
        summary: topic filters that are always wanted.
        neighbours: the configured settings of links that neighbours dial.

    ``interest`` is what is wanted, ``announcer`` announces it. ``ends`` are this gateway's ends of the links that are
    up, by the name of the link.
    """

    def __init__(self, gateway: str, summary: Iterable[str] = (), neighbours: Iterable[NeighbourConfig] = ()) -> None:
        self.gateway = gateway
        self.interest = Interest()
        self.announcer = Announcer(self.interest, os.urandom(8))
        self.ends: dict[str, LinkEnd] = {}
        self._neighbours = {one.name: one for one in neighbours}
        self._publishers: dict[Side, set[str]] = {}
        self._changes: list[Change] = []
        self._telling: asyncio.Handle | None = None
        self._leaving: list[tuple[list[str], Side]] = []
        self._sweep: asyncio.Task[None] | None = None
        for topic_filter in summary:
            self.interest.want(topic_filter, LOCAL)

    def neighbour(self, name: str) -> NeighbourConfig:
        """Returns the settings of a neighbour that dials this gateway."""
        return self._neighbours.get(name) or NeighbourConfig(name)

    def settings(self, name: str) -> LinkSettings:
        """Returns the settings of a link that a neighbour dials, as this gateway has them."""
        return listening_settings(self.gateway, self.neighbour(name))

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

    def want(self, topic_filter: str, side: Side) -> None:
        """One consumer more of a side wants a filter, which may be a shared one."""
        _, bare_filter = parse_shared(topic_filter)
        if not bare_filter.startswith(UNTOLD):
            self._note(self.interest.want(bare_filter, side))

    def want_no_more(self, topic_filter: str, side: Side) -> None:
        """One consumer less of a side wants a filter."""
        _, bare_filter = parse_shared(topic_filter)
        if not bare_filter.startswith(UNTOLD):
            self._note(self.interest.want_no_more(bare_filter, side))

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
                end.tell(changes)

    def close(self) -> None:
        """Tells nothing more."""
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
