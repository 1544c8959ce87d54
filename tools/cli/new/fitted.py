"""What is fitted at a board: its kind, and the sensors on its buses, asked at MicroPython's prompt."""

from collections.abc import Sequence
from typing import Any

from tools.cli.board.console import Console
from tools.cli.device.check_config import Board
from tools.cli.new.answers import AnswerError

I2C_KINDS = {0x44: "sht31", 0x45: "sht31", 0x76: "bme280", 0x77: "bme280"}
BME280_REGISTER, BME280_ID = 0xD0, 0x60
DS18B20_FAMILY = "28"
KINDS = {"S2": Board.ESP32S2, "S3": Board.ESP32S3, "C3": Board.ESP32C3}
SCAN = """
import json
from machine import I2C, Pin
r = {{"i2c": [], "wires": []}}
for bus, scl, sda in {buses}:
    line = I2C(bus, scl=Pin(scl), sda=Pin(sda), freq=100000)
    found = []
    for address in line.scan():
        identity = 0
        if address in (0x76, 0x77):
            b = bytearray(1)
            line.readfrom_mem_into(address, {register}, b)
            identity = b[0]
        found.append([address, identity])
    r["i2c"].append(found)
for pin in {wires}:
    from binascii import hexlify
    from ds18x20 import DS18X20
    from onewire import OneWire
    wire = OneWire(Pin(pin))
    idle = bytearray(b"\\xff")
    if wire.reset():
        wire.readinto(idle)
    r["wires"].append([str(hexlify(one), "ascii") for one in DS18X20(wire).scan()] if idle[0] == 255 else None)
print("holdfast:" + json.dumps(r))
"""


def kind_of(console: Console) -> Board:
    """Asks a board for its kind. Raises AnswerError for one that is no board of Holdfast; BoardError, Refused."""
    answer = console.ask()
    if answer.platform == "rp2":
        return Board.RP2
    if answer.platform != "esp32":
        raise AnswerError(f"the board calls itself {answer.platform}, expected esp32 or rp2")
    return next((kind for mark, kind in KINDS.items() if f"ESP32{mark}" in _plain(answer.machine)), Board.ESP32)


def sensors_at(console: Console, buses: Sequence[tuple[int, int, int]], wires: Sequence[int]) -> list[dict[str, Any]]:
    """Looks for sensors that the firmware has drivers for.

    Args:
        buses: of I2C, as (bus, scl, sda).
        wires: the pins of 1-Wire.

    Raises:
        AnswerError: a wire is shorted.
        BoardError, Refused: the board does not answer.
    """
    if not buses and not wires:
        return []
    told = console.value(SCAN.format(buses=list(buses), wires=list(wires), register=BME280_REGISTER))
    found: list[dict[str, Any]] = []
    for (bus, scl, sda), chips in zip(buses, told["i2c"], strict=True):
        for address, identity in chips:
            kind = I2C_KINDS.get(address)
            if kind is None or (kind == "bme280" and identity != BME280_ID):
                continue
            found.append({"kind": kind, "bus": bus, "scl": scl, "sda": sda, "address": f"0x{address:02x}"})
    for pin, roms in zip(wires, told["wires"], strict=True):
        if roms is None:
            raise AnswerError(f"the wire at pin {pin} is shorted")
        found += [{"kind": "ds18b20", "pin": pin, "rom": rom} for rom in sorted(roms) if rom.startswith(DS18B20_FAMILY)]
    return _named(found)


def _named(sensors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gives names to sensors of one kind, whose readings need different ones: `ds18b20`, `ds18b20-2` …"""
    counts: dict[str, int] = {}
    named = []
    for sensor in sensors:
        count = counts[sensor["kind"]] = counts.get(sensor["kind"], 0) + 1
        named.append(sensor if count == 1 else {**sensor, "name": f"{sensor['kind']}-{count}"})
    return named


def _plain(machine: str) -> str:
    return machine.upper().replace("-", "")
