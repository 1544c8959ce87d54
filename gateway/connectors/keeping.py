"""What connectors have read is stored, with a mark up to when each source was read; what was not read is told as a gap.

The mark is written in the transaction that stores what was read. So after any crash the next start knows from when on
something may have been lost: the first message of a source then has ``gap.from`` and ``gap.to``, in seconds of Unix
time. Reading never waits for the store, as bytes that are not read in time are lost without a trace.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.connectors.reading import Reading
from gateway.connectors.senml import CONTENT_TYPES, encode
from gateway.limits import Limits, Verdict
from gateway.log_fields import about
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.sessions.publishing import Publishing
from gateway.store import MessageLog, Work, connectors
from wire.properties import CONTENT_TYPE

WAITING_MAX = 1024 * 1024  # bytes, roughly, that wait for the store; beyond them what is read is a gap
PACK_OVERHEAD = 400  # bytes in memory, roughly
RETRY_S = 0.5
GAP_FROM, GAP_TO = "gap.from", "gap.to"

logger = logging.getLogger(__name__)

Form = Literal["json", "cbor"]


@dataclass(frozen=True, slots=True)
class Pack:
    """A message to be: its topic name, its device, and the readings that were taken at a Unix time in ms."""

    topic: str
    device: str
    unix_ms: int
    readings: Sequence[Reading]


@dataclass(slots=True, eq=False)
class Source:
    """Something that is read: a line whose device speaks by itself, or one unit.

    Args:
        key: its name in the store.
        device, topic: the device's name and the topic name of the messages that tell its gaps.
        told_ms: up to when it was read, as Unix time; None if it never was.

    ``is_behind``: it was not read for a while, which the next message tells.
    """

    key: str
    device: str
    topic: str
    told_ms: int | None
    is_behind: bool = True
    waiting: int = 0
    stored: int = 0
    gaps: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something that it has said is not on the disk yet."""
        return self.waiting > 0


@dataclass(frozen=True, slots=True)
class _Waiting:
    pack: Pack | None
    source: Source
    read_ms: int
    size: int


class Keeper:
    """Stores what the sources of a connector have said, in order.

    Args:
        log: the message log.
        publishing: makes the work that stores a message.
        limits: says whether the store takes it.
        gateway: the gateway's name.
        form: how messages are encoded.

    ``problem`` is why nothing is stored now, "" if it is.
    """

    def __init__(self, log: MessageLog, publishing: Publishing, limits: Limits, gateway: str, form: Form) -> None:
        self.problem = ""
        self._log = log
        self._publishing = publishing
        self._limits = limits
        self._gateway = gateway
        self._form: Form = form
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._is_storing = False
        self._wanted = Signal()
        self._settled = Signal()
        self._settled.set()

    def source(self, key: str, device: str, topic: str) -> Source:
        """Returns a source as the store knows it."""
        return Source(key, device, topic, self._log.found.read_to.get(key))

    def add(self, source: Source, packs: Sequence[Pack], began_ms: int, read_ms: int) -> None:
        """Has packs stored.

        Args:
            source: what has said it.
            packs: all that it has said between the two times; none moves the mark alone.
            began_ms: from when on it was read without a gap, as Unix time.
            read_ms: up to when.
        """
        size = sum(PACK_OVERHEAD + 40 * len(pack.readings) + len(pack.topic) for pack in packs)
        if self._waiting_bytes + size > WAITING_MAX:
            source.is_behind = True  # the next pack that is taken tells the gap
            return
        entries = [_Waiting(pack, source, read_ms, PACK_OVERHEAD) for pack in packs]
        if source.is_behind and source.told_ms is not None:
            first, last = sorted((source.told_ms, began_ms))  # a clock may have been set back
            gap = [Reading(GAP_FROM, first / 1000, "s"), Reading(GAP_TO, last / 1000, "s")]
            entries.insert(0, _Waiting(Pack(source.topic, source.device, last, gap), source, read_ms, PACK_OVERHEAD))
            source.gaps += 1
        if not entries:
            entries = [_Waiting(None, source, read_ms, 0)]
        source.is_behind, source.told_ms = False, read_ms
        self._waiting += entries
        source.waiting += len(entries)
        self._waiting_bytes += sum(one.size for one in entries)
        self._settled.clear()
        self._wanted.set()

    async def settle(self) -> None:
        """Waits until all that was added is stored and synced."""
        await self._settled.wait()

    async def run(self) -> None:
        """Stores what is added, until it is cancelled."""
        while True:
            await self._wanted.wait()
            while self._waiting:
                if not await self._store(list(self._waiting)):
                    await asyncio.sleep(RETRY_S)
            self._wanted.clear()
            self._settled.set()

    async def close(self) -> None:
        """Stores what waits, once; ``run`` has ended."""
        if self._waiting:
            await self._store(list(self._waiting))

    async def _store(self, batch: list[_Waiting]) -> bool:
        topics = {one.pack.topic for one in batch if one.pack is not None}
        if any(self._limits.verdict(topic, "", "") is not Verdict.TAKE for topic in topics):
            self._complain("the store is full and takes no more now")
            return False
        works: list[Work] = []
        marks: dict[str, int] = {}
        for one in batch:
            if one.pack is not None:
                works += self._publishing.publish(self._message(one.pack))
            marks[one.source.key] = one.read_ms
        works += [connectors.save_read_to(key, read_ms) for key, read_ms in marks.items()]
        try:
            await self._log.submit(works)
        except sqlite3.Error as error:
            self._complain(str(error))
            return False
        self.problem = ""
        del self._waiting[: len(batch)]
        self._waiting_bytes -= sum(one.size for one in batch)
        for one in batch:
            one.source.stored += one.pack is not None
            one.source.waiting -= 1
        return True

    def _message(self, pack: Pack) -> Message:
        payload = encode(pack.device, pack.unix_ms, pack.readings, self._form)
        properties = {CONTENT_TYPE: CONTENT_TYPES[self._form]}
        return Message(pack.topic, payload, 1, False, properties, received_ms=pack.unix_ms, received_by=self._gateway)

    def _complain(self, problem: str) -> None:
        if not self.problem:
            logger.error("what a connector has read is not stored yet", extra=about(reason=problem))
        self.problem = problem


class DeadBands:
    """Which readings are stored: the readings that have changed enough since the last stored one, or are due.

    Args:
        bands: for each value with a dead band, the band and after how many seconds it is stored all the same.
    """

    def __init__(self, bands: Mapping[str, tuple[float, float]]) -> None:
        self._bands = bands
        self._last: dict[str, tuple[object, float]] = {}

    def chosen(self, readings: Sequence[Reading], now_s: float) -> list[Reading]:
        """Returns the readings to store; ``now_s`` is the time of a monotonic clock."""
        return [one for one in readings if self._is_chosen(one, now_s)]

    def forget(self) -> None:
        """The next reading of each value is stored."""
        self._last.clear()

    def _is_chosen(self, reading: Reading, now_s: float) -> bool:
        band = self._bands.get(reading.name)
        if band is None:
            self._last.pop(reading.name.removesuffix(".error"), None)
            return True
        last = self._last.get(reading.name)
        if last is not None and now_s - last[1] < band[1] and not _differs(last[0], reading.value, band[0]):
            return False
        self._last[reading.name] = reading.value, now_s
        return True


def _differs(before: object, value: object, band: float) -> bool:
    if isinstance(before, int | float) and isinstance(value, int | float):
        return abs(value - before) > band
    return before != value
