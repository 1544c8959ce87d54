"""The gateway's state: numbers, notes and problems."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.counters import LinkStatus, RouteState, State
from gateway.limits import Limits
from gateway.multicast import Multicast
from gateway.observe.links import Links
from gateway.sessions.publishing import Publishing
from gateway.sessions.registry import Sessions
from gateway.store import MessageLog

REFUSED_SAID = 10  # topic filters in a line


class Overview:
    """Counts and checks when it is asked, and never in between.

    Args:
        folder: the store's folder.
        log: the message log in it.
        sessions: all sessions.
        publishing: has the gateway's own retained messages.
        limits: says whether the store drops or refuses.
        links: the links to neighbours.
        multicast: the multicast groups.
    """

    def __init__(
        self,
        folder: Path,
        log: MessageLog,
        sessions: Sessions,
        publishing: Publishing,
        limits: Limits,
        links: Links,
        multicast: Multicast,
    ) -> None:
        self._folder = folder
        self._log = log
        self._sessions = sessions
        self._publishing = publishing
        self._limits = limits
        self._links = links
        self._multicast = multicast
        self._connections_most = 0
        self.routes: list[RouteState] = []
        """The states of the gateway's routes, which the routes keep up to date."""
        self.not_reloaded = ""
        """Why the last reload of the configuration failed; "" if it did not."""

    def state(self) -> State:
        """Returns the gateway's state now."""
        sessions, log = self._sessions.all(), self._log
        shared = sum(len(session.shared) for session in sessions)
        connections = sum(session.connection is not None for session in sessions)
        self._connections_most = max(self._connections_most, connections)
        return State(
            connections=connections,
            connections_most=self._connections_most,
            sessions=len(sessions),
            subscriptions=sum(len(session.cursor.filters) for session in sessions) + shared,
            shared_subscriptions=shared,
            retained_messages=log.retained_count + len(self._publishing.announced),
            stored_messages=log.stored_count,
            stored_bytes=sum(map(_size_of, self._folder.glob("*"))),
            routes=self.routes,
            links=self._links.status(),
            multicast=self._multicast.states(),
        )

    def notes(self) -> list[str]:
        """Returns what an operator should know although it is as configured, a line each."""
        full = [f"message store: {note}"] if (note := self._limits.full_note) else []
        return (
            full
            + [
                f"route {route.name}: {route.refused_messages} refused messages are set aside"
                for route in self.routes
                if route.refused_messages
            ]
            + [f"route {route.name}: {route.receive_note}" for route in self.routes if route.receive_note]
            + [note for link in self._links.status() for note in _notes_on(link)]
        )

    def problems(self) -> list[str]:
        """Returns what is wrong now, a line each."""
        log, limits = self._log, self._limits.problem
        store = f"message store: {log.problem}" if log.problem else ""
        full = f"message store: {limits}" if limits else ""
        damage = "message store: damaged, nothing is deleted until `holdfast gateway repair` was run"
        routes = [
            f"route {route.name}: {problem}"
            for route in self.routes
            for problem in (route.stands, route.receive_problem)
            if problem
        ]
        network = f"network: {self._links.problem}" if self._links.problem else ""
        multicast = [f"multicast {one.name}: {one.problem}" for one in self._multicast.states() if one.problem]
        found = (store, full, damage if log.is_damaged else "", self.not_reloaded, *routes, network, *multicast)
        return [problem for problem in found if problem]


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


def _size_of(file: Path) -> int:
    """Bytes of a file, 0 if it is gone: SQLite removes some of its files."""
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_size
    return 0
