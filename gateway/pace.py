"""How fast one client may send, and how long it may keep the event loop at a time."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterator

from gateway.signals import Signal

BURST_S = 1.0  # so much of its rate a client may send at once
AHEAD_MOST = 10_000  # clients that are gone and were too fast
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
    """The rate of all clients. A client that was faster and connects again goes on where it was.

    Args:
        messages_per_s: the rate, of packets but for acknowledgements; None is no limit.
    """

    def __init__(self, messages_per_s: int | None) -> None:
        self.rate = messages_per_s
        self._ahead: OrderedDict[str, float] = OrderedDict()  # until when what a client has sent is enough

    def of(self, client_id: str) -> "Pace":
        """Returns the pace of a client for the time of one connection."""
        return Pace(self, client_id, self._ahead.pop(client_id, 0.0))

    def keep(self, client_id: str, until_s: float) -> None:
        """A client goes, and what it has sent is enough until a time of the event loop."""
        if until_s > asyncio.get_running_loop().time():
            self._ahead[client_id] = until_s
            if len(self._ahead) > AHEAD_MOST:
                self._ahead.popitem(last=False)


class Pace:
    """Holds a client back that is faster than the rate: nothing is read from it meanwhile. ``Paces.of`` makes one."""

    __slots__ = ("_client_id", "_paces", "_paid_until_s", "_stopped")

    def __init__(self, paces: Paces, client_id: str, paid_until_s: float) -> None:
        self._paces = paces
        self._client_id = client_id
        self._paid_until_s = paid_until_s
        self._stopped = Signal()

    def note(self, packets: int) -> None:
        """So many packets have come that are no acknowledgements."""
        if self._paces.rate is not None:
            now_s = asyncio.get_running_loop().time()
            self._paid_until_s = max(self._paid_until_s, now_s) + packets / self._paces.rate

    async def wait(self) -> None:
        """Waits while too many have come."""
        if self._paid_until_s:
            wait_s = self._paid_until_s - BURST_S - asyncio.get_running_loop().time()
            if wait_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stopped.wait()

    def stop(self) -> None:
        """The client is gone, and waits no more."""
        self._stopped.set()
        self._paces.keep(self._client_id, self._paid_until_s)
