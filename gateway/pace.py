"""How fast an owner's clients may send, and how long it may keep the event loop at a time."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterator

from gateway.signals import Signal

BURST_S = 1.0  # so much of its rate an owner may send at once
OWNERS_MOST = 10_000  # whose rate is kept
SLICE_S = 0.005  # longest work for one client between two turns of the event loop


class Lane:
    """The connections of one owner whose input is being handled now: ``busy`` of them share one slice."""

    __slots__ = ("busy",)

    def __init__(self) -> None:
        self.busy = 0


class Lanes:
    """The lanes by owner, as long as they are busy. So a client gains no turns by more connections."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}

    @contextlib.contextmanager
    def enter(self, owner: str) -> Iterator[Lane]:
        """A connection's input is handled within this."""
        lane = self._lanes.get(owner) or self._lanes.setdefault(owner, Lane())
        lane.busy += 1
        try:
            yield lane
        finally:
            lane.busy -= 1
            if not lane.busy:
                del self._lanes[owner]


class Slice:
    """What one loop over a client's input may take of the event loop's time before others have their turns.

    The time is measured, so that all work counts as what it costs: packets, visits to a tree, copies of a message.

    Args:
        lane: with whom it is shared, if with anybody.
    """

    __slots__ = ("_ends_s", "_lane")

    def __init__(self, lane: Lane | None = None) -> None:
        self._lane = lane
        self._begin()

    @property
    def is_over(self) -> bool:
        """Whether others come first now."""
        return time.perf_counter() >= self._ends_s

    async def give_way(self) -> None:
        """Lets everything else that is ready run; then the next slice begins."""
        await asyncio.sleep(0)
        self._begin()

    def _begin(self) -> None:
        length_s = SLICE_S / self._lane.busy if self._lane is not None else SLICE_S
        self._ends_s = time.perf_counter() + length_s


class Paces:
    """The rate of each owner, over all its connections: one that was faster and connects again goes on where it was.

    Args:
        messages_per_s: the rate, of packets but for acknowledgements; None is no limit.
    """

    def __init__(self, messages_per_s: int | None) -> None:
        self._rate = messages_per_s
        self._paid_until_s: OrderedDict[str, float] = OrderedDict()  # by owner, those that sent last at the end

    def note(self, owner: str, packets: int) -> None:
        """So many packets have come that are no acknowledgements."""
        if self._rate is None:
            return
        paid_until_s = max(self._paid_until_s.get(owner, 0.0), asyncio.get_running_loop().time())
        self._paid_until_s[owner] = paid_until_s + packets / self._rate
        self._paid_until_s.move_to_end(owner)
        if len(self._paid_until_s) > OWNERS_MOST:
            self._paid_until_s.popitem(last=False)

    def wait_s(self, owner: str) -> float:
        """Returns how long nothing is to be read from an owner's connections, in seconds; 0 or less is not at all."""
        paid_until_s = self._paid_until_s.get(owner)
        return 0.0 if paid_until_s is None else paid_until_s - BURST_S - asyncio.get_running_loop().time()


class Pace:
    """Holds one connection back whose owner is faster than the rate: nothing is read from it meanwhile.

    Args:
        paces: the rates.
        owner: the connection's.
    """

    __slots__ = ("_owner", "_paces", "_stopped")

    def __init__(self, paces: Paces, owner: str) -> None:
        self._paces = paces
        self._owner = owner
        self._stopped = Signal()

    def note(self, packets: int) -> None:
        """So many packets have come that are no acknowledgements."""
        self._paces.note(self._owner, packets)

    async def wait(self) -> None:
        """Waits while too many have come."""
        wait_s = self._paces.wait_s(self._owner)
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopped.wait()

    def stop(self) -> None:
        """The client is gone, and waits no more."""
        self._stopped.set()
