"""A connector that asks units by Modbus: it polls each at its times, and stores what they answer."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.config.connectors import ModbusConfig, UnitConfig
from gateway.connectors.bus import SILENT_CHARACTERS, SILENT_LEAST_S, Bus, Silent, UnitState
from gateway.connectors.commands import ENDED, EXPIRED, Order
from gateway.connectors.keeping import DeadBands, Keeper, Pack, Source
from gateway.connectors.line import fill
from gateway.connectors.modbus.blocks import Block, blocks_of, probe_of
from gateway.connectors.modbus.command import Outcome, Written, read_of
from gateway.connectors.modbus.frame import FRAMINGS, Framing
from gateway.connectors.modbus.request import SURELY_NOT_DONE, UnitException, Write, check_answer
from gateway.connectors.modbus.value import reading_of
from gateway.connectors.poller import Poll, Schedule
from gateway.connectors.reading import Reading, Unreadable
from gateway.connectors.wire import Wire, far_end, now_ms
from gateway.counters import ConnectorState, ConnectorUnit
from gateway.loop.signals import Signal

ERROR = "poll.error"
STORE_SLOW_S = 1.0  # that the store takes, beyond which polls are missed and told as a gap
MARK_MS = 60_000  # between two marks of a unit whose values do not change
OPEN_WITHIN_S = 10.0  # that a command waits for a port that is gone
LOOK_S = 1.0  # between two looks whether the port is open, while a command waits
TURNAROUND_S = 0.01  # of a unit, as far as is known before it has answered


@dataclass(slots=True)
class PolledUnit:
    """A unit with its polls, and where what it says goes."""

    config: UnitConfig
    state: UnitState
    polls: list[Poll]
    topic: str
    source: Source
    bands: DeadBands
    counts: ConnectorUnit


@dataclass(slots=True, eq=False)
class _Waiting:
    """An order that waits for its turn on the line."""

    order: Order
    outcome: "asyncio.Future[Outcome]"
    is_begun: bool = False


class Polling:
    """Polls the units of one line for ever.

    Args:
        config: the connector.
        keeper: stores what they answer.
    """

    def __init__(self, config: ModbusConfig, keeper: Keeper) -> None:
        self._config = config
        self._keeper = keeper
        self._far = far_end(config)
        framing: Framing = FRAMINGS[str(config.__struct_config__.tag)]()
        self.bus = Bus(framing)
        self.units = [unit_of(config, one, framing, keeper.source) for one in config.unit]
        self._by_poll = {id(poll): unit for unit in self.units for poll in unit.polls}
        self._ordered: _Waiting | None = None
        self._wanted = Signal()
        self._closed_s: float | None = 0.0  # since when the line is closed; None while it is open

    @property
    def state(self) -> ConnectorState:
        """How it is doing now."""
        for unit in self.units:
            counts, state = unit.counts, unit.state
            counts.silences, counts.corrupt, counts.exceptions = state.silences, state.corrupt, state.exceptions
            counts.gaps, counts.problem = unit.source.gaps, state.problem
            counts.missed = sum(poll.missed for poll in unit.polls)
            counts.late_most_s = max(poll.late_most_s for poll in unit.polls)
        problem = self._far.problem or self._keeper.problem
        return ConnectorState(self._config.name, problem, [unit.counts for unit in self.units])

    async def run(self) -> None:
        """Runs until it is cancelled."""
        self._closed_s = asyncio.get_running_loop().time()
        await self._far.keep_open(self.poll)

    async def carry_out(self, order: Order) -> Outcome:
        """Has a unit do what an order says, between two polls. Raises sqlite3.Error: it was not begun."""
        loop = asyncio.get_running_loop()
        waiting = self._ordered = _Waiting(order, loop.create_future())
        self._wanted.set()
        try:
            while not waiting.outcome.done():
                closed_s = self._closed_s
                if closed_s is not None and not waiting.is_begun and loop.time() - closed_s > OPEN_WITHIN_S:
                    return Outcome("no", f"the line is not open: {self._far.problem}")
                await asyncio.wait([waiting.outcome], timeout=LOOK_S)
            return waiting.outcome.result()
        finally:
            self._ordered = None

    def count_answer(self, device: str, written: Written) -> None:
        """Counts a command for a unit that was answered."""
        for unit in self.units:
            if unit.config.device == device:
                unit.counts.commands[written] += 1

    async def poll(self, wire: Wire) -> None:
        """Polls over an open line until it is gone. Raises OSError then."""
        self._closed_s = None
        try:
            await self._poll(wire)
        finally:
            self._closed_s = asyncio.get_running_loop().time()

    async def _poll(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        for unit in self.units:
            unit.source.is_behind = True
            unit.state.is_unsure = True  # an answer to another program's request may be on its way
            unit.bands.forget()
        schedule = Schedule([poll for unit in self.units for poll in unit.polls], loop.time())
        polls_first = False  # so that orders take half of the line's time at most
        while True:
            poll, wait_s = schedule.next(loop.time())
            ordered = self._ordered
            if ordered is not None and not ordered.is_begun and not (polls_first and poll is not None):
                polls_first = True
                await self._carry_out(wire, ordered)
                continue
            polls_first = False
            if poll is None:
                await self._pause(wait_s)
                continue
            unit = self._by_poll[id(poll)]
            if self._keeper.problem:  # nothing is asked while nothing is stored
                await self._keeper.settle()
                if loop.time() - poll.due_s > max(STORE_SLOW_S, poll.interval_s):
                    self._fall_behind()
            await self._make(wire, unit, poll, loop.time())

    async def _pause(self, wait_s: float) -> None:
        """Waits, at most until there is an order."""
        self._wanted.clear()
        if self._ordered is None or self._ordered.is_begun:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()

    async def _carry_out(self, wire: Wire, waiting: _Waiting) -> None:
        """Does what an order says, and tells what became of it. Raises OSError: the line is gone."""
        waiting.is_begun = True
        order, outcome = waiting.order, Outcome("no")
        unit = next(one for one in self.units if one.config.device == order.device)
        try:
            if order.write is None:
                outcome = Outcome("unknown", ENDED)
            else:
                await self._write(wire, unit, order, order.write, outcome)
            if outcome.written != "no":
                await self._read_back(wire, unit, order, outcome)
        except sqlite3.Error as error:  # nothing was begun
            _settle(waiting.outcome, error)
        except OSError as error:
            outcome.error = outcome.error or f"the line is gone: {error}"
            raise
        except Exception as error:
            _settle(waiting.outcome, error)
            raise
        finally:
            _settle(waiting.outcome, outcome)

    async def _write(self, wire: Wire, unit: PolledUnit, order: Order, write: Write, outcome: Outcome) -> None:
        """Writes a value once, and says in the outcome what is known of it."""
        state = unit.state
        if state.is_dead:
            outcome.error = f"the unit does not answer: {state.problem}"
            return
        asked = state.asked
        try:
            await self.bus.settle(wire, state)
            await order.begin()
            asked = state.asked
            if order.is_late():
                outcome.error = EXPIRED
                return
            outcome.written = "unknown"  # from here on, unless more is known
            check_answer(write, await self.bus.ask(wire, state, write))
        except UnitException as error:
            outcome.error = str(error)
            outcome.written = "no" if error.code in SURELY_NOT_DONE else "unknown"
        except Unreadable as error:
            outcome.error = str(error)
            outcome.written = "no" if state.asked == asked else "unknown"
        else:
            outcome.written = "yes"

    async def _read_back(self, wire: Wire, unit: PolledUnit, order: Order, outcome: Outcome) -> None:
        request = read_of(order.value)
        try:
            found = request.values_of(await self.bus.ask(wire, unit.state, request))
            outcome.value = reading_of(order.value, found).value
        except Unreadable as error:
            outcome.error = f"{outcome.error}; " * bool(outcome.error) + f"it was not read back: {error}"

    def _fall_behind(self) -> None:
        """No unit was asked while the store took nothing."""
        for unit in self.units:
            unit.source.is_behind = True

    async def _make(self, wire: Wire, unit: PolledUnit, poll: Poll, now_s: float) -> None:
        if unit.state.is_dead:  # its other polls wait for this one
            for other in unit.polls:
                other.due_s = max(other.due_s, now_s)
        poll.begin(now_s, counts=not unit.state.is_dead)
        began_ms = now_ms()
        was_dead = unit.state.is_dead
        readings: list[Reading] = []
        for block in poll.blocks:
            readings += await self.read(wire, unit, block)
            if unit.state.is_dead:
                break
        if unit.state.is_dead and not was_dead:
            unit.bands.forget()
        if not unit.state.is_dead:
            self._far.note_heard()
        read_ms = now_ms()
        chosen = unit.bands.chosen(readings, now_s)
        packs = [Pack(unit.topic, unit.config.device, read_ms, chosen)] if chosen else []
        if packs or unit.source.is_behind or abs(read_ms - (unit.source.told_ms or 0)) > MARK_MS:
            self._keeper.add(unit.source, packs, began_ms, read_ms)

    async def read(self, wire: Wire, unit: PolledUnit, block: Block) -> list[Reading]:
        """Returns the readings of a block, or one that says why there are none. Raises OSError."""
        unit.counts.polls += 1
        ready = self._keeper.settle  # what was read before is on the disk before more is read
        try:
            try:
                answer = await self.bus.ask(wire, unit.state, block.request, ready)
            except (Silent, UnitException):
                raise
            except Unreadable:  # a corrupt answer is asked for once more
                if unit.state.is_dead:
                    raise
                answer = await self.bus.ask(wire, unit.state, block.request, ready)
            return block.readings(block.request.values_of(answer))
        except Unreadable as error:
            unit.counts.errors += 1
            return [Reading(ERROR, str(error))]


def unit_of(
    config: ModbusConfig, unit: UnitConfig, framing: Framing, source_of: Callable[[str, str, str], Source]
) -> PolledUnit:
    """Returns a unit with its polls, one for each interval."""
    intervals = sorted({value.interval_s or unit.interval_s for value in unit.value})
    by_interval = {
        interval_s: blocks_of(
            (value for value in unit.value if (value.interval_s or unit.interval_s) == interval_s),
            gap=unit.read_gap,
            most=unit.registers_most,
        )
        for interval_s in intervals
    }
    probe = probe_of(block for blocks in by_interval.values() for block in blocks)
    state = UnitState(unit.address, unit.timeout_s, unit.backoff_s, probe)
    polls = [
        Poll(state, unit.device, blocks, interval_s, cost_of(config, framing, blocks))
        for interval_s, blocks in by_interval.items()
    ]
    topic = fill(config.topic, {"device": unit.device})
    bands = {one.name: (one.dead_band, one.at_least_s) for one in unit.value if one.dead_band is not None}
    source = source_of(f"{config.name}/{unit.device}", unit.device, topic)
    return PolledUnit(unit, state, polls, topic, source, DeadBands(bands), ConnectorUnit(unit.device))


def cost_of(config: ModbusConfig, framing: Framing, blocks: Iterable[Block]) -> float:
    """Returns how long requests and answers take, in seconds, of a unit that answers soon."""
    character_s = 0.0 if config.port.startswith("tcp://") else (2 + config.data_bits + config.stop_bits) / config.baud
    silence_s = max(SILENT_LEAST_S, SILENT_CHARACTERS * character_s)
    cost_s = 0.0
    for block in blocks:
        characters = len(framing.encode(0, block.request)) + framing.size_of_answer(block.request)
        cost_s += characters * character_s + 2 * silence_s + TURNAROUND_S
    return cost_s


def _settle(future: "asyncio.Future[Outcome]", outcome: Outcome | Exception) -> None:
    if not future.done():
        if isinstance(outcome, Outcome):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
