"""How a gateway is doing: its state in numbers, and what is wrong."""

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.numbers import State

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
            stored_bytes=sum(file.stat().st_size for file in Path(self._broker.config.store.path).iterdir()),
        )

    def problems(self) -> list[str]:
        """Says what is wrong now, a line each."""
        store = f"message store: {self._broker.log.problem}" if self._broker.log.problem else ""
        return [problem for problem in (store, self.not_reloaded) if problem]
