"""A route's cursor: what its sender fetches from, and what acknowledgements go back to.

::

    live ─────┐
              ├─ live first, the backfill at its pace ─► RouteCursor ─► Sender ─ PUBLISH ─► next broker
    backfill ─┘
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from gateway.routes import Slice
from gateway.store import Delivery, LaneCursor
from uplink.outlet.batch import BatchPacker, PackedBatch
from uplink.outlet.batch_publish import BatchPublish
from uplink.outlet.lane import Lane, now_in_ms
from uplink.outlet.pace import BackfillPace
from wire.bulk.column_batch import SIZE_MAX

IDENTIFIERS = 65_535  # packet identifiers
WINDOW_MOST = IDENTIFIERS // 2  # of each of two lanes, so that there is an identifier for each delivery
BATCHES_MOST = 20  # in flight: their bytes and messages stay in memory until they are acknowledged


class RouteCursor:
    """Hands out the messages of a route's lanes, each lane in its order. It outlives the route's connections.

    A delivery has the packet identifier that its lane's cursor gave it, or another one if the other lane uses that. It
    keeps it until it is acknowledged [MQTT-4.4.0-1]. So does a batch, which goes again with the same bytes. Messages
    that still wait for others when a connection ends go back to their cursor.

    Args:
        live: the lane of the live messages.
        backfill: the lane of the backfill, if there is one.
        pace: says how much of the backfill may go beside live messages; None: all of it goes first.
        batches_most: how many batches of a lane may be in flight.

    ``has_batches`` says whether messages go in batches, and ``payload_max`` how many bytes of payload the next broker
    takes.
    """

    durable = True

    def __init__(self, live: Lane, backfill: Lane | None, pace: BackfillPace | None, batches_most: int) -> None:
        self.consumer = live.cursor.consumer
        self.has_batches = live.packer is not None
        self.payload_max = SIZE_MAX
        self._live = live
        self._backfill = backfill
        self._lanes = [live] if backfill is None else [live, backfill]
        self._pace = pace
        self._batches_most = batches_most
        self._passes_on = backfill is None and not self.has_batches  # the cursor's packet identifiers are used
        self._held: dict[int, tuple[Lane, int]] = {}  # without an acknowledgement, each with its identifier in its lane
        self._latest = WINDOW_MOST  # the identifier that was given last in place of a cursor's
        self._wake: Callable[[], None] | None = None
        self._is_told = False
        self._timer: asyncio.TimerHandle | None = None
        self._wait_s: list[float] = []  # after which there may be deliveries even if no message comes

    @property
    def for_sender(self) -> "RouteCursor | LaneCursor":
        """What the sender fetches from: the cursor of the only lane, which hands out runs, if its messages go as they
        are.
        """
        return self._live.cursor if self._backfill is None and self._live.is_plain else self

    async def fetch_now(self, limit: int) -> list[Delivery]:
        """Returns up to ``limit`` deliveries of one lane in order; none if none may go now.

        Raises sqlite3.Error, TooManyRefused.
        """
        while True:
            self._is_told, self._wait_s = False, []
            if found := await self._fetch(limit):
                return found
            if not self._is_told:
                self._set_timer()
                return []

    async def _fetch(self, limit: int) -> list[Delivery]:
        live, backfill, pace = self._live, self._backfill, self._pace
        if backfill is None:
            return await self._fetch_from(live, limit)
        if pace is None:
            found = await self._fetch_from(backfill, limit)
            return found if found or backfill.has_waiting else await self._fetch_from(live, limit)
        if pace.is_due and (most := pace.allowed(limit, is_idle=False)):
            if found := await self._fetch_backfill(backfill, pace, most):
                return found
            pace.note_no_backfill()
        if found := await self._fetch_from(live, limit):
            if backfill.has_waiting:
                pace.note_live(live.messages_in(found))
            return found
        if most := pace.allowed(limit, is_idle=True):
            return await self._fetch_backfill(backfill, pace, most)
        if (wait_s := pace.wait_s) is not None and backfill.has_waiting:
            self._wait_s.append(wait_s)  # until the rate lets the backfill go on
        return []

    async def _fetch_backfill(self, lane: Lane, pace: BackfillPace, most: int) -> list[Delivery]:
        found = await self._fetch_from(lane, most)
        if found:
            pace.note_backfill(len(found), lane.messages_in(found))
        return found

    async def _fetch_from(self, lane: Lane, limit: int) -> list[Delivery]:
        if lane.packer is not None:
            return self._take_again(lane, limit) if lane.again else await self._fetch_batches(lane, lane.packer, limit)
        found = await lane.fetch(limit)
        return found if self._passes_on else [self._identified(lane, delivery) for delivery in found]

    async def _fetch_batches(self, lane: Lane, packer: BatchPacker, limit: int) -> list[Delivery]:
        found: list[Delivery] = []
        slice_ = Slice()
        try:
            while len(found) < limit and len(lane.batches) < self._batches_most:
                if (packed := await lane.next_batch(packer, self.payload_max)) is None:
                    if packer.due_ms is not None:
                        self._wait_s.append(max(0, packer.due_ms - now_in_ms()) / 1000)
                    break
                found.append(self._begin_batch(lane, packed))
                if slice_.is_over:
                    if found[-1].qos < 2:
                        break
                    await slice_.give_way()  # one commit is for all of them
        except BaseException:
            self.redeliver([delivery.packet_identifier for delivery in found])
            raise
        return found

    def _take_again(self, lane: Lane, limit: int) -> list[Delivery]:
        found: list[Delivery] = []
        while lane.again and len(found) < limit:
            number = lane.again.pop(0)
            delivery = lane.batches[number].delivery
            is_batch = isinstance(delivery.message, BatchPublish)
            if is_batch and len(delivery.message.payload) > self.payload_max and self.split(number):
                continue  # it was packed for a broker that took more at once
            found.append(delivery._replace(dup=True))
        return found

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """Calls this, from now on, whenever ``fetch_now`` may have deliveries, and now. None ends it, and gives
        messages back that wait for others.
        """
        self._wake, self._wait_s = wake, []
        self._set_timer()
        for lane in self._lanes:
            lane.cursor.wake_with(None if wake is None else self._tell)
            if wake is None and lane.packer is not None:
                lane.cursor.redeliver_pieces(lane.packer.clear())
            elif lane.again:
                self._tell()

    def acknowledge_all(self, numbers: Sequence[int]) -> None:
        """Deliveries arrived, or are in flows."""
        for lane, theirs in self._by_lane(numbers):
            lane.acknowledge_all(theirs)
            for number in () if self._passes_on else theirs:
                self._held.pop(lane.identifiers.pop(number, number), None)
        if self.has_batches:
            self._tell()

    def redeliver(self, numbers: Iterable[int]) -> None:
        """Hands deliveries out again, before any new one of their lane, with DUP set."""
        for lane, theirs in self._by_lane(numbers):
            lane.redeliver(theirs)
        if self.has_batches:
            self._tell()

    def give_back(self) -> None:
        """The cursors have all messages of batches again: they will go in other batches, or one by one. Nothing is
        being sent.
        """
        if self.has_batches:
            self._held.clear()
            for lane in self._lanes:
                lane.give_back()

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns position and route number of a delivery without an acknowledgement, of a batch those of its
        last message. Raises KeyError.
        """
        lane, its_number = (self._live, number) if self._passes_on else self._held[number]
        return lane.place_of(its_number)

    def is_backfill(self, number: int) -> bool:
        """Whether this is a delivery of the backfill without an acknowledgement."""
        return self._backfill is not None and number in self._held and self._held[number][0] is self._backfill

    def is_batch(self, number: int) -> bool:
        """Whether this is a batch without an acknowledgement, and not a message that goes by itself."""
        if not self.has_batches or number not in self._held:
            return False
        lane, its_number = self._held[number]
        return isinstance(lane.batches[its_number].delivery.message, BatchPublish)

    def split(self, number: int) -> bool:
        """Hands out two batches, each with half of the messages, instead of one; False for one with a single message.

        Raises KeyError.
        """
        lane, _ = self._held[number]
        halves = lane.halves(number)
        if halves:
            del self._held[number]
            self.redeliver([self._begin_batch(lane, half).packet_identifier for half in halves])
        return bool(halves)

    def begin(self, quota: Callable[[], int]) -> None:
        """Another connection begins; ``quota`` returns how many more PUBLISHes the broker takes now."""
        if self._pace is not None:
            self._pace.begin(quota, quota())

    def note_acknowledged(self, publishes: int) -> None:
        """The broker has acknowledged PUBLISHes, of either lane and of either QoS."""
        if self._pace is not None and self._backfill is not None:
            self._pace.note_acknowledged(publishes)
            if self._backfill.has_waiting and self._pace.allowed(publishes, is_idle=True):
                self._tell()

    def slow_down(self) -> None:
        """The broker says that its quota is exceeded."""
        if self._pace is not None:
            self._pace.slow_down()

    def _by_lane(self, numbers: Iterable[int]) -> Iterable[tuple[Lane, Sequence[int]]]:
        """Returns each lane with its own identifiers of some deliveries, in their order."""
        if self._passes_on:
            return [(self._live, list(numbers))]
        found: dict[Lane, list[int]] = {}
        for number in numbers:
            if held := self._held.get(number):
                found.setdefault(held[0], []).append(held[1])
        return found.items()

    def _identified(self, lane: Lane, delivery: Delivery) -> Delivery:
        """Returns a delivery of a lane with the packet identifier that it has here."""
        its_number = delivery.packet_identifier
        number = lane.identifiers.get(its_number)
        if number is None:
            number = lane.identifiers[its_number] = self._free_identifier(its_number)
            self._held[number] = lane, its_number
        return delivery if number == its_number else delivery._replace(packet_identifier=number)

    def _begin_batch(self, lane: Lane, packed: PackedBatch) -> Delivery:
        number = self._free_identifier()
        self._held[number] = lane, number
        return lane.begin_batch(number, packed)

    def _free_identifier(self, wanted: int = 0) -> int:
        if 0 < wanted <= IDENTIFIERS and wanted not in self._held:
            return wanted
        while True:
            self._latest = self._latest % IDENTIFIERS + 1
            if self._latest not in self._held:
                return self._latest

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wait_s:
            self._timer = asyncio.get_running_loop().call_later(min(self._wait_s), self._tell)

    def _tell(self) -> None:
        self._is_told = True
        if self._wake is not None:
            self._wake()


def batches_in_flight(inflight_window: int) -> int:
    """Returns how many batches of a lane may be in flight."""
    return min(inflight_window, BATCHES_MOST)
