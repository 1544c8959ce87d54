"""How a gateway is doing: its state in numbers, and what is wrong."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.numbers import RouteState, State

if TYPE_CHECKING:
    from gateway.broker import Broker


class Overview:
    """Looks at a broker when somebody asks.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._connections_most = 0
        self.routes: list[RouteState] = []
        """The routes of the gateway, whose states are kept by themselves."""
        self.not_reloaded = ""
        """What could not be read again when somebody wanted it to be."""

    def state(self) -> State:
        """Counts how things are now."""
        sessions, log = self._broker.sessions.all(), self._broker.log
        shared = sum(len(session.shared) for session in sessions)
        connections = sum(session.connection is not None for session in sessions)
        self._connections_most = max(self._connections_most, connections)
        return State(
            connections=connections,
            connections_most=self._connections_most,
            sessions=len(sessions),
            subscriptions=sum(len(session.cursor.filters) for session in sessions) + shared,
            shared_subscriptions=shared,
            retained_messages=log.retained_count + len(self._broker.publishing.announced),
            stored_messages=log.stored_count,
            stored_bytes=sum(map(_size_of, Path(self._broker.config.store.path).glob("*"))),
            routes=self.routes,
        )

    def notes(self) -> list[str]:
        """Says what an operator should know though it is as configured, a line each."""
        is_dropping = self._broker.limits.is_dropping
        return ["message store: full, the oldest messages are dropped"] if is_dropping else []

    def problems(self) -> list[str]:
        """Says what is wrong now, a line each."""
        log = self._broker.log
        store = f"message store: {log.problem}" if log.problem else ""
        limits = self._broker.limits.problem
        full = f"message store: {limits}" if limits else ""
        damage = "message store: damaged, nothing is deleted until `holdfast gateway repair` was run"
        return [problem for problem in (store, full, damage if log.is_damaged else "", self.not_reloaded) if problem]


def _size_of(file: Path) -> int:
    """Bytes of a file; SQLite has some that come and go."""
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_size
    return 0
