"""Which modules of the firmware a board needs: all that it can come to need, or what one configuration asks for."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from device.clock import NTP
from device.config import Config
from tools.cli.build.trees import walk
from tools.cli.paths import source_root

PACKAGES = ("wire", "flash_store", "device")
ENTRIES = ("device.main", "device.library", "device.console_main")  # what programs on a board import
SPI = "spi:"  # how the path of a flash chip on a bus begins


class Board(StrEnum):
    """What there is an adapter for."""

    ESP32 = "esp32"
    RP2 = "rp2"
    UNIX = "unix"


FLASHES = {Board.ESP32: ("esp32", "spi_nor", "ram"), Board.RP2: ("rp2", "spi_nor", "ram"), Board.UNIX: ("file", "ram")}


def needed(board: Board, config: Config | None = None) -> list[Path]:
    """Returns the modules that the firmware on this board can come to import, in order.

    Args:
        config: only the modules that it can import with this configuration, as `device.config.load` returns it.
    """
    foreign = {f"device.boards.{other}" for other in Board if other != board}
    foreign |= {f"flash_store.devices.{name}" for names in FLASHES.values() for name in names}
    foreign -= {f"flash_store.devices.{name}" for name in FLASHES[board]}
    if board != Board.UNIX:
        foreign.add("device.sensors.host")
    sensors = [f"device.sensors.{path.stem}" for path in (source_root() / "device/sensors").glob("*.py")]
    todo = [*ENTRIES, *sensors, *(f"flash_store.devices.{name}" for name in FLASHES[board])]
    if config is not None:
        foreign |= _unused(config)
        drivers = [sensor.driver.__module__ for sensor in config.sensors]
        todo = [*ENTRIES, *drivers]
    found: set[Path] = set()
    while todo:
        module = todo.pop()
        source = _source(module)
        if source is None or source in found or module in foreign:
            continue
        found.add(source)
        todo += [*_imports(source), module.rpartition(".")[0]]
    return sorted(found)


def module_name(source: Path) -> str:
    """Returns the name under which a module is imported."""
    return ".".join(source.relative_to(source_root()).with_suffix("").parts).removesuffix(".__init__")


def _unused(config: Config) -> set[str]:
    """Returns the modules that the firmware imports only for keys which this configuration has not."""
    moves = config.commands is not None  # by a command it gets another port
    kinds = {"tcp", "tls", "uart"} if moves else {port.kind for port in config.ports}
    is_used = {
        "device.ports.tcp": bool(kinds & {"tcp", "tls"}),
        "device.ports.tls": "tls" in kinds,
        "device.ports.uart": "uart" in kinds,
        "device.boards.terminal": "uart" in kinds,
        "device.boards.uart": "uart" in kinds,
        "device.mqtt.scram": moves or any(port.is_scram for port in config.ports),
        "device.mqtt.receipts": config.until is not None,
        "flash_store.kept": config.until is not None,
        "device.mqtt.inbox": config.commands is not None,
        "device.mqtt.commands": config.commands is not None,
        "device.mqtt.session_probe": config.commands is not None,
        "device.mqtt.qos0_queue": config.qos == 0,
        "device.readings.senml": config.payload == "json",
        "device.readings.senml_cbor": config.payload == "cbor",
        "device.sleeper": config.duty is not None,
        "device.sntp": config.clock.kind == NTP,
        "flash_store.devices.spi_nor": config.flash_path.startswith(SPI),
    }
    return {name for name, is_needed in is_used.items() if not is_needed}


def _source(module: str) -> Path | None:
    """Returns the module's file; None if it is none of ours."""
    path = source_root() / module.replace(".", "/")
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return found[0] if found and module.partition(".")[0] in PACKAGES else None


def _imports(source: Path) -> Iterator[str]:
    for node in walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
