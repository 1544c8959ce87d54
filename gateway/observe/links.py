"""The links of a gateway to its neighbours, as commands, metrics and health checks show them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Protocol

from gateway.auth.filters import common, split
from gateway.config.network import NeighbourConfig
from gateway.counters import LinkStatus
from gateway.loop.pace import Slice
from gateway.network import Network
from gateway.sessions.registry import Sessions
from gateway.sessions.session import Session
from gateway.store import Backlog, Cursor, MessageLog

AT_ONCE = 1000  # filters that are looked at before other tasks may run


class Link(Protocol):
    """One link, whichever end of it dials."""

    @property
    def name(self) -> str:
        """The client identifier of the gateway that dials."""

    @property
    def cursor(self) -> Cursor:
        """Hands out the messages for the neighbour."""

    def status(self) -> LinkStatus:
        """Returns how it is doing now."""

    def is_wanted(self, topic_filter: str) -> bool:
        """Whether the neighbour wants a filter here."""

    def is_asked(self, topic_filter: str) -> bool:
        """Whether this gateway wants a filter of the neighbour."""

    def filters_beside(self) -> Iterable[str]:
        """Returns filters that the neighbour wants or that it was asked for, and that this gateway may not count."""


class ListeningLink:
    """A link that a neighbour dials.

    Args:
        session: the neighbour's, connected or not.
        network: has this gateway's end of the link while it is up.
        log: the gateway's store.
    """

    def __init__(self, session: Session, network: Network, log: MessageLog) -> None:
        self.name, self.cursor = session.client_id, session.cursor
        self._session = session
        self._network = network
        self._log = log

    def status(self) -> LinkStatus:
        session, network = self._session, self._network
        assert session.link is not None
        end, settings = network.links.up.get(session.client_id), session.link.settings
        since_ms = end.since_ms if end else session.absence and session.absence.since_ms
        waiting = _waiting(session.cursor, self._log)
        return LinkStatus(
            session.client_id,
            session.cursor.consumer,
            settings.name,
            is_dialled_here=False,
            server="",
            zone=settings.zone,
            hops=settings.hops,
            mode=settings.mode,
            connected=end is not None,
            since_ms=since_ms or 0,
            set_aside=network.links.why_aside(session.client_id),
            waiting_messages=waiting.messages,
            waiting_bytes=waiting.bytes,
            is_counted=session.cursor.backlog is not None,
            wanted=len(session.cursor.filters),
            asked=network.interest.count_told(session.link.side),
            problem="" if end else "the neighbour is not connected",
        )

    def is_wanted(self, topic_filter: str) -> bool:
        return topic_filter in self._session.cursor.filters

    def is_asked(self, topic_filter: str) -> bool:
        return self._network.interest.is_told(topic_filter, self._session.side)

    def filters_beside(self) -> Iterable[str]:
        return self._session.cursor.filters if self._session.is_aside else ()


@dataclass(frozen=True)
class NetworkStatus:
    """The links of a gateway. ``duplicates`` are the messages that came over a link before and were not stored again,
    since the start. ``problem`` is what is wrong with the network, "" if nothing is.
    """

    gateway: str
    links: list[LinkStatus]
    duplicates: int
    problem: str


@dataclass(frozen=True)
class FilterInterest:
    """A topic filter: how many consumers of this gateway want it, the configuration counting as one, over which links
    neighbours want it here, and over which links this gateway has asked for it.
    """

    filter: str
    local: int
    wanted_by: list[str]
    asked_of: list[str]


@dataclass(frozen=True)
class InterestPage:
    """Some filters in the order of their code points, and whether more follow."""

    filters: list[FilterInterest]
    has_more: bool


class Links:
    """All links of a gateway, also the ones that are down.

    Args:
        gateway: the gateway's name.
        network: the network as the gateway sees it.
        sessions: among them those of the neighbours that dial.
        log: the gateway's store.
        stream: the stream, "" for the default one: only there a configured neighbour has to dial.

    ``dialled`` returns the links that the gateway dials.
    """

    def __init__(self, gateway: str, network: Network, sessions: Sessions, log: MessageLog, stream: str) -> None:
        self.stream = stream
        self._gateway = gateway
        self._network = network
        self._sessions = sessions
        self._log = log
        self.dialled: Callable[[], Sequence[Link]] = list

    @property
    def problem(self) -> str:
        """What is wrong with the network, "" if nothing is."""
        return self._network.links.problem

    def status(self) -> list[LinkStatus]:
        """Returns how each link is doing, also those of configured neighbours that have never dialled."""
        found = [link.status() for link in self._all()]
        if self.stream:
            return found
        there = {one.neighbour for one in found if not one.is_dialled_here}
        return found + [_never_up(one) for one in self._network.expected() if one.name not in there]

    async def describe(self) -> NetworkStatus:
        """Returns the same with what the store has of each link. Raises sqlite3.Error."""
        links = {link.cursor.consumer: link for link in self._all()}
        dropped = await self._log.reader.count_dropped(list(links))
        for link in links.values():  # the last wait before the look: a session that has just lost its line counts anew
            if not link.status().is_counted:
                await self._log.backlogs.count(link.cursor)
        described = []
        for one in self.status():
            waits = one.waiting_messages and one.consumer in links
            found = await self._log.read(links[one.consumer].cursor.position, 1) if waits else []
            oldest_ms = found[0][1].received_ms if found else 0
            described.append(replace(one, oldest_ms=oldest_ms, dropped=dropped.get(one.consumer, {})))
        return NetworkStatus(self._gateway, described, self._log.counters.messages_duplicate, self.problem)

    async def interest(self, topic_filter: str, after: str, limit: int) -> InterestPage:
        """Returns which filters are wanted, and over which links.

        Args:
            topic_filter: only filters that match a topic name which this one matches, "" for all.
            after: only filters behind this one.
            limit: most filters to return.
        """
        links = list(self._all())
        levels = split(topic_filter) if topic_filter else None
        slice_, first = Slice(), list[str]()
        for some in _pieces(self._network.interest.filters(), *(link.filters_beside() for link in links)):
            found = {one for one in some if one > after and (levels is None or common(levels, split(one)))}
            first = nsmallest(limit + 1, found.union(first))
            if slice_.is_over:
                await slice_.give_way()
        rows = [self._row(one, links) for one in first[:limit]]
        return InterestPage(rows, len(first) > limit)

    def _row(self, topic_filter: str, links: list[Link]) -> FilterInterest:
        return FilterInterest(
            topic_filter,
            self._network.interest.count_local(topic_filter),
            [link.name for link in links if link.is_wanted(topic_filter)],
            [link.name for link in links if link.is_asked(topic_filter)],
        )

    def _all(self) -> Iterator[Link]:
        yield from self.dialled()
        for session in self._sessions.all():
            if session.link is not None:
                yield ListeningLink(session, self._network, self._log)


async def describe_all(streams: Iterable[Links]) -> NetworkStatus:
    """Returns the links of several streams together, in their order. Raises sqlite3.Error."""
    found = [await links.describe() for links in streams]
    return NetworkStatus(
        found[0].gateway,
        [link for one in found for link in one.links],
        sum(one.duplicates for one in found),
        "; ".join(dict.fromkeys(one.problem for one in found if one.problem)),
    )


def _never_up(neighbour: NeighbourConfig) -> LinkStatus:
    return LinkStatus(
        "",
        "",
        neighbour.name,
        is_dialled_here=False,
        server="",
        zone=neighbour.zone,
        hops=neighbour.hops,
        mode=neighbour.mode,
        connected=False,
        since_ms=0,
        set_aside="",
        waiting_messages=0,
        waiting_bytes=0,
        is_counted=True,
        wanted=0,
        asked=0,
        problem="the neighbour has never connected",
    )


def _waiting(cursor: Cursor, log: MessageLog) -> Backlog:
    """Returns what waits for a consumer: at most this where it is not counted."""
    if cursor.backlog is not None:
        return cursor.backlog
    if cursor.position >= log.head:
        return Backlog()
    noticed = cursor.tally.noticed
    return Backlog(min(noticed.messages, log.count_behind(cursor.position)), noticed.bytes)


def _pieces(*groups: Iterable[str]) -> Iterator[list[str]]:
    """Yields filters of several groups, some at a time; a group may change meanwhile."""
    for group in groups:
        filters = list(group)
        for begin in range(0, len(filters), AT_ONCE):
            yield filters[begin : begin + AT_ONCE]
