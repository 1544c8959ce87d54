"""`holdfast connector try` and `scan`, on lines with units and with devices that speak by themselves."""

import asyncio
import os
from pathlib import Path

from tests.gateway.connectors.support import cable
from tests.support.command import holdfast
from tools.lab.sim.modbus_units import SimulatedUnit, SimulatedUnits, register_of

GATEWAY = 'name = "plant"\n[store]\npath = "store"\n'
MODBUS = """\
[[connector]]
kind = "modbus_rtu"
name = "hall"
port = "{port}"
baud = 115200
[[connector.unit]]
device = "meter"
address = {address}
timeout_s = 0.1
value = [{{ name = "power", address = 12, scale = 0.1, unit = "W" }}, {{ name = "state", address = 13, bit = 0 }}]
"""


async def test_try_prints_values_with_raw_registers(tmp_path: Path) -> None:
    async with cable() as line:
        far = SimulatedUnits(line.far, [SimulatedUnit(3)])
        file = tmp_path / "gateway.toml"
        file.write_text(GATEWAY + MODBUS.format(port=line.near, address=3))
        done = await asyncio.to_thread(holdfast, "connector", "try", str(file))
        far.close()
    assert done.exit_code == 0
    heading, power, state = (one.split() for one in done.output.splitlines())
    assert heading == ["device", "name", "value", "unit", "raw", "time"]
    assert power[:5] == ["meter", "power", "78", "W", f"{register_of(3, 12):04x}"]
    assert state[:4] == ["meter", "state", str(register_of(3, 13) & 1), f"{register_of(3, 13):04x}"]
    assert not (tmp_path / "store").exists()


async def test_try_tells_a_unit_that_does_not_answer_and_a_port_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    async with cable() as line:
        file.write_text(GATEWAY + MODBUS.format(port=line.near, address=3))
        done = await asyncio.to_thread(holdfast, "connector", "try", str(file))
        assert done.exit_code == 1 and "poll.error  no answer" in done.output
    file.write_text(GATEWAY + MODBUS.format(port=tmp_path / "nothing", address=3))
    done = await asyncio.to_thread(holdfast, "connector", "try", str(file))
    nothing = tmp_path / "nothing"
    assert done.exit_code == 1 and done.output == (
        f"holdfast connector try: connector hall: {nothing}: No such file or directory\n"
    )


async def test_try_prints_lines_of_a_device_that_speaks(tmp_path: Path) -> None:
    async with cable() as line:
        file = tmp_path / "gateway.toml"
        file.write_text(GATEWAY + f'[[connector]]\nkind = "line"\nname = "scale"\nport = "{line.near}"\n')
        descriptor = os.open(line.far, os.O_RDWR | os.O_NOCTTY)
        task = asyncio.create_task(asyncio.to_thread(holdfast, "connector", "try", str(file)))
        while not task.done():
            os.write(descriptor, b"12.5\n")
            await asyncio.wait((task,), timeout=0.05)
        os.close(descriptor)
    done = await task
    assert done.exit_code == 0 and "scale   line  12.5" in done.output


async def test_scan_finds_the_units_that_answer_within_its_time() -> None:
    async with cable() as line:
        far = SimulatedUnits(line.far, [SimulatedUnit(3), SimulatedUnit(12, exception=2)])
        arguments = ("--baud", "19200", "--timeout", "0.02", "--last", "15")
        done = await asyncio.to_thread(holdfast, "connector", "scan", line.near, *arguments)
        far.close()
    assert done.exit_code == 0
    rows = [one.split(maxsplit=3) for one in done.output.splitlines()[1:]]
    assert rows == [
        ["3", "19200", "none", f"register 0 is {register_of(3, 0)}"],
        ["12", "19200", "none", "exception 2: illegal data address"],
    ]


async def test_scan_ends_when_its_time_is_over() -> None:
    async with cable() as line:
        done = await asyncio.to_thread(holdfast, "connector", "scan", line.near, "--seconds", "1")
    assert done.exit_code == 1 and "not all addresses were tried in 1 s" in done.output
