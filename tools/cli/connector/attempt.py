"""``holdfast connector try``: reads everything once and prints it. Nothing is stored."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.config.connectors import ConnectorConfig, LineConfig, ModbusConfig, NmeaConfig, device_of
from gateway.config.errors import ConfigSource
from gateway.config.load import DEFAULT_PATH, draft_of
from gateway.connectors.bus import Bus
from gateway.connectors.keeping import Source
from gateway.connectors.line import LineReader
from gateway.connectors.modbus.blocks import Block
from gateway.connectors.modbus.frame import FRAMINGS, Framing
from gateway.connectors.nmea import NmeaReader
from gateway.connectors.polling import PolledUnit, unit_of
from gateway.connectors.reading import Reading, Unreadable
from gateway.connectors.splitter import LineSplitter
from gateway.connectors.wire import Wire, far_end
from host.errors import HostError
from tools.cli.columns import columns, printable
from tools.cli.connector.once import using
from tools.cli.failure import complain, failing_on

HEADINGS = ("device", "name", "value", "unit", "raw", "time")
LINES_SHOWN = 5
COMMAND = "connector try"

Row = tuple[str, str, str, str, str, str]


def attempt(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help=f"The gateway's TOML file, by default {DEFAULT_PATH}.")
    ] = DEFAULT_PATH,
    names: Annotated[
        list[str] | None, typer.Option("--name", metavar="NAME", help="Only this connector; may be repeated.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long to wait for lines of a device that speaks by itself.")
    ] = 10.0,
) -> None:
    """Read the devices of connectors once, and print their values. Stores nothing.

    The ports must be free: the gateway that reads them must not run.
    """
    with failing_on(HostError, command=COMMAND):
        source = ConfigSource(file)
        draft = draft_of(source)
        source.raise_errors()
        chosen = [one for one in draft.config.connector if not names or one.name in names]
        if not chosen:
            known = ", ".join(one.name for one in draft.config.connector) or "none"
            raise HostError(f"{file}: no such connector, expected one of {known}")
    rows, has_failed = asyncio.run(_read_all(chosen, seconds))
    if rows:
        typer.echo(columns([HEADINGS, *rows]))
    if has_failed:
        raise typer.Exit(1)


async def _read_all(chosen: list[ConnectorConfig], seconds: float) -> tuple[list[Row], bool]:
    rows: list[Row] = []
    has_failed = False
    for config in chosen:
        try:
            rows += await (_poll(config) if isinstance(config, ModbusConfig) else _listen(config, seconds))
        except HostError as error:
            complain(COMMAND, f"connector {config.name}: {error}")
            has_failed = True
    return rows, has_failed or any(name.endswith(".error") for _, name, *_ in rows)


async def _poll(config: ModbusConfig) -> list[Row]:
    framing: Framing = FRAMINGS[str(config.__struct_config__.tag)]()
    units = [
        unit_of(config, one, framing, lambda key, device, topic: Source(key, device, topic, None))
        for one in config.unit
    ]
    bus = Bus(framing)

    async def read(wire: Wire) -> list[Row]:
        return [
            row
            for unit in units
            for poll in unit.polls
            for block in poll.blocks
            for row in await _rows_of(bus, wire, unit, block)
        ]

    return await using(far_end(config), config.port, read)


async def _rows_of(bus: Bus, wire: Wire, unit: PolledUnit, block: Block) -> list[Row]:
    device, request = unit.config.device, block.request
    try:
        found = request.values_of(await bus.ask(wire, unit.state, request))
    except Unreadable as error:
        place = f"{request.table} {request.address}…{request.address + request.count - 1}"
        return [_row(device, Reading("poll.error", str(error)), place)]
    width = 1 if request.is_bits else 4
    raw = [" ".join(f"{register:0{width}x}" for register in block.registers_of(value, found)) for value in block.values]
    return [_row(device, reading, one) for reading, one in zip(block.readings(found), raw, strict=True)]


async def _listen(config: LineConfig | NmeaConfig, seconds: float) -> list[Row]:
    separator = config.separator.encode() if isinstance(config, LineConfig) else b"\n"
    splitter = LineSplitter(separator, config.longest)

    async def read(wire: Wire) -> list[Row]:
        until_s = time.monotonic() + seconds
        rows: list[Row] = []
        lines = 0
        while lines < LINES_SHOWN and (wait_s := until_s - time.monotonic()) > 0:
            for line in splitter.feed(await wire.read(wait_s)):
                lines += 1
                rows += _rows_of_line(config, line.removesuffix(b"\r"))
        if not rows:
            what = f"no line in {seconds:g} s, {splitter.skipped} bytes without a separator"
            rows = [_row(device_of(config), Reading("line.error", what), "")]
        return rows

    return await using(far_end(config), config.port, read)


def _rows_of_line(config: LineConfig | NmeaConfig, line: bytes) -> list[Row]:
    raw = line.decode(errors="replace")
    device = device_of(config)
    try:
        if isinstance(config, NmeaConfig):
            reader = NmeaReader(
                needs_checksum=config.checksum == "required", talkers=config.talkers, kinds=config.sentences
            )
            return [_row(device, reading, raw) for reading in reader.read(line)]
        found = LineReader(device, config.topic, config.rule).read(line)
        return [_row(found.device, reading, raw) for reading in found.readings]
    except Unreadable as error:
        return [_row(device, Reading("line.error", str(error)), raw)]


def _row(device: str, reading: Reading, raw: str) -> Row:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return device, reading.name, printable(str(reading.value)), reading.unit, printable(raw), now
