"""Units of another implementation: pymodbus' server over a serial line and TCP, in each mode."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
from pymodbus.framer import FramerType
from pymodbus.server import ModbusSerialServer, ModbusTcpServer

from gateway.config.connectors import ModbusAsciiConfig, ModbusRtuConfig, ModbusTcpConfig
from tests.gateway.connectors.support import cable, configured, gateway, next_of, next_with
from tests.gateway.support import joined
from tools.lab.testing.client import Client
from tools.lab.testing.ports import free_port

POWER = [int.from_bytes(struct.pack(">f", -1234.5)[at : at + 2], "big") for at in (0, 2)]
VALUES = [
    {"name": "power", "table": "input", "address": 0, "type": "float32"},
    {"name": "swapped", "address": 10, "type": "float32", "order": "CDAB"},
    {"name": "total", "address": 20, "type": "uint64", "scale": 0.001},
    {"name": "serial", "address": 30, "type": "string", "length": 3},
    {"name": "pump", "table": "coil", "address": 3, "type": "bool"},
    {"name": "door", "table": "discrete", "address": 9, "type": "bool"},
]
EXPECTED = {"power": -1234.5, "swapped": -1234.5, "total": 12345.678, "serial": "AB12", "pump": True, "door": False}


def memory() -> Any:
    """A unit's tables. pymodbus counts their addresses from 1."""
    holding = [0] * 100
    holding[10:12] = POWER[::-1]
    holding[20:24] = [0, 0, 12_345_678 >> 16, 12_345_678 & 0xFFFF]
    holding[30:33] = [0x4142, 0x3132, 0]
    bits = [False] * 20
    bits[3] = True
    inputs = POWER + [0] * 20
    blocks = [ModbusSequentialDataBlock(1, values) for values in ([False] * 20, bits, inputs, holding)]
    unit = ModbusDeviceContext(di=blocks[0], co=blocks[1], ir=blocks[2], hr=blocks[3])
    return ModbusServerContext(devices={5: unit}, single=False)


@asynccontextmanager
async def served(server: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(server.serve_forever())
    try:
        yield
    finally:
        await server.shutdown()
        await asyncio.gather(task, return_exceptions=True)


def units(**keys: Any) -> list[dict[str, Any]]:
    return [{"device": "meter", "address": 5, "interval_s": 0.1, "value": VALUES, **keys}]


@pytest.mark.parametrize(("kind", "framer"), [(ModbusRtuConfig, FramerType.RTU), (ModbusAsciiConfig, FramerType.ASCII)])
async def test_all_tables_and_types_are_read_over_a_serial_line(tmp_path: Path, kind: Any, framer: FramerType) -> None:
    async with cable() as line, served(ModbusSerialServer(memory(), framer=framer, port=line.far, baudrate=115_200)):
        config = configured(kind, port=line.near, baud=115_200, unit=units())
        async with gateway(tmp_path, config) as (_, client):
            assert await next_with(client, ["power"]) == EXPECTED


async def test_all_tables_and_types_are_read_over_tcp_also_after_the_server_was_away(tmp_path: Path) -> None:
    port = free_port()
    config = configured(ModbusTcpConfig, port=f"tcp://127.0.0.1:{port}", unit=units())
    async with gateway(tmp_path, config) as (_, client):
        async with served(ModbusTcpServer(memory(), address=("127.0.0.1", port))):
            assert await next_with(client, ["power"]) == EXPECTED
        async with served(ModbusTcpServer(memory(), address=("127.0.0.1", port))):
            assert "gap.from" in await next_with(client, ["gap.from"])
            assert await next_of(client) == EXPECTED


WRITTEN = [
    ({"name": "pump", "table": "coil", "address": 4, "type": "bool"}, True),
    ({"name": "fan", "table": "coil", "address": 5, "type": "bool", "write_function": 15}, True),
    ({"name": "level", "address": 60, "type": "int16", "scale": 0.1}, -12.5),
    ({"name": "mode", "address": 61, "write_function": 16}, 3),
    ({"name": "limit", "address": 62, "type": "float32", "order": "CDAB"}, 0.15625),
    ({"name": "count", "address": 64, "type": "uint64", "order": "HGFEDCBA"}, 2**53 + 1),
]


@asynccontextmanager
async def peer(kind: Any) -> AsyncIterator[str]:
    """Serves a unit; yields the port at which it is."""
    if kind is ModbusTcpConfig:
        port = free_port()
        async with served(ModbusTcpServer(memory(), address=("127.0.0.1", port))):
            yield f"tcp://127.0.0.1:{port}"
    else:
        framer = FramerType.RTU if kind is ModbusRtuConfig else FramerType.ASCII
        async with (
            cable() as line,
            served(ModbusSerialServer(memory(), framer=framer, port=line.far, baudrate=115_200)),
        ):
            yield line.near


@pytest.mark.parametrize("kind", [ModbusRtuConfig, ModbusAsciiConfig, ModbusTcpConfig])
async def test_values_are_set_with_each_function_and_read_back(tmp_path: Path, kind: Any) -> None:
    values = [
        {**value, "write": True, **({} if value.get("type") == "bool" else {"min": -1e18, "max": 1e18})}
        for value, _ in WRITTEN
    ]
    async with peer(kind) as port:
        config = configured(kind, port=port, baud=115_200, unit=units(value=values))
        async with gateway(tmp_path, config) as (_, client):
            receiver = await joined(client.port, "receiver", "telemetry/meter/answer", options=2)
            sender = await Client("sender").connect(client.port)
            for value, wanted in WRITTEN:
                command = {"command": "write", "name": value["name"], "value": wanted}
                await sender.publish_once("commands/meter", json.dumps(command).encode())
                answer = json.loads((await receiver.receive()).payload)
                assert (answer["written"], answer.get("value")) == ("yes", wanted), answer


async def test_a_register_that_does_not_exist_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    async with cable() as line, served(ModbusSerialServer(memory(), port=line.far, baudrate=115_200)):
        values = [VALUES[0], {"name": "nothing", "address": 5000}]
        config = configured(ModbusRtuConfig, port=line.near, baud=115_200, unit=units(value=values))
        async with gateway(tmp_path, config) as (_, client):
            found = await next_with(client, ["power"])
    assert found == {"power": -1234.5, "poll.error": "exception 2: illegal data address"}
