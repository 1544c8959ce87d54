"""Units that a gateway polls at a line's real pace: how late polls are, how many a second, and what they cost."""

import asyncio
import contextlib
import json
import time
import tomllib
from pathlib import Path

import msgspec
from pymodbus.client import AsyncModbusSerialClient, ModbusSerialClient

from gateway.broker import Broker
from gateway.config.connectors import ModbusRtuConfig
from gateway.config.schema import GatewayConfig, StoreConfig
from gateway.connectors.bus import SILENT_CHARACTERS
from gateway.connectors.connectors import Connectors
from gateway.store import MessageLog
from tools.lab.sim.modbus_units import SimulatedUnit, SimulatedUnits
from tools.lab.sim.virtual_line import BITS_PER_BYTE, Dice
from tools.lab.testing.client import Client
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.serial_line import PacedLine, SerialLine

BAUD = 19_200
NO_ERRORS = 1 << 40
REGISTERS = 10
CONNECTOR = '[[connector]]\nkind = "modbus_rtu"\nname = "{name}"\nport = "{port}"\nbaud = {baud}\n'
UNIT = """\
[[connector.unit]]
device = "{name}-{address}"
address = {address}
interval_s = {interval}
timeout_s = 0.1
value = [{values}]
"""
VALUES = ", ".join(f'{{ name = "v{number}", address = {number} }}' for number in range(REGISTERS))


def tables(name: str, port: str, units: int, interval: float) -> str:
    """The configuration of a connector with some units."""
    own = [UNIT.format(name=name, address=one, interval=interval, values=VALUES) for one in range(1, units + 1)]
    return CONNECTOR.format(name=name, port=port, baud=BAUD) + "".join(own)


async def lateness(folder: Path, units: int, dead: int, interval: float, seconds: float, warm: float) -> float:
    """Returns the greatest lateness of a poll of a unit that lives, as a part of the interval."""
    line = PacedLine(Dice(1), BAUD, NO_ERRORS)
    line.open()
    far = SimulatedUnits(
        line.far, [SimulatedUnit(one, is_dead=one % (units // dead) == 0) for one in range(1, units + 1)]
    )
    folder.mkdir()
    gateway = Gateway(folder, tables("unit", line.near, units, interval))
    await gateway.up()
    client = await Client("watcher").connect(gateway.port)
    await client.subscribe("#")
    await asyncio.sleep(warm)
    times: dict[str, list[float]] = {}
    ends = time.monotonic() + seconds
    warm_until = time.time()
    while time.monotonic() < ends:
        with contextlib.suppress(TimeoutError):
            packet = await asyncio.wait_for(client.receive(), 0.2)
            records = json.loads(packet.payload)
            if any(one["n"] == "v0" for one in records) and records[0]["bt"] > warm_until:
                times.setdefault(packet.topic, []).append(records[0]["bt"])
    client.cut()
    await gateway.down()
    far.close()
    line.close()
    assert len(times) == units - dead, f"{len(times)} units have answered"
    return max(_late(one, interval) for one in times.values()) / interval


def _late(times: list[float], interval: float) -> float:
    """By how much the latest of a unit's polls was later on its grid than the earliest one."""
    offsets = [(at - times[0] + interval / 2) % interval for at in times]
    return max(offsets) - min(offsets)


async def rate_of_ours(folder: Path, seconds: float) -> float:
    """Returns how many polls a second a gateway makes of one unit, each stored before the next.

    It runs in this process, as pymodbus' client does, and may ask as often as it can.
    """
    line = PacedLine(Dice(1), BAUD, NO_ERRORS)
    line.open()
    unit = SimulatedUnit(1)
    far = SimulatedUnits(line.far, [unit])
    keys = tomllib.loads(tables("unit", line.near, 1, 0.01))["connector"][0]
    config = GatewayConfig("bench", StoreConfig(str(folder)))
    log = await MessageLog.open(folder, origin="bench")
    broker = Broker(config, log)
    await broker.start()
    services = broker.services
    connectors = Connectors(
        [msgspec.convert(keys, ModbusRtuConfig)], "bench", log, services.publishing, services.limits
    )
    task = asyncio.create_task(connectors.run())
    await asyncio.sleep(2.0)
    before, began = unit.asked, time.monotonic()
    await asyncio.sleep(seconds)
    rate = (unit.asked - before) / (time.monotonic() - began)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await broker.close()
    await log.close()
    far.close()
    line.close()
    return rate


async def rates_of_pymodbus(seconds: float) -> tuple[float, float, float]:
    """Returns how many polls a second pymodbus' clients make of the same unit: the asynchronous one as it is and with
    the silence between frames, and the blocking one.

    As they are, both begin a request as soon as they have an answer, without the silence of 3.5 characters.
    """
    line = PacedLine(Dice(1), BAUD, NO_ERRORS)
    line.open()
    far = SimulatedUnits(line.far, [SimulatedUnit(1)])
    client = AsyncModbusSerialClient(line.near, baudrate=BAUD)
    await client.connect()
    rates = [await _poll(client, seconds, pause_s) for pause_s in (0.0, SILENT_CHARACTERS * BITS_PER_BYTE / BAUD)]
    client.close()
    blocking = await asyncio.to_thread(_poll_blocking, line.near, seconds)
    far.close()
    line.close()
    return rates[0], rates[1], blocking


async def _poll(client: AsyncModbusSerialClient, seconds: float, pause_s: float) -> float:
    polls, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        answer = await client.read_holding_registers(0, count=REGISTERS, device_id=1)
        polls += not answer.isError()
        if pause_s:
            await asyncio.sleep(pause_s)
    return polls / (time.monotonic() - began)


def _poll_blocking(path: str, seconds: float) -> float:
    client = ModbusSerialClient(path, baudrate=BAUD)
    client.connect()
    polls, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        polls += not client.read_holding_registers(0, count=REGISTERS, device_id=1).isError()
    client.close()
    return polls / (time.monotonic() - began)


async def cost(folder: Path, lines: int, units: int, interval: float, seconds: float) -> tuple[float, float]:
    """Returns the part of a core, and the MB of memory, that units on some lines take of a gateway."""
    cables = [SerialLine() for _ in range(lines)]
    found = []
    for with_units in (False, True):
        place = folder / str(with_units)
        place.mkdir(parents=True)
        for cable in cables if with_units else ():
            cable.open()
        fars = [
            SimulatedUnits(cable.far, [SimulatedUnit(one) for one in range(1, units + 1)])
            for cable in (cables if with_units else ())
        ]
        text = "".join(tables(f"line{number}", one.near, units, interval) for number, one in enumerate(cables))
        gateway = Gateway(place, text if with_units else "")
        await gateway.up()
        await asyncio.sleep(interval)
        before, began = gateway.cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        found.append(((gateway.cpu_s() - before) / (time.monotonic() - began), gateway.status("VmRSS") / 1024))
        await gateway.down()
        for far in fars:
            far.close()
    for cable in cables:
        cable.close()
    (idle_cpu, idle_mb), (cpu, mb) = found
    return cpu - idle_cpu, mb - idle_mb
