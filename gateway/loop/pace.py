"""How fast an owner's clients may send, how long their work may keep the event loop at a time, and how much may wait
for them to read it.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from gateway.loop.signals import Signal

BURST_S = 1.0  # an owner may send the messages of this time at once
OWNERS_MOST = 10_000  # the rates of this many owners are remembered
SLICE_S = 0.005  # longest work for one client between two turns of the event loop
ROOM_BYTES = 16 * 1024 * 1024  # that an owner's clients have not read
LINE_LEAST = 64 * 1024  # bytes that may wait on each line, also if its owner has no room
RESERVED_BYTES = 1024 * 1024  # reserved for a sender until it is known how much it has read
LOOK_S = 0.05  # between two looks at an owner's lines while there is no room
STALLED_S = 10.0  # a client that has read nothing for so long is disconnected if its owner has no room
ENDED_AT_ONCE = 16  # such clients: the end of each connection is work for the event loop

Item = TypeVar("Item")


class TimeShare:
    """Counts an owner's connections with input that is being handled: ``busy`` of them share one slice.

    Args:
        time_shares: those of all owners, by owner.
        owner: the owner.
    """

    __slots__ = ("_owner", "_time_shares", "busy")

    def __init__(self, time_shares: dict[str, "TimeShare"], owner: str) -> None:
        self.busy = 0
        self._time_shares = time_shares
        self._owner = owner

    def __enter__(self) -> "TimeShare":
        self.busy += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.busy -= 1
        if not self.busy:
            del self._time_shares[self._owner]


class TimeShares:
    """The time shares by owner, while they are busy. So an owner gains no time by opening more connections."""

    def __init__(self) -> None:
        self._time_shares: dict[str, TimeShare] = {}

    def enter(self, owner: str) -> TimeShare:
        """Returns the owner's, which counts a connection as busy while its input is handled in the ``with`` block."""
        found = self._time_shares.get(owner)
        if found is None:
            found = self._time_shares[owner] = TimeShare(self._time_shares, owner)
        return found


class Slice:
    """The time that one loop over a client's input may take before other tasks run.

    The time is measured, so that all work counts by its cost: packets, visits to a tree, copies of a message.

    Args:
        time_share: the connections that share it, if any.
    """

    __slots__ = ("_ends_s", "_time_share")

    def __init__(self, time_share: TimeShare | None = None) -> None:
        self._time_share = time_share
        self._begin()

    @property
    def is_over(self) -> bool:
        """Whether other tasks come first now."""
        return time.perf_counter() >= self._ends_s

    async def give_way(self) -> None:
        """Lets all other tasks run that are ready, then begins the next slice."""
        await asyncio.sleep(0)
        self._begin()

    def _begin(self) -> None:
        length_s = SLICE_S / self._time_share.busy if self._time_share is not None else SLICE_S
        self._ends_s = time.perf_counter() + length_s


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yields items, and lets all other tasks run whenever a slice is over."""
    async for one in paced(items, Slice()):
        yield one


async def paced(items: Iterable[Item], slice_: Slice) -> AsyncIterator[Item]:
    """Does the same in a slice that several loops share."""
    for one in items:
        if slice_.is_over:
            await slice_.give_way()
        yield one


class Shift:
    """Shares one slice of each turn of the event loop among all tasks that send one owner's messages.

    The slice begins with the first work of a turn. A task that finds it over waits. The next turn wakes as many tasks
    as worked in this one, in the order in which they began to wait.
    """

    __slots__ = ("__weakref__", "_admitted", "_is_scheduled", "_slice", "_waiting")

    def __init__(self) -> None:
        self._slice: Slice | None = None  # of this turn
        self._is_scheduled = False
        self._admitted = 0  # in this turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether other tasks come first now; if it is False the caller does its work at once."""
        if self._slice is None:
            self._slice = Slice()
            self._schedule()
        elif self._slice.is_over:
            return True
        self._admitted += 1
        return False

    async def wait(self) -> None:
        """Waits until the caller may work; it does its work at once then."""
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
        """Begins the next turn."""
        self._slice, self._is_scheduled = None, False
        for _ in range(min(max(1, self._admitted), len(self._waiting))):
            waiting = self._waiting.popleft()
            if not waiting.done():  # else its task was cancelled
                waiting.set_result(None)
        self._admitted = 0
        if self._waiting:
            self._schedule()


class Shifts:
    """The shifts by owner, while they are in use."""

    def __init__(self) -> None:
        self._shifts: WeakValueDictionary[str, Shift] = WeakValueDictionary()

    def of(self, owner: str) -> Shift:
        """Returns an owner's shift."""
        return self._shifts.get(owner) or self._shifts.setdefault(owner, Shift())


class Paces:
    """The rate of each owner over all its connections. A client that connects again keeps the rate it had.

    Args:
        messages_per_s: the rate, of packets other than acknowledgements; None: no limit.
    """

    def __init__(self, messages_per_s: int | None) -> None:
        self._rate = messages_per_s
        self._paid_until_s: OrderedDict[str, float] = OrderedDict()  # by owner, the latest sender last

    def note(self, owner: str, packets: int) -> None:
        """Counts packets other than acknowledgements."""
        if self._rate is None:
            return
        paid_until_s = max(self._paid_until_s.get(owner, 0.0), asyncio.get_running_loop().time())
        self._paid_until_s[owner] = paid_until_s + packets / self._rate
        self._paid_until_s.move_to_end(owner)
        if len(self._paid_until_s) > OWNERS_MOST:
            self._paid_until_s.popitem(last=False)

    def wait_s(self, owner: str) -> float:
        """Returns for how many seconds the gateway must not read from an owner's connections; 0 or less: it may."""
        paid_until_s = self._paid_until_s.get(owner)
        return 0.0 if paid_until_s is None else paid_until_s - BURST_S - asyncio.get_running_loop().time()


class Pace:
    """Stops reading from one connection while its owner sends faster than the rate.

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
        """Counts packets other than acknowledgements."""
        self._paces.note(self._owner, packets)

    @property
    def is_too_fast(self) -> bool:
        """Whether the owner has sent too many packets."""
        return self._paces.wait_s(self._owner) > 0

    async def wait(self) -> None:
        """Waits while the owner has sent too many packets."""
        if (wait_s := self._paces.wait_s(self._owner)) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopped.wait()

    def stop(self) -> None:
        """Ends ``wait``: the connection has ended."""
        self._stopped.set()


class Reading(Protocol):
    """A client on its line."""

    @property
    def unread(self) -> int:
        """Bytes that wait for it in the gateway."""

    @property
    def taken(self) -> int:
        """Bytes that its line has taken so far."""

    def give_up(self) -> None:
        """Disconnects it: it reads nothing."""


class LineRoom:
    """The memory for messages that one owner's clients have been sent and have not read.

    ::

        wait for room ──► read messages of the store ──► queue them on the line ──► the client reads them
        └─ while the owner has none ─┘

    A client that reads nothing takes room for as long as it is connected. So it is disconnected if it has read nothing
    for ``STALLED_S`` while its owner has no room left; what waits for it goes over its next connection.

    Args:
        most: bytes that its lines may have together.
    """

    __slots__ = (
        "__weakref__",
        "_clients",
        "_held",
        "_looked_s",
        "_most",
        "_reserved",
        "_still",
        "_timer",
        "_unread",
        "_waiting",
    )

    def __init__(self, most: int) -> None:
        self._most = most
        self._clients: dict[Reading, None] = {}
        self._unread = 0  # at most: exact at each look
        self._reserved = 0
        self._held = 0
        self._looked_s = 0.0
        self._still: dict[Reading, tuple[int, float]] = {}  # what its line had taken, and since when it takes no more
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, client: Reading) -> None:
        """Counts what waits on a client's line."""
        self._clients[client] = None

    def leave(self, client: Reading) -> None:
        """Ends ``join``."""
        self._clients.pop(client, None)
        self._still.pop(client, None)

    def note(self, size: int) -> None:
        """Counts bytes that are put on a line."""
        self._unread += size

    def is_too_much(self, backlog: int, most: int, more: int = 0) -> bool:
        """Whether too much waits on one line.

        Args:
            backlog: bytes that wait there.
            most: how many may, at most, while there is room.
            more: bytes that are to come on top. While there is no room, a few may wait with these.
        """
        if backlog + more <= LINE_LEAST:
            return False
        return backlog > most or self._is_beyond(0)

    def reservation(self) -> "Reservation":
        """Returns a reservation, which has not begun."""
        return Reservation(self)

    async def reserve(self) -> None:
        """Waits until there is room, and reserves some."""
        is_new = True
        while (is_new and self._waiting) or self._is_beyond(self._reserved):
            is_new = False
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._look_later()
            await waiting
        self._reserved += RESERVED_BYTES

    def free(self, size: int) -> None:
        """Frees bytes that were reserved."""
        self._reserved -= size

    def keep(self, size: int) -> bool:
        """Counts bytes of messages that wait behind others; False, and counts nothing, if there is no room for them.

        They have as much room as the lines, apart from theirs: otherwise they could wait for each other.
        """
        if size > 0 and self._held + size > self._most:
            return False
        self._held += size
        return True

    def _is_beyond(self, reserved: int) -> bool:
        """Whether more is unread than there is room for besides ``reserved`` bytes."""
        if self._unread + reserved <= self._most:
            return False
        self._look()
        return self._unread + reserved > self._most

    def _look(self) -> None:
        """Counts what is unread, and disconnects clients that read nothing if that is too much."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s, self._unread = now_s, 0
        still: dict[Reading, tuple[int, float]] = {}
        for client in self._clients:
            if unread := client.unread:
                self._unread += unread
                taken = client.taken
                before, since_s = self._still.get(client, (-1, now_s))
                still[client] = taken, (since_s if taken == before else now_s)
        self._still = still
        if self._unread + self._reserved > self._most:
            stalled = [client for client, (_, since_s) in still.items() if now_s - since_s >= STALLED_S]
            for client in stalled[:ENDED_AT_ONCE]:
                client.give_up()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._go_on)

    def _go_on(self) -> None:
        """Wakes as many that wait as there is room for."""
        self._timer = None
        self._look()
        free = self._most - self._unread - self._reserved
        while self._waiting and free >= 0:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else its task was cancelled
                waiting.set_result(None)
                free -= RESERVED_BYTES
        if self._waiting:
            self._look_later()


class Reservation:
    """Room for one piece of work that reads messages of the store and puts them on a line, while it lasts.

    Args:
        room: the owner's.
    """

    __slots__ = ("_reserved", "_room")

    def __init__(self, room: LineRoom) -> None:
        self._room = room
        self._reserved = 0

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.needs(0)

    async def begin(self) -> None:
        """Waits until there is room."""
        await self._room.reserve()
        self._reserved = RESERVED_BYTES

    def needs(self, size: int) -> None:
        """Keeps ``size`` bytes reserved, and frees the rest."""
        self._room.free(self._reserved - size)
        self._reserved = size


class LineRooms:
    """The rooms by owner, while they are in use."""

    def __init__(self) -> None:
        self._rooms: WeakValueDictionary[str, LineRoom] = WeakValueDictionary()

    def of(self, owner: str) -> LineRoom:
        """Returns an owner's room."""
        return self._rooms.get(owner) or self._rooms.setdefault(owner, LineRoom(ROOM_BYTES))
