"""``holdfast connector scan``: which units answer on a port, at which speed and with which parity."""

import asyncio
import time
from typing import Annotated

import msgspec
import typer

from gateway.config.connectors import TCP, ModbusConfig, ModbusRtuConfig, ModbusTcpConfig
from gateway.connectors.bus import Bus, UnitState
from gateway.connectors.modbus.frame import FRAMINGS
from gateway.connectors.modbus.request import Read, UnitException
from gateway.connectors.reading import Unreadable
from gateway.connectors.wire import Wire, far_end
from host.errors import HostError
from tools.cli.columns import columns
from tools.cli.connector.once import Unreachable, using
from tools.cli.failure import fail

BAUDS = (9600, 19_200, 38_400, 115_200, 4800, 57_600, 2400)
PARITIES = ("none", "even", "odd")
LIKELY = 10  # the first addresses, which are tried at all speeds before the others are at any
PROBE = Read("holding", 0, 1)
COMMAND = "connector scan"
HEADINGS = ("unit", "baud", "parity", "answer")

Setting = tuple[int, str]
Row = tuple[str, str, str, str]


def scan(
    port: Annotated[str, typer.Argument(metavar="PORT", help="The serial port, or tcp://HOST:PORT.")],
    seconds: Annotated[float, typer.Option(min=1, help="The longest time that the scan may take.")] = 120.0,
    timeout: Annotated[float, typer.Option(min=0.01, help="How long a unit may take to answer, in seconds.")] = 0.1,
    baud: Annotated[list[int] | None, typer.Option(min=50, help="Only this speed; may be repeated.")] = None,
    last: Annotated[int, typer.Option(min=1, max=247, help="The last address that is tried.")] = 247,
    tcp: Annotated[bool, typer.Option("--tcp", help="The port speaks Modbus over TCP, and not RTU.")] = False,
) -> None:
    """Find the units that answer Modbus on a port. It reads holding register 0 of each, and writes nothing.

    It tries the first addresses at all speeds and parities, then all addresses where a unit has answered.
    """
    bauds = tuple(baud) if baud else BAUDS
    settings: list[Setting] = [(one, parity) for one in bauds for parity in PARITIES]
    if port.startswith(TCP):
        settings = settings[:1]
    try:
        found, is_whole = asyncio.run(_scan(port, settings, time.monotonic() + seconds, timeout, last, tcp))
    except HostError as error:
        fail(COMMAND, str(error), 1)
    if found:
        typer.echo(columns([HEADINGS, *found]))
    if not is_whole:
        typer.echo(f"holdfast {COMMAND}: not all addresses were tried in {seconds:g} s", err=True)
    if not found:
        fail(COMMAND, f"{port}: no unit answers", 1)


async def _scan(
    port: str, settings: list[Setting], until_s: float, timeout: float, last: int, tcp: bool
) -> tuple[list[Row], bool]:
    likely = range(1, min(LIKELY, last) + 1)
    found: list[Row] = []
    heard: list[Setting] = []
    for setting in settings:
        try:
            rows, is_whole = await _try(port, setting, likely, until_s, timeout, tcp)
        except Unreachable:
            if setting == settings[0]:
                raise
            continue  # the port has no such speed or parity
        found += rows
        if rows:
            heard.append(setting)
            break  # a line has one speed
        if not is_whole:
            return found, False
    for setting in heard or settings[:1]:
        rows, is_whole = await _try(port, setting, range(len(likely) + 1, last + 1), until_s, timeout, tcp)
        found += rows
        if not is_whole:
            return found, False
    return found, bool(heard) or len(settings) == 1


async def _try(
    port: str, setting: Setting, addresses: range, until_s: float, timeout: float, tcp: bool
) -> tuple[list[Row], bool]:
    """Returns the units that answer at a setting, and whether there was time for all addresses."""
    baud, parity = setting
    kind: type[ModbusConfig] = ModbusTcpConfig if tcp else ModbusRtuConfig
    tag = str(kind.__struct_config__.tag)
    unit = {"device": "unit", "value": [{"name": "register", "address": 0}]}
    keys = {"kind": tag, "name": "scan", "port": port, "baud": baud, "parity": parity, "unit": [unit]}
    config = msgspec.convert(keys, kind)
    bus = Bus(FRAMINGS[tag]())
    shown = ("-", "-") if port.startswith(TCP) else (str(baud), parity)

    async def ask(wire: Wire) -> tuple[list[Row], bool]:
        rows: list[Row] = []
        for address in addresses:
            if time.monotonic() > until_s:
                return rows, False
            unit = UnitState(address, timeout, 1.0, Read("holding", 0, 2))
            answer = await _answer_of(bus, wire, unit)
            if answer is not None:
                rows.append((str(address), *shown, answer))
        return rows, True

    return await using(far_end(config), port, ask)


async def _answer_of(bus: Bus, wire: Wire, unit: UnitState) -> str | None:
    """Returns what a unit answers, None if that is nothing or corrupt."""
    try:
        (register,) = PROBE.values_of(await bus.ask(wire, unit, PROBE))
    except UnitException as error:
        return str(error)
    except Unreadable:
        return None
    return f"register 0 is {register}"
