"""The limits over the connections of all listeners, and over the connections that have not logged in.

::

    accepted ──► AcceptedConnection, unauthenticated ── note_admitted ──► AcceptedConnection ──► leave
                     │ too late, too many, too many bytes
                     └──────────────► drop

If there is no room for another unauthenticated connection, the address with most of them loses its oldest one. So a
flood drives out its own connections first, and a client that logs in at once has done so before its turn comes.
"""

import asyncio
import contextlib
import logging
import resource
import socket

from gateway.config.schema import LimitsConfig
from gateway.log_fields import about
from gateway.loop.signals import Signal

FILES_RESERVED = 256  # descriptors for the store, routes, serial lines and connections that are ending
FILES_LEAST = 128  # with fewer, the half of them that is reserved does not suffice

logger = logging.getLogger(__name__)


class AcceptedConnection:
    """One accepted connection, until ``leave``.

    ``address`` is the address that it counts for. ``received`` counts its bytes until the client has logged in.
    """

    __slots__ = ("_connection", "_limits", "_timer", "address", "peer", "received")

    def __init__(self, limits: "ConnectionLimits", connection: socket.socket, address: str, peer: str) -> None:
        self.address = address
        self.peer = peer
        self.received = 0
        self._limits: ConnectionLimits | None = limits
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout_s: float) -> None:
        """Drops it after this time unless the client has logged in."""
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.drop, "it did not log in in time")

    def note_received(self, size: int) -> None:
        """Counts bytes that have come from it."""
        if self._timer is not None and self._limits is not None:
            self._limits.count_received(self, size)

    def move(self, address: str, peer: str) -> bool:
        """Counts it for another address, which a proxy has named; False if it is dropped, as no room is there."""
        return self._limits is not None and self._limits.move(self, address, peer)

    def note_admitted(self) -> None:
        """Notes that the client has logged in."""
        if self._timer is not None and self._limits is not None:
            self._stop_timer()
            self._limits.forget_unauthenticated(self)

    def leave(self) -> None:
        """Notes that the connection has ended."""
        if self._limits is not None:
            limits, self._limits = self._limits, None
            if self._timer is not None:
                self._stop_timer()
                limits.forget_unauthenticated(self)
            limits.forget(self)

    def drop(self, reason: str) -> None:
        """Shuts its socket down, whatever phase it is in: TLS, HTTP or MQTT."""
        logger.warning("connection dropped", extra=about(peer=self.peer, reason=reason))
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self.leave()

    def _stop_timer(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None


class ConnectionLimits:
    """Counts the connections of all listeners but serial lines, and refuses or drops them beyond the limits.

    Args:
        limits: the limits.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        files = files_allowed()
        self._most = min(limits.connections, files - min(FILES_RESERVED, files // 2))
        self._connections: dict[str, int] = {}  # of each address
        self._count = 0
        self._unauthenticated: dict[str, dict[AcceptedConnection, None]] = {}  # of each address, the oldest first
        self._unauthenticated_count = 0
        self._unauthenticated_bytes = 0
        self._empty = Signal()
        self._empty.set()

    async def wait_until_empty(self, longest_s: float) -> None:
        """Waits until all connections have ended, ``longest_s`` seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._empty.wait()

    def admit(self, connection: socket.socket, address: str, peer: str) -> AcceptedConnection | None:
        """Counts a connection and returns it; None if there is no room for it.

        Args:
            connection: its socket.
            address: the address that it counts for: an IPv4 address, an IPv6 /64 or a user of this machine.
            peer: its address in the log.
        """
        if not self._make_room(address):
            logger.warning("connection refused", extra=about(peer=peer, reason="too many connections"))
            return None
        accepted = AcceptedConnection(self, connection, address, peer)
        self._count_at_address(accepted)
        self._count += 1
        self._empty.clear()
        self._unauthenticated_count += 1
        accepted.begin(self._limits.connect_timeout_s)
        return accepted

    def move(self, accepted: AcceptedConnection, address: str, peer: str) -> bool:
        """Counts an unauthenticated connection for another address, as ``AcceptedConnection.move``."""
        accepted.peer = peer
        if address == accepted.address:
            return True
        if self._is_full(address) and not self._drop_oldest(self._unauthenticated.get(address)):
            accepted.drop("too many connections")
            return False
        self._forget_unauthenticated_at_address(accepted)
        self._forget_at_address(accepted)
        accepted.address = address
        self._count_at_address(accepted)
        return True

    def _is_full(self, address: str) -> bool:
        return self._connections.get(address, 0) >= self._limits.connections_per_address

    def _make_room(self, address: str) -> bool:
        if self._is_full(address):
            return self._drop_oldest(self._unauthenticated.get(address))
        if self._count >= self._most:
            return self._drop_oldest(self._most_at_one_address())
        if self._unauthenticated_count >= self._limits.unauthenticated:
            self._drop_oldest(self._most_at_one_address())
        return True

    def count_received(self, accepted: AcceptedConnection, size: int) -> None:
        """Counts bytes of an unauthenticated connection; beyond the limit the one that has sent most is dropped."""
        accepted.received += size
        self._unauthenticated_bytes += size
        while self._unauthenticated_bytes > self._limits.unauthenticated_bytes:
            waiting = (one for at_address in self._unauthenticated.values() for one in at_address)
            max(waiting, key=lambda one: one.received).drop("it sent too much before it logged in")

    def forget_unauthenticated(self, accepted: AcceptedConnection) -> None:
        """Counts a connection as unauthenticated no more."""
        self._forget_unauthenticated_at_address(accepted)
        self._unauthenticated_count -= 1
        self._unauthenticated_bytes -= accepted.received

    def forget(self, accepted: AcceptedConnection) -> None:
        """Counts a connection no more."""
        self._count -= 1
        self._forget_at_address(accepted)
        if not self._count:
            self._empty.set()

    def _count_at_address(self, accepted: AcceptedConnection) -> None:
        self._connections[accepted.address] = self._connections.get(accepted.address, 0) + 1
        self._unauthenticated.setdefault(accepted.address, {})[accepted] = None

    def _forget_at_address(self, accepted: AcceptedConnection) -> None:
        self._connections[accepted.address] -= 1
        if not self._connections[accepted.address]:
            del self._connections[accepted.address]

    def _forget_unauthenticated_at_address(self, accepted: AcceptedConnection) -> None:
        at_address = self._unauthenticated[accepted.address]
        del at_address[accepted]
        if not at_address:
            del self._unauthenticated[accepted.address]

    def _most_at_one_address(self) -> dict[AcceptedConnection, None] | None:
        return max(self._unauthenticated.values(), key=len, default=None)

    def _drop_oldest(self, at_address: dict[AcceptedConnection, None] | None) -> bool:
        if not at_address:
            return False
        next(iter(at_address)).drop("too many connections had not logged in")
        return True


def files_allowed() -> int:
    """Returns how many files this process may have open, after it has raised its limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
