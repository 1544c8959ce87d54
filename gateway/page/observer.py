"""Looks at the gateway for its status page."""

import contextlib
import logging
import math
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from gateway.counters import LinkStatus, RouteAbout, RouteState
from gateway.observe.overview import ObservedStream, Overview
from gateway.page.history import History, down_of, waiting_of
from gateway.page.roster import Roster
from gateway.page.snapshot import DeviceFacts, KeptFacts, Missing, Snapshot, StoreFacts
from gateway.page.standing import consumer_of, hop_of_link, hop_of_route
from gateway.sessions.devices import Devices, Heard
from gateway.store import drops

DEVICES_SHOWN = 40  # on the page itself; the page of devices has all of them
RANGES_SHOWN = 30  # of what is missing, of each of two kinds
STREAMS_SHOWN = 16
ROUTES_NOTED = 24  # in the history
MISSING_LOOK_S = 10.0  # between two reads of what is missing, unless more was dropped
WRITTEN_WITHIN_S = 2.0  # after a message was dropped its range is in the store
RATE_S = 10  # over which the rates are averages

logger = logging.getLogger(__name__)

NOTHING_SAID = RouteAbout()
Described = Callable[[], Mapping[str, RouteAbout]]
"""Returns what each route says of itself, by its name."""


class Observer:
    """Looks at the gateway: once a second at what needs a history, and at all of it when a viewer asks.

    Args:
        gateway: the gateway's name.
        version: its version.
        overview: the gateway's state.
        devices: its devices.
        described: returns what routes say of themselves.
        now_s: the Unix time of the start.
    """

    def __init__(
        self, gateway: str, version: str, overview: Overview, devices: Devices, described: Described, now_s: float
    ) -> None:
        self.history = History()
        self._gateway, self._version, self._since_s = gateway, version, now_s
        self._overview = overview
        self._roster = Roster(devices)
        self._described = described
        self._counted: deque[tuple[float, int, int, int]] = deque(maxlen=RATE_S + 1)
        self._dropped = -1
        self._missing: list[Missing] | None = None
        self._missing_of = -1  # how many had been dropped when it was read
        self._missing_until_s = 0.0

    def tick(self, now_s: float, now_mono_s: float) -> None:
        """Notes rhythms and numbers. Called once a second, with Unix and monotonic time."""
        self._roster.tick()
        history = self.history
        history.begin(now_s)
        received = sent = stored = 0
        for stream in self._overview.streams:
            counters = stream.log.counters
            received += sum(counters.messages_received)
            sent += sum(counters.messages_sent)
            stored += counters.messages_stored
            with contextlib.suppress(OSError):  # a gateway without commits does not look by itself
                stream.log.writer.look_at_disk()
            history.note_last(_left(stream.name), stream.limits.room.left_bytes)
            if (left := stream.limits.room.left_messages) is not None:
                history.note_last(_left_messages(stream.name), left)
        if self._counted:
            history.add("received", max(0, received - self._counted[-1][1]))
        self._counted.append((now_mono_s, received, sent, stored))
        dropped = self._count_dropped()
        if self._dropped >= 0:
            history.add("dropped", max(0, dropped - self._dropped))
        self._dropped = dropped
        for route in self._overview.routes[:ROUTES_NOTED]:
            history.note_most(waiting_of(route.name), route.backlog_messages)
            history.note_most(down_of(route.name), float(not route.connected))

    def hear(self, client_id: str, heard: Heard) -> None:
        """Notes that a device has sent a message, as ``tick`` does for all."""
        self._roster.hear(client_id, heard)

    async def read_missing(self, now_mono_s: float) -> None:
        """Reads the newest ranges of what is missing, if there may be news."""
        has_news = self._dropped != self._missing_of
        if not has_news and now_mono_s < self._missing_until_s:
            return
        self._missing_of = self._dropped
        self._missing_until_s = now_mono_s + (WRITTEN_WITHIN_S if has_news else MISSING_LOOK_S)
        found: list[Missing] = []
        try:
            for stream in self._overview.streams[:STREAMS_SHOWN]:
                ranges = await stream.log.reader.newest_dropped(RANGES_SHOWN)
                found += [Missing(stream.name, one) for one in ranges]
        except sqlite3.Error as error:
            logger.warning("the status page cannot read what is missing: %s", error)
            self._missing = None
        else:
            self._missing = sorted(found, key=lambda one: one.dropped.until_ms, reverse=True)[: 2 * RANGES_SHOWN]

    async def look(self, now_s: float) -> Snapshot:
        """Returns what the page shows at a Unix time."""
        overview, now_ms = self._overview, int(now_s * 1000)
        state = overview.state()
        described = self._described()
        dialled = {one.consumer: one for one in state.links if one.is_dialled_here}
        hops = [
            hop_of_route(one, described.get(one.name, NOTHING_SAID), dialled.get(consumer_of(one)), now_ms)
            for one in state.routes
        ]
        hops += [hop_of_link(one, now_ms) for one in state.links if not one.is_dialled_here]
        devices, counts, connected = await self._roster.look(now_ms, self._neighbours(state.links), DEVICES_SHOWN)
        stores = list(zip(overview.streams, state.streams, strict=False))  # a stream may have been taken meanwhile
        return Snapshot(
            now_s,
            self._gateway,
            self._version,
            self._since_s,
            state.connections,
            self._rates(),
            hops,
            [_kept(one) for one in state.routes if described.get(one.name, NOTHING_SAID).until_receipt],
            [
                self._store(stream, one.stored_messages, one.stored_bytes, one.is_full, now_s)
                for stream, one in stores[:STREAMS_SHOWN]
            ],
            devices,
            counts,
            connected,
            self._missing,
            overview.problems(),
            overview.notes(),
            self.history,
        )

    async def devices(self, now_s: float) -> list[DeviceFacts]:
        """Returns how each device stands at a Unix time, by name."""
        return await self._roster.all(int(now_s * 1000), self._neighbours(self._overview.state().links))

    def _neighbours(self, links: Iterable[LinkStatus]) -> set[str]:
        """Returns the client identifiers of neighbouring gateways."""
        return {one.name for one in links if not one.is_dialled_here}

    def _store(self, stream: ObservedStream, messages: int, size: int, is_full: bool, now_s: float) -> StoreFacts:
        room = stream.limits.room
        left_bytes, left_messages = room.left_bytes, room.left_messages
        ends = [_ends(left_bytes, self.history.pace(_left(stream.name), now_s))]
        if left_messages is not None:
            ends.append(_ends(left_messages, self.history.pace(_left_messages(stream.name), now_s)))
        ends_s = None if None in ends else min(one for one in ends if one is not None)
        return StoreFacts(stream.name, messages, size, left_bytes, left_messages, ends_s, room.when_full, is_full)

    def _rates(self) -> dict[str, float]:
        if len(self._counted) < 2:
            return {}
        first, last = self._counted[0], self._counted[-1]
        lasted_s = max(0.001, last[0] - first[0])
        names = ("received", "sent", "stored")
        return {name: (last[place] - first[place]) / lasted_s for place, name in enumerate(names, 1)}

    def _count_dropped(self) -> int:
        """How many messages consumers did not get since the start, but for messages that a rule leaves out."""
        counted = [stream.log.counters.messages_dropped for stream in self._overview.streams]
        return sum(sum(one.values()) - one[drops.SELECTED] for one in counted)


def _kept(route: RouteState) -> KeptFacts:
    return KeptFacts(
        route.name,
        route.unproven_messages,
        route.unproven_bytes,
        route.unproven_ms,
        route.landed_ms,
        route.unproven_sent,
    )


def _left(stream: str) -> str:
    return f"left {stream}"


def _left_messages(stream: str) -> str:
    return f"left messages {stream}"


def _ends(left: float, pace: float | None) -> float | None:
    """Seconds until nothing is left, by how much is left and how that changes a second."""
    if pace is None:
        return None
    return left / -pace if pace < 0 else math.inf
