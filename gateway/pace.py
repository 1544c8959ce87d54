"""How fast an owner's clients may send, and how long it may keep the event loop at a time."""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from weakref import WeakValueDictionary

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


class Shift:
    """What is sent for one owner by any number of tasks: together they take one slice of each turn of the event loop.

    The slice begins with the first work of a turn. What finds it over waits, and goes on in the order in which it came:
    in the next turn as many as had their work in this one.
    """

    __slots__ = ("__weakref__", "_admitted", "_is_scheduled", "_slice", "_waiting")

    def __init__(self) -> None:
        self._slice: Slice | None = None  # of this turn
        self._is_scheduled = False
        self._admitted = 0  # in this turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether others come first now; where it is not, the caller does its work at once."""
        if self._slice is None:
            self._slice = Slice()
            self._schedule()
        elif self._slice.is_over:
            return True
        self._admitted += 1
        return False

    async def wait(self) -> None:
        """Waits until the caller may do its work, which it does at once then."""
        is_new = True
        while (is_new and self._waiting) or self.is_over:
            is_new = False
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._schedule()
            await waiting

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The next turn begins."""
        self._slice, self._is_scheduled = None, False
        for _ in range(min(max(1, self._admitted), len(self._waiting))):
            waiting = self._waiting.popleft()
            if not waiting.done():  # else its task was cancelled
                waiting.set_result(None)
        self._admitted = 0
        if self._waiting:
            self._schedule()


class Shifts:
    """The shifts by owner, as long as they are in use."""

    def __init__(self) -> None:
        self._shifts: WeakValueDictionary[str, Shift] = WeakValueDictionary()

    def of(self, owner: str) -> Shift:
        """Returns an owner's shift."""
        return self._shifts.get(owner) or self._shifts.setdefault(owner, Shift())


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
