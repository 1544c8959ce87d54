"""The gateway's state: numbers, notes and problems."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.counters import ConnectorState, LinkStatus, RouteState, State, StreamState
from gateway.limits import Limits
from gateway.multicast import Multicast
from gateway.observe.certificates import Certificates
from gateway.observe.links import Links
from gateway.sessions.publishing import Publishing
from gateway.sessions.registry import Sessions
from gateway.store import MessageLog
from gateway.streams.names import DEFAULT_NAME, is_visiting

REFUSED_SAID = 10  # topic filters in a line


@dataclass(frozen=True, slots=True)
class ObservedStream:
    """A stream as it is observed: its name, "" for the default one, its message log, its sessions and its limits."""

    name: str
    log: MessageLog
    sessions: Sessions
    limits: Limits

    @property
    def state(self) -> StreamState:
        """How it is doing now."""
        log, counters, sessions = self.log, self.log.counters, self.sessions.all()
        return StreamState(
            self.name or DEFAULT_NAME,
            len(sessions),
            sum(len(session.cursor.filters) + len(session.shared) for session in sessions),
            log.space.retained.topics,
            log.space.stored_count,
            _size_of_all(log.folder),
            sum(counters.messages_received),
            sum(counters.messages_sent),
            counters.messages_stored,
            sum(counters.messages_dropped.values()),
            self.limits.is_full,
        )

    def say(self, text: str) -> str:
        """Returns a line about its store."""
        return f"stream {self.name}: message store: {text}" if self.name else f"message store: {text}"

    def problems(self) -> Iterator[str]:
        """Yields what is wrong with its store."""
        if self.log.space.problem:
            yield self.say(self.log.space.problem)
        if self.limits.room.problem:
            yield self.say(self.limits.room.problem)
        if self.limits.dropped.problem:
            yield self.say(self.limits.dropped.problem)
        if self.log.space.is_damaged:
            yield self.say("damaged, nothing is deleted until `holdfast gateway repair` was run")


class Overview:
    """Counts and checks when it is asked, and never in between.

    Args:
        publishing: has the gateway's own retained messages.
        links: the links to neighbours in each stream.
        multicast: the multicast groups.
        lines: returns the serial ports that cannot be used now, each with the reason.
        certificates: the certificates of listeners and routes.
    """

    def __init__(
        self,
        publishing: Publishing,
        links: list[Links],
        multicast: Multicast,
        lines: Callable[[], list[tuple[str, str]]],
        certificates: Certificates,
    ) -> None:
        self._certificates = certificates
        self._lines = lines
        self._streams: list[ObservedStream] = []
        self._publishing = publishing
        self._links = links
        self._multicast = multicast
        self._connections_most = 0
        self.routes: list[RouteState] = []
        """The states of the gateway's routes, which the routes keep up to date."""
        self.connectors: Callable[[], list[ConnectorState]] = list
        """Returns the states of the connectors."""
        self.not_reloaded = ""
        """Why the last reload of the configuration failed; "" if it did not."""

    @property
    def streams(self) -> Sequence[ObservedStream]:
        """The streams that are observed, the default stream first."""
        return self._streams

    def add(self, stream: ObservedStream) -> None:
        """Observes a stream too; the first one is the default stream."""
        self._streams.append(stream)

    def state(self) -> State:
        """Returns the gateway's state now."""
        streams = [one.state for one in self._streams]
        everywhere = [session for one in self._streams for session in one.sessions.all()]
        sessions = [session for session in everywhere if not is_visiting(session.client_id)]
        shared = sum(len(session.shared) for session in everywhere)
        connections = sum(session.connection is not None for session in sessions)
        self._connections_most = max(self._connections_most, connections)
        return State(
            connections=connections,
            connections_most=self._connections_most,
            sessions=len(sessions),
            subscriptions=sum(one.subscriptions for one in streams),
            shared_subscriptions=shared,
            retained_messages=sum(one.retained_messages for one in streams) + len(self._publishing.announced),
            stored_messages=sum(one.stored_messages for one in streams),
            stored_bytes=sum(one.stored_bytes for one in streams),
            streams=streams,
            routes=self.routes,
            links=self._link_status(),
            multicast=self._multicast.states(),
            connectors=self.connectors(),
        )

    def see_drops(self) -> int:
        """An operator knows of all messages that were dropped; returns how many stores had any. Raises OSError."""
        return sum([one.limits.dropped.seen.see() for one in self._streams])

    def _link_status(self) -> list[LinkStatus]:
        return [status for one in self._links for status in one.status()]

    def notes(self) -> list[str]:
        """Returns what an operator should know although it is as configured, a line each."""
        stores = [
            one.say(note)
            for one in self._streams
            for note in (one.limits.room.full_note, one.limits.dropped.remark)
            if note
        ]
        return (
            stores
            + self._certificates.notes()
            + [f"serial port {device}: {problem}" for device, problem in self._lines()]
            + [
                f"route {route.name}: {route.refused_messages} refused messages are set aside"
                for route in self.routes
                if route.refused_messages
            ]
            + [
                f"route {route.name}: {note}"
                for route in self.routes
                for note in (route.receive_note, route.statement_note)
                if note
            ]
            + [
                f"connector {one.name}: {unit.device}: {unit.problem}"
                for one in self.connectors()
                for unit in one.units
                if unit.problem and not one.problem
            ]
            + [_note_on_kept(route) for route in self.routes if route.unproven_messages]
            + [note for link in self._link_status() for note in _notes_on(link)]
        )

    def problems(self) -> list[str]:
        """Returns what is wrong now, a line each."""
        stores = [problem for one in self._streams for problem in one.problems()]
        routes = [
            f"route {route.name}: {problem}"
            for route in self.routes
            for problem in (route.fault, route.login_refused, route.stands, route.receive_problem)
            if problem
        ]
        networks = dict.fromkeys(f"network: {one.problem}" for one in self._links if one.problem)
        connectors = [f"connector {one.name}: {one.problem}" for one in self.connectors() if one.problem]
        multicast = [f"multicast {one.name}: {one.problem}" for one in self._multicast.states() if one.problem]
        found = (
            *stores,
            self.not_reloaded,
            *self._certificates.problems(),
            *routes,
            *networks,
            *multicast,
            *connectors,
        )
        return [problem for problem in found if problem]


def _note_on_kept(route: RouteState) -> str:
    """Says what no receipt has settled yet."""
    since = f", the oldest since {_utc_of(route.unproven_ms)}" if route.unproven_ms else ""
    return (
        f"route {route.name}: {route.unproven_messages:,} acknowledged messages ({route.unproven_bytes:,} B) are kept "
        f"until a receipt{since}"
    )


def _notes_on(link: LinkStatus) -> Iterator[str]:
    """Yields what an operator should know of a link."""
    name = f"link {link.name} to {link.neighbour}" if link.name else f"link to {link.neighbour}"
    if not link.connected:
        since = f" since {_utc_of(link.since_ms)}" if link.since_ms else ""
        yield f"{name}: down{since}: {link.problem}"
    if link.set_aside:
        yield f"network: {link.set_aside}"
    if link.refused:
        more = f", and {len(link.refused) - REFUSED_SAID} more" if len(link.refused) > REFUSED_SAID else ""
        yield f"{name}: the neighbour refuses {', '.join(link.refused[:REFUSED_SAID])}{more}"


def _utc_of(unix_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ms / 1000))


def _size_of_all(folder: Path) -> int:
    """Bytes of the files in a folder; one may be gone by now, as SQLite removes some of its files."""
    size = 0
    for file in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size if file.is_file() else 0
    return size
