"""A line that many units share: one request at a time, silence between frames, and a timeout for each unit.

On a serial line no answer says to which request it belongs. If a unit was silent, its answer may come late, and must
not be taken for the answer to the next request. So after each failure the unit is asked something else first, whose
answer has another size (`probe_of`). Its answer shows that the unit has done with what came before, as a unit answers
in order. Until then no value of the unit is believed.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gateway.connectors.modbus.frame import Answers, Framing
from gateway.connectors.modbus.request import BEHIND_A_GATEWAY, Read, Request, UnitException
from gateway.connectors.reading import Unreadable
from gateway.connectors.wire import Wire

SILENT_CHARACTERS = 3.5
SILENT_LEAST_S = 0.00175  # above 19,200 baud [serial line, section 2.5.1.1]
QUIET_S = 0.1  # behind an incomplete answer: USB adapters pass bytes on every 16 ms or more
FIRST_RETRY_S = 1.0
CORRUPT_MOST = 4  # answers in a row: then the unit is asked ever more rarely, as one that is silent
DISCARD_READS = 16  # of what comes between answers


Ready = Callable[[], Awaitable[None]]


async def _at_once() -> None:
    pass


class Silent(Unreadable):
    """A unit has not answered."""


@dataclass(slots=True, eq=False)
class UnitState:
    """A unit as the bus knows it.

    Args:
        address: the unit's address.
        timeout_s: how long its answer may take to begin.
        backoff_s: the longest time between two attempts while it does not answer.
        probe: what it is asked first after a failure.

    ``is_unsure``: an answer to an earlier request may be on its way. ``failures`` counts the attempts without an
    answer since its last answer, and ``corrupt_in_a_row`` the corrupt ones. The other numbers count since the start:
    requests that were sent (``asked``), ``answered`` ones, ``silences``, ``corrupt`` answers and ``exceptions``.
    """

    address: int
    timeout_s: float
    backoff_s: float
    probe: Read
    is_unsure: bool = False
    failures: int = 0
    retry_from_s: float = 0.0
    problem: str = ""
    asked: int = 0
    answered: int = 0
    corrupt_in_a_row: int = 0
    silences: int = 0
    corrupt: int = 0
    exceptions: int = 0

    @property
    def is_dead(self) -> bool:
        """Whether it did not answer the last attempt."""
        return self.failures > 0

    def note_silence(self, now_s: float) -> None:
        """It has not answered: the next attempts come ever later."""
        self.silences += 1
        self._back_off(now_s)

    def note_corrupt(self, now_s: float) -> None:
        """What came is no answer; if that goes on, the next attempts come ever later too."""
        self.corrupt += 1
        self.corrupt_in_a_row += 1
        if self.corrupt_in_a_row >= CORRUPT_MOST:
            self._back_off(now_s)

    def note_answer(self) -> None:
        """It has answered, perhaps with an exception."""
        self.failures = self.corrupt_in_a_row = 0

    def _back_off(self, now_s: float) -> None:
        wait_s = min(self.backoff_s, FIRST_RETRY_S * 2.0 ** min(self.failures, 20))
        self.failures += 1
        self.retry_from_s = now_s + wait_s


@dataclass(slots=True)
class Bus:
    """Asks the units on one line.

    Args:
        framing: how frames are made.

    ``quiet_from_s`` is when the next frame may begin. ``last`` is the unit that was asked last.
    """

    framing: Framing
    quiet_from_s: float = 0.0
    last: UnitState | None = field(default=None)

    async def ask(self, wire: Wire, unit: UnitState, request: Request, ready: Ready = _at_once) -> bytes:
        """Asks a unit, after a probe where that is needed; returns the PDU of the answer.

        ``ready`` is waited for between the request and the first byte of the answer that is read.

        Raises:
            UnitException: the unit has answered with one.
            Silent: it has not answered.
            Unreadable: what came is no answer.
            OSError: the line is gone.
        """
        await self.settle(wire, unit, ready)
        return await self._exchange(wire, unit, request, ready)

    async def settle(self, wire: Wire, unit: UnitState, ready: Ready = _at_once) -> None:
        """Asks a unit for something else, if an answer to an earlier request may be on its way. Raises as ``ask``."""
        if unit.is_unsure and not self.framing.has_transactions:
            with contextlib.suppress(UnitException):  # it answers
                await self._exchange(wire, unit, unit.probe, ready)
            unit.is_unsure = False

    async def _exchange(self, wire: Wire, unit: UnitState, request: Request, ready: Ready) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            await self._wait_for_silence(wire)
            self.last = unit
            unit.asked += 1
            frame = self.framing.encode(unit.address, request)
            answers = self.framing.answers(unit.address, request)
            await wire.write(frame)
            sent_s = loop.time() + len(frame) * wire.character_s
            came = await self._take_echo(wire, frame) if wire.echoes else b""
            await ready()
            answer = await self._answer(wire, answers, unit, request, sent_s, came)
        except UnitException as error:
            unit.exceptions += 1
            unit.problem = str(error)
            if error.code in BEHIND_A_GATEWAY:
                unit.note_silence(loop.time())
            else:
                unit.note_answer()
            raise
        except Silent as error:
            unit.is_unsure, unit.problem = True, str(error)
            unit.note_silence(loop.time())
            raise
        except Unreadable as error:
            unit.is_unsure, unit.problem = True, str(error)
            unit.note_corrupt(loop.time())
            raise
        unit.note_answer()
        unit.problem = ""
        unit.answered += 1
        return answer

    async def _answer(
        self, wire: Wire, answers: Answers, unit: UnitState, request: Request, sent_s: float, came: bytes
    ) -> bytes:
        loop = asyncio.get_running_loop()
        until_s = sent_s + unit.timeout_s
        has_begun = False
        while True:
            wait_s = until_s - loop.time()
            data, came = (
                came or await wire.read(min(wait_s, QUIET_S) if has_begun and wire.character_s else wait_s),
                b"",
            )
            if not data:
                why = answers.ended()
                raise why if has_begun else Silent(str(why))
            if not has_begun:
                has_begun = True
                until_s = max(until_s, loop.time() + self.framing.size_of_answer(request) * wire.character_s + QUIET_S)
            self._note_byte(loop.time(), wire)
            try:
                found = answers.feed(data)
            except Unreadable:
                if getattr(answers, "is_broken", False):
                    raise ConnectionResetError("what comes is no Modbus over TCP") from None
                raise
            if found is not None:
                unit.is_unsure |= bool(answers.rest)
                if len(found) == 2 and found[0] & 0x80:
                    raise UnitException(found[1])
                return found

    def _note_byte(self, now_s: float, wire: Wire) -> None:
        if wire.character_s:
            self.quiet_from_s = now_s + max(SILENT_LEAST_S, SILENT_CHARACTERS * wire.character_s)

    async def _wait_for_silence(self, wire: Wire) -> None:
        """Waits for 3.5 characters of silence, and drops what has come unasked."""
        loop = asyncio.get_running_loop()
        for _ in range(DISCARD_READS):
            wait_s = self.quiet_from_s - loop.time()
            data = await wire.read(wait_s) if wait_s > 0 else wire.take()
            if not data and self.quiet_from_s <= loop.time():
                return
            if data:
                if self.last is not None:
                    self.last.is_unsure = True
                self._note_byte(loop.time(), wire)
        raise Unreadable("the line is never quiet: another program, or another master, asks the units")

    async def _take_echo(self, wire: Wire, frame: bytes) -> bytes:
        """Reads back what was sent; returns what came behind it.

        Raises Unreadable: something else came, as when two masters send at once.
        """
        echo = b""
        while len(echo) < len(frame):
            data = await wire.read(len(frame) * wire.character_s + QUIET_S)
            if not data:
                raise Unreadable(f"of {len(frame)} bytes that were sent, {len(echo)} came back: is it an echo line?")
            echo += data
        if echo[: len(frame)] != frame:
            raise Unreadable("other bytes came back than were sent: a collision")
        return echo[len(frame) :]
