"""`holdfast device check-config`: says whether a device would start with a configuration, on any machine."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from device.clock import NTP
from device.config import Config, load
from device.sensors.host import Host
from device.values import ConfigError
from tools.cli.device import pins
from tools.cli.failure import fail, failing_on

SECTOR_BYTES = 4096
LABEL_BYTES_MAX = 16  # of a partition of an ESP32
WATCHDOG_MS_MAX = 8_388  # this and the speeds: device/boards/microcontroller.py
BAUD_MIN, BAUD_MAX = 300, 921_600
TLS_WATCHDOG_MS = 8_000  # a step of a handshake takes up to some seconds on an RP2, where nothing feeds it meanwhile


class Board(StrEnum):
    """The kinds of boards that differ in what they take."""

    ESP32 = "esp32"
    ESP32S2 = "esp32s2"
    ESP32S3 = "esp32s3"
    ESP32C3 = "esp32c3"
    RP2 = "rp2"


def check_config(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The device's configuration, usually device.json.")],
    board: Annotated[Board | None, typer.Option("--board", help="The kind of board that it is for.")] = None,
) -> None:
    """Check a device's configuration before it goes on a board."""
    with failing_on(ConfigError, command="device check-config"):
        try:
            config.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{config}: {error.strerror}") from error
        found = load(str(config))
    if board and (wrong := refusals(found, board)):
        fail("device check-config", "\n".join(f"{config}: {text}" for text in wrong))
    sensors = ", ".join(sensor.name for sensor in found.sensors) or "no sensors"
    places = ", ".join(one.path if one.kind == "uart" else f"{one.kind} {one.host}:{one.port}" for one in found.ports)
    typer.echo(f"{config}: ok")
    typer.echo(f"{found.client_id} samples {sensors} every {found.interval_ms} ms")
    typer.echo(f"and sends to {places}, topic {found.topic}, QoS {found.qos}")
    if found.commands is not None:
        typer.echo("and can be moved: a confirmed move counts in place of network and port, until they change here")
    if board:
        typer.echo(f"and stores on {_store_of(found, board)}")
        for text in warnings(found, board):
            typer.echo(f"warning: {text}")


def refusals(config: Config, board: Board) -> list[str]:
    """Returns what is wrong with a configuration for any board of this kind."""
    return [*_refusals(config, board), *pins.refusals(config, board)]


def _refusals(config: Config, board: Board) -> Iterator[str]:
    """What the firmware refuses on any board of this kind."""
    path = config.flash_path
    if path.startswith("spi:"):
        if not _are_numbers(path, 3, first=1):
            yield f"flash.path is {path}, expected spi:BUS:CS, as spi:1:13"
    elif board is Board.RP2 and path != "storage":
        yield f'flash.path is {path}, expected "storage" or spi:BUS:CS'
    elif board is not Board.RP2 and ("/" in path or len(path.encode()) > LABEL_BYTES_MAX):
        yield f"flash.path is {path}, expected the label of a partition or spi:BUS:CS"
    for port in config.ports:
        if port.kind == "uart" and not _are_numbers(port.path, 3):
            yield f"port.path is {port.path}, expected UART:TX:RX, as 1:17:16"
        if port.kind == "uart" and not BAUD_MIN <= port.baud <= BAUD_MAX:
            yield f"port.baud is {port.baud}, expected a speed that this board knows, such as 115200"
    if (config.watchdog_ms or 0) > WATCHDOG_MS_MAX:
        yield f"watchdog_ms is {config.watchdog_ms}, expected at most {WATCHDOG_MS_MAX}, which this board can wait"
    if config.duty and board is Board.RP2:
        yield f"duty is an object, expected none: {board} keeps nothing through a sleep"


def warnings(config: Config, board: Board) -> Iterator[str]:
    """What the firmware accepts although it does not do what the user expects."""
    kinds = {port.kind for port in config.ports}
    if kinds != {"uart"} and not config.networks:
        yield "network is missing: the firmware joins no Wi-Fi, and the board has to be in a network without it"
    if "tls" in kinds and config.clock.kind != NTP:
        yield "clock is not ntp: a board whose power was cut does not know whether the broker's certificate is valid"
    if "tls" in kinds and board is Board.RP2 and config.watchdog_ms and config.watchdog_ms < TLS_WATCHDOG_MS:
        yield f"watchdog_ms is {config.watchdog_ms}: a TLS handshake may take longer, leave it {TLS_WATCHDOG_MS}"
    if any(sensor.driver is Host for sensor in config.sensors):
        yield "sensors has host, which tells of a machine with Linux: it has no readings on a board"


def _store_of(config: Config, board: Board) -> str:
    size = config.sector_count * SECTOR_BYTES
    if config.flash_path.startswith("spi:"):
        return f"{config.flash_path}, {size:,} bytes from the chip's beginning"
    if board is Board.RP2:
        return f"the last {size:,} bytes of the storage area"
    return f"the partition {config.flash_path} of {size:,} bytes"


def _are_numbers(path: str, count: int, first: int = 0) -> bool:
    parts = path.split(":")
    return len(parts) == count and all(part.isdecimal() for part in parts[first:])
