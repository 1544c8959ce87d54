"""The gateway's own topics below ``$SYS``, with mosquitto's names where mosquitto has one."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from math import exp

from gateway.counters import Counters, State
from gateway.log_fields import about
from gateway.message import Message
from gateway.sessions.publishing import Publishing
from host.release import release

LOAD_MINUTES = (1, 5, 15)
INTERVAL_S = 10.0  # between two updates, as with mosquitto

logger = logging.getLogger(__name__)


class SysTopics:
    """The retained messages below ``$SYS``.

    Args:
        version: of the gateway, as in "1.2.3".
        counters: what the gateway counts.
        state: returns the gateway's state.
        now_s: the time of the start, in seconds of a monotonic clock.
    """

    def __init__(self, version: str, counters: Counters, state: Callable[[], State], now_s: float) -> None:
        self._version = version
        self._counters = counters
        self._state = state
        self._started_s = self._last_s = now_s
        self._counted = self._count()
        self._loads = dict.fromkeys(((name, minutes) for name in self._counted for minutes in LOAD_MINUTES), 0.0)
        self._said: dict[str, bytes] = {}

    def messages(self, now_s: float) -> Iterator[tuple[str, bytes]]:
        """Yields the topic names and payloads that have changed since the last call; all of them at the first."""
        self._average(now_s)
        for name, value in self._values(now_s):
            topic, payload = f"$SYS/broker/{name}", str(value).encode()
            if self._said.get(topic) != payload:
                self._said[topic] = payload
                yield topic, payload

    def _values(self, now_s: float) -> Iterator[tuple[str, object]]:
        counters, state = self._counters, self._state()
        yield "version", f"holdfast {self._version}"
        yield "uptime", f"{int(now_s - self._started_s)} seconds"
        yield "clients/total", state.sessions
        yield "clients/maximum", state.connections_most
        yield "clients/expired", counters.sessions_expired
        for here, away in (("connected", "disconnected"), ("active", "inactive")):
            yield f"clients/{here}", state.connections
            yield f"clients/{away}", state.sessions_away
        yield "subscriptions/count", state.subscriptions
        yield "shared_subscriptions/count", state.shared_subscriptions
        yield "retained messages/count", state.retained_messages
        yield "messages/stored", state.stored_messages
        yield "store/messages/count", state.stored_messages
        yield "store/messages/bytes", state.stored_bytes
        yield "messages/received", counters.packets_received
        yield "messages/sent", counters.packets_sent
        yield "bytes/received", counters.bytes_received
        yield "bytes/sent", counters.bytes_sent
        yield "publish/messages/received", sum(counters.messages_received)
        yield "publish/messages/sent", sum(counters.messages_sent)
        yield "publish/messages/dropped", sum(counters.messages_dropped.values())
        yield "publish/bytes/received", counters.payload_bytes_received
        yield "publish/bytes/sent", counters.payload_bytes_sent
        for (name, minutes), load in self._loads.items():
            yield f"load/{name}/{minutes}min", f"{load:.2f}"
        for route in state.routes:
            yield f"connection/{route.name}/state", int(route.connected)

    def _count(self) -> dict[str, int]:
        """Returns the counters of which a load is published."""
        counters = self._counters
        return {
            "messages/received": counters.packets_received,
            "messages/sent": counters.packets_sent,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "publish/received": sum(counters.messages_received),
            "publish/sent": sum(counters.messages_sent),
            "publish/dropped": sum(counters.messages_dropped.values()),
            "sockets": counters.connections_opened,
            "connections": counters.connections_accepted,
        }

    def _average(self, now_s: float) -> None:
        """Updates the loads: moving averages of events per minute, as Unix averages its load."""
        passed_minutes = (now_s - self._last_s) / 60
        if passed_minutes <= 0:
            return
        counted = self._count()
        for (name, minutes), load in self._loads.items():
            rate = (counted[name] - self._counted[name]) / passed_minutes
            self._loads[name, minutes] = rate + exp(-passed_minutes / minutes) * (load - rate)
        self._last_s, self._counted = now_s, counted


class Announcer:
    """Publishes the topics that have changed, every INTERVAL_S.

    Args:
        publishing: takes the messages.
        counters: what the gateway counts.
        state: returns the gateway's state.
    """

    def __init__(self, publishing: Publishing, counters: Counters, state: Callable[[], State]) -> None:
        self._publishing = publishing
        self._counters = counters
        self._state = state
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begins to publish."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stops publishing."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        topics = SysTopics(release(), self._counters, self._state, loop.time())
        while True:
            try:
                for topic, payload in topics.messages(loop.time()):
                    self._publishing.announce(Message(topic, payload, 0, retain=True))
            except OSError as error:  # the next update may work
                logger.error("the topics below $SYS could not be updated", extra=about(reason=str(error)))
            await asyncio.sleep(INTERVAL_S)
