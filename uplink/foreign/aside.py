"""What came from another system and can be no message: it goes to the quarantine, and is acknowledged then."""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.store import quarantine
from uplink.foreign.transport import Arrival

BYTES_MOST = 16 << 20
"""The bytes that wait for the quarantine, beyond which the connection ends: what was not acknowledged comes again."""
ROOM_BYTES = BYTES_MOST // 4
_AT_ONCE = 64

logger = logging.getLogger(__name__)


class Aside:
    """Writes what arrived into the quarantine, many arrivals at a time.

    Args:
        folder: the folder of the store.
        owner: what the notes name as their owner.
        failed: called with a text when more comes than the quarantine can take: the connection has to end.
    """

    def __init__(self, folder: Path, owner: str, failed: Callable[[str], None]) -> None:
        self._folder = folder
        self._owner = owner
        self._failed = failed
        self._waiting: deque[tuple[Arrival, quarantine.Note]] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None

    @property
    def has_room(self) -> bool:
        """Whether more may come."""
        return self._bytes < ROOM_BYTES

    def put(self, arrival: Arrival, reason: str) -> None:
        """Takes an arrival, and why it can be no message."""
        if self._bytes >= BYTES_MOST:
            self._failed(f"{BYTES_MOST} bytes wait for the quarantine")
            return
        parcel = arrival.parcel
        body = msgspec.msgpack.encode([parcel.name, parcel.headers, parcel.payload])
        note = quarantine.Note(self._owner, arrival.place, reason, "in this note, as MessagePack", 1, body)
        self._waiting.append((arrival._replace(parcel=parcel._replace(headers={}, payload=b"")), note))
        self._bytes += len(body)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def settle(self) -> None:
        """Returns when all that came is written, or cannot be."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            try:
                await loop.run_in_executor(None, quarantine.set_aside, self._folder, [note for _, note in some])
            except (sqlite3.Error, OSError) as error:  # without an acknowledgement they come again
                logger.error("%s: %d messages cannot be set aside: %s", self._owner, len(some), error)
            else:
                for arrival, _ in some:
                    arrival.acknowledge()
            self._bytes -= sum(len(note.body) for _, note in some)
        self._writing = None
