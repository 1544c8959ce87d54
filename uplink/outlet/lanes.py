"""Both lanes of a route as one cursor: what the sender fetches from, and what acknowledgements go back to.

::

    live ─────┐
              ├─ live first, the backfill at its pace ─► Lanes ─► Sender ─ PUBLISH ─► next broker
    backfill ─┘
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gateway.store import Delivery
from uplink.outlet.batch_cursor import BatchCursor
from uplink.outlet.pace import BackfillPace

NUMBERS = 65_535  # packet identifiers
WINDOW_MOST = NUMBERS // 2  # of each lane, so that there is a number for each delivery


class LaneSource(Protocol):
    """What hands out the messages of one lane: its cursor, or one that makes batches of them."""

    @property
    def consumer(self) -> str: ...

    @property
    def has_waiting(self) -> bool: ...

    async def fetch_now(self, limit: int, /) -> list[Delivery]: ...

    def wake_with(self, wake: Callable[[], None] | None, /) -> None: ...

    def acknowledge_all(self, numbers: Sequence[int], /) -> object: ...

    def redeliver(self, numbers: Iterable[int], /) -> None: ...

    def place_of(self, number: int, /) -> tuple[int, int]: ...


class _Lane:
    """One lane. ``numbers`` maps the lane cursor's packet identifier to the one used on the line."""

    def __init__(self, source: LaneSource) -> None:
        self.source = source
        self.numbers: dict[int, int] = {}


class Lanes:
    """Hands out the messages of two lanes, each in its order. It outlives the route's connections.

    A delivery has the packet identifier that its cursor gave it, or another one if both lanes use that. It keeps it
    until it is acknowledged [MQTT-4.4.0-1].

    Args:
        live: hands out the live messages.
        backfill: hands out the messages of the backfill.
        pace: says how much of the backfill may go.
        is_live_first: False for a route that goes back to one order: all of the backfill goes first, at no pace.
    """

    durable = True

    def __init__(
        self,
        live: LaneSource,
        backfill: LaneSource,
        pace: BackfillPace,
        *,
        is_live_first: bool,
    ) -> None:
        self.consumer = live.consumer
        self.pace = pace
        self._live = _Lane(live)
        self._backfill = _Lane(backfill)
        self._is_live_first = is_live_first
        self._batching = [source for source in (live, backfill) if isinstance(source, BatchCursor)]
        self._held: dict[int, tuple[_Lane, int]] = {}
        self._latest = NUMBERS // 2  # the number that was given last in place of one that the other lane uses
        self._wake: Callable[[], None] | None = None
        self._is_told = False
        self._timer: asyncio.TimerHandle | None = None

    async def fetch_now(self, limit: int) -> list[Delivery]:
        """Returns up to ``limit`` deliveries of one lane in order; none if none may go now. Raises sqlite3.Error."""
        fetch = self._fetch_by_pace if self._is_live_first else self._fetch_backfill_first
        while True:
            self._is_told = False
            if (found := await fetch(limit)) or not self._is_told:
                return found

    async def _fetch_by_pace(self, limit: int) -> list[Delivery]:
        pace = self.pace
        if pace.is_due and (most := pace.allowed(limit, is_idle=False)):
            if found := await self._fetch_backfill(most):
                return found
            pace.note_no_backfill()
        if found := await self._live.source.fetch_now(limit):
            if self._backfill.source.has_waiting:
                pace.note_live(self._messages_in(found))
            return self._numbered(self._live, found)
        if most := pace.allowed(limit, is_idle=True):
            return await self._fetch_backfill(most)
        self._set_timer()
        return []

    async def _fetch_backfill_first(self, limit: int) -> list[Delivery]:
        if found := await self._backfill.source.fetch_now(limit):
            return self._numbered(self._backfill, found)
        if self._backfill.source.has_waiting:
            return []
        return self._numbered(self._live, await self._live.source.fetch_now(limit))

    async def _fetch_backfill(self, most: int) -> list[Delivery]:
        found = await self._backfill.source.fetch_now(most)
        if found:
            self.pace.note_backfill(len(found), self._messages_in(found))
        return self._numbered(self._backfill, found)

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """Calls this, from now on, whenever ``fetch_now`` may have deliveries, and now; None ends it."""
        self._wake = wake
        for lane in (self._live, self._backfill):
            lane.source.wake_with(None if wake is None else self._tell)
        if wake is None and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def acknowledge_all(self, numbers: Sequence[int]) -> None:
        """Deliveries arrived, or are in flows."""
        for lane, theirs in self._by_lane(numbers):
            for number in theirs:
                self._held.pop(lane.numbers.pop(number), None)
            lane.source.acknowledge_all(theirs)

    def redeliver(self, numbers: Iterable[int]) -> None:
        """Hands deliveries out again, before any new one of their lane, with DUP set."""
        for lane, theirs in self._by_lane(numbers):
            lane.source.redeliver(theirs)

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns position and number of the link of a delivery without an acknowledgement. Raises KeyError."""
        lane, its_number = self._held[number]
        return lane.source.place_of(its_number)

    def is_backfill(self, number: int) -> bool:
        """Whether this is a delivery of the backfill without an acknowledgement."""
        lane, _ = self._held.get(number, (None, 0))
        return lane is self._backfill

    def note_acknowledged(self, publishes: int) -> None:
        """The broker has acknowledged PUBLISHes, of either lane and of either QoS."""
        self.pace.note_acknowledged(publishes)
        if self._backfill.source.has_waiting and self.pace.allowed(publishes, is_idle=True):
            self._tell()

    def give_back(self) -> None:
        """The cursors have all messages of batches again. Nothing is being sent."""
        for source in self._batching:
            source.give_back()

    @property
    def payload_max(self) -> int:
        """How many bytes of payload the next broker takes, if the lanes hand out batches."""
        return min([source.payload_max for source in self._batching])

    @payload_max.setter
    def payload_max(self, size: int) -> None:
        for source in self._batching:
            source.payload_max = size

    def is_batch(self, number: int) -> bool:
        """Whether this is a batch, and not a message that goes by itself."""
        lane, its_number = self._held.get(number, (None, 0))
        return lane is not None and isinstance(lane.source, BatchCursor) and lane.source.is_batch(its_number)

    def split(self, number: int) -> bool:
        """Hands out two halves of a batch instead of it; False for one with a single message. Raises KeyError."""
        lane, its_number = self._held[number]
        return isinstance(lane.source, BatchCursor) and lane.source.split(its_number)

    def _by_lane(self, numbers: Iterable[int]) -> list[tuple[_Lane, list[int]]]:
        """Returns each lane with its own numbers of some deliveries, in their order."""
        found: dict[_Lane, list[int]] = {}
        for number in numbers:
            if held := self._held.get(number):
                found.setdefault(held[0], []).append(held[1])
        return list(found.items())

    def _numbered(self, lane: _Lane, deliveries: list[Delivery]) -> list[Delivery]:
        """Returns deliveries of a lane with the numbers that they have here."""
        numbered = []
        for delivery in deliveries:
            its_number = delivery.packet_identifier
            number = lane.numbers.get(its_number)
            if number is None:
                number = lane.numbers[its_number] = self._free_number(its_number)
                self._held[number] = lane, its_number
            numbered.append(delivery if number == its_number else delivery._replace(packet_identifier=number))
        return numbered

    def _free_number(self, its_number: int) -> int:
        if its_number not in self._held and its_number <= NUMBERS:
            return its_number
        while True:
            self._latest = self._latest % NUMBERS + 1
            if self._latest not in self._held:
                return self._latest

    def _set_timer(self) -> None:
        """Wakes the sender when the rate lets the backfill go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wait_s := self.pace.wait_s) is not None and self._backfill.source.has_waiting:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._tell)

    def _tell(self) -> None:
        self._is_told = True
        if self._wake is not None:
            self._wake()

    def _messages_in(self, deliveries: list[Delivery]) -> int:
        return sum([len(one.message.messages()) for one in deliveries]) if self._batching else len(deliveries)
