"""One request at a time on a line that may echo, chatter, and carry answers of more than one unit."""

import asyncio
import contextlib
import os
import tty
from collections.abc import AsyncIterator

import pytest

from gateway.connectors.bus import Bus, Silent, UnitState
from gateway.connectors.modbus.frame import RtuFraming
from gateway.connectors.modbus.request import Read
from gateway.connectors.reading import Unreadable
from gateway.connectors.wire import Wire
from tests.gateway.connectors.support import cable
from tools.lab.sim.modbus_units import SimulatedUnit, SimulatedUnits, register_of
from tools.lab.testing.serial_line import SerialLine

CHARACTER_S = 11 / 115_200
READ = Read("holding", 4, 1)


def state(address: int = 1, timeout_s: float = 0.2) -> UnitState:
    return UnitState(address, timeout_s, 60.0, Read("holding", 4, 2))


@contextlib.asynccontextmanager
async def opened(line: SerialLine, *, echoes: bool = False) -> AsyncIterator[Wire]:
    descriptor = os.open(line.near, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    tty.setraw(descriptor)
    try:
        yield Wire(descriptor, CHARACTER_S, echoes=echoes)
    finally:
        os.close(descriptor)


async def value_of(bus: Bus, wire: Wire, unit: UnitState) -> int:
    (register,) = READ.values_of(await bus.ask(wire, unit, READ))
    return register


async def test_an_echo_is_taken_off_and_another_one_is_a_collision() -> None:
    async with cable() as line, opened(line, echoes=True) as wire:
        bus, unit = Bus(RtuFraming()), state()
        far = SimulatedUnits(line.far, [SimulatedUnit(1)], echoes=True)
        assert await value_of(bus, wire, unit) == register_of(1, 4)
        far.garbles_echo = True
        with pytest.raises(Unreadable, match="a collision"):
            await value_of(bus, wire, unit)
        far.garbles_echo = False
        assert await value_of(bus, wire, unit) == register_of(1, 4)
        far.close()


async def test_a_line_without_the_echo_that_is_configured_is_told() -> None:
    async with cable() as line, opened(line, echoes=True) as wire:
        with pytest.raises(Unreadable, match="is it an echo line"):
            await value_of(Bus(RtuFraming()), wire, state())


async def test_a_line_that_is_never_quiet_is_told_within_bounded_time() -> None:
    async with cable() as line, opened(line) as wire:
        far = SimulatedUnits(line.far, [])

        async def chatter() -> None:
            while True:
                far.send(b"\x55" * 8)
                await asyncio.sleep(0)

        task = asyncio.create_task(chatter())
        bus = Bus(RtuFraming())
        with pytest.raises(Unreadable):
            await asyncio.wait_for(value_of(bus, wire, state()), 10)
        task.cancel()
        far.close()


async def test_a_unit_that_answers_for_two_addresses_gives_each_its_own_value() -> None:
    """Its second answer comes unasked, behind the first: what follows is not taken from it."""
    async with cable() as line, opened(line) as wire:
        bus, first, second = Bus(RtuFraming()), state(1), state(2)
        far = SimulatedUnits(line.far, [SimulatedUnit(1, repeats_as=2), SimulatedUnit(2)])
        for _ in range(5):
            assert await value_of(bus, wire, first) == register_of(1, 4)
            with contextlib.suppress(Unreadable):
                assert await value_of(bus, wire, second) == register_of(2, 4)
        far.close()


async def test_silence_is_a_silence_with_a_pause_that_grows() -> None:
    async with cable() as line, opened(line) as wire:
        bus, unit = Bus(RtuFraming()), state(timeout_s=0.02)
        waits = []
        for _ in range(8):
            with pytest.raises(Silent, match="no answer"):
                await value_of(bus, wire, unit)
            waits.append(unit.retry_from_s - asyncio.get_running_loop().time())
        assert [round(wait_s) for wait_s in waits] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_line_that_is_unplugged_amid_an_answer_ends() -> None:
    async with cable() as line, opened(line) as wire:
        far = SimulatedUnits(line.far, [SimulatedUnit(1, cut=3)])
        asking = asyncio.create_task(Bus(RtuFraming()).ask(wire, state(timeout_s=30.0), READ))
        while not far.units[1].asked:
            await asyncio.sleep(0)
        line.hang_up()
        with pytest.raises((OSError, Unreadable)):
            await asking
        far.close()
