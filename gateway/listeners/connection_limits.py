"""How many may connect, and what those who have not been let in may cost: the limits over all listeners.

::

    accepted ──► Guest, a stranger ── note_admitted ──► Guest, let in ──► leave
                     │ too late, too many, too much
                     └──────────────► drop

Where there is no room for another one, a stranger goes: who floods the gateway drives out its own connections first,
for it has the most strangers, and somebody who logs in at once has done so before its turn comes.
"""

import asyncio
import contextlib
import logging
import resource
import socket

from gateway.config import LimitsConfig
from gateway.logs import about
from gateway.signals import Signal

FILES_RESERVED = 256  # descriptors for the store, routes, serial lines and connections that are just ending
FILES_LEAST = 128  # with fewer the half of them, which is reserved then, does not do

logger = logging.getLogger(__name__)


class Guest:
    """One accepted connection, until ``leave``.

    ``address`` is what one person has of addresses, ``received`` counts bytes until it is let in.
    """

    __slots__ = ("_connection", "_entrance", "_timer", "address", "peer", "received")

    def __init__(self, entrance: "Entrance", connection: socket.socket, address: str, peer: str) -> None:
        self.address = address
        self.peer = peer
        self.received = 0
        self._entrance: Entrance | None = entrance
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout_s: float) -> None:
        """Gives it this time to be let in."""
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.drop, "it was not let in in time")

    def note_received(self, size: int) -> None:
        """So many bytes have come from it."""
        if self._timer is not None and self._entrance is not None:
            self._entrance.count_received(self, size)

    def note_admitted(self) -> None:
        """It has been let in."""
        if self._timer is not None and self._entrance is not None:
            self._stop_timer()
            self._entrance.forget_stranger(self)

    def leave(self) -> None:
        """Its connection has ended."""
        if self._entrance is not None:
            entrance, self._entrance = self._entrance, None
            if self._timer is not None:
                self._stop_timer()
                entrance.forget_stranger(self)
            entrance.forget(self)

    def drop(self, reason: str) -> None:
        """Ends its connection from below, in whatever phase that is: TLS, HTTP or MQTT."""
        logger.warning("connection dropped", extra=about(peer=self.peer, reason=reason))
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self.leave()

    def _stop_timer(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None


class Entrance:
    """Where all listeners but serial lines bring in whom they accept.

    Args:
        limits: how many and how much.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        files = files_allowed()
        self._most = min(limits.connections, files - min(FILES_RESERVED, files // 2))
        self._connections: dict[str, int] = {}  # of each address
        self._count = 0
        self._strangers: dict[str, dict[Guest, None]] = {}  # of each address, the oldest first
        self._strangers_count = 0
        self._strangers_bytes = 0
        self._empty = Signal()
        self._empty.set()

    async def wait_until_empty(self, longest_s: float) -> None:
        """Waits until all guests have left, but no longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._empty.wait()

    def admit(self, connection: socket.socket, address: str, peer: str) -> Guest | None:
        """Takes a connection into account; None where there is no room for it.

        Args:
            connection: its socket.
            address: who connects: an IPv4 address, an IPv6 /64 or a user of this machine.
            peer: the same for the log.
        """
        if not self._make_room(address):
            logger.warning("connection refused", extra=about(peer=peer, reason="too many connections"))
            return None
        guest = Guest(self, connection, address, peer)
        self._connections[address] = self._connections.get(address, 0) + 1
        self._count += 1
        self._empty.clear()
        self._strangers.setdefault(address, {})[guest] = None
        self._strangers_count += 1
        guest.begin(self._limits.connect_timeout_s)
        return guest

    def _make_room(self, address: str) -> bool:
        if self._connections.get(address, 0) >= self._limits.connections_per_address:
            return self._drop_oldest(self._strangers.get(address))
        if self._count >= self._most:
            return self._drop_oldest(self._largest_crowd())
        if self._strangers_count >= self._limits.unauthenticated:
            self._drop_oldest(self._largest_crowd())
        return True

    def count_received(self, guest: Guest, size: int) -> None:
        """A stranger has sent something; where strangers have sent too much, who has sent most of it goes."""
        guest.received += size
        self._strangers_bytes += size
        while self._strangers_bytes > self._limits.unauthenticated_bytes:
            strangers = (stranger for crowd in self._strangers.values() for stranger in crowd)
            max(strangers, key=lambda stranger: stranger.received).drop("it sent too much before it was let in")

    def forget_stranger(self, guest: Guest) -> None:
        """A guest is no stranger any more."""
        crowd = self._strangers[guest.address]
        del crowd[guest]
        if not crowd:
            del self._strangers[guest.address]
        self._strangers_count -= 1
        self._strangers_bytes -= guest.received

    def forget(self, guest: Guest) -> None:
        """A guest has left."""
        self._count -= 1
        self._connections[guest.address] -= 1
        if not self._connections[guest.address]:
            del self._connections[guest.address]
        if not self._count:
            self._empty.set()

    def _largest_crowd(self) -> dict[Guest, None] | None:
        return max(self._strangers.values(), key=len, default=None)

    def _drop_oldest(self, crowd: dict[Guest, None] | None) -> bool:
        if not crowd:
            return False
        next(iter(crowd)).drop("there were too many who had not been let in")
        return True


def files_allowed() -> int:
    """How many files this process may have open, after it has asked for as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
