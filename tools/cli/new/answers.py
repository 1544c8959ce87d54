"""What a configuration is made from, as a flag or a column of a table gives it, and its form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host.server import Server, parse_server
from tools.cli.device.check_config import Board

INTERVAL_S_MAX = 86_400
I2C = re.compile(r"([01]):(\d{1,2}):(\d{1,2})")
SENSOR = re.compile(r"([a-z][a-z0-9]*)(?::(.+))?")
PAIR = re.compile(r"([a-z_]+)=(.+)")


class AnswerError(Exception):
    """An answer cannot be used. The text says what was expected."""


class Missing(AnswerError):
    """An answer is missing, and no terminal to ask at. The text names the flag."""


@dataclass(frozen=True)
class Answers:
    """All answers for one device.

    Attributes:
        wifi: the network's name, "" for none.
        wifi_password: None for an open network.
        gateway: where the device sends to.
        user, password: its login, None for none.
        status, commands: topic and filter, "" for none.
        flash: the store's place, "" for the usual one of the board.
        ntp: the time server of a device with TLS.
        sensors: as in the configuration.
    """

    name: str
    board: Board
    wifi: str
    wifi_password: str | None
    gateway: Server
    user: str | None
    password: str | None
    topic: str
    status: str
    commands: str
    interval_s: float
    flash: str
    ntp: str
    sensors: list[dict[str, Any]]


def read_board(text: str) -> Board:
    """Raises AnswerError."""
    try:
        return Board(text.lower().replace("-", ""))
    except ValueError as error:
        raise AnswerError(f"board is {text!r}, expected one of {', '.join(Board)}") from error


def read_gateway(text: str) -> Server:
    """Reads `HOST`, `HOST:PORT`, `mqtt://…` or `mqtts://…`. Raises AnswerError."""
    try:
        return parse_server(text if "://" in text else f"mqtt://{text}", ("mqtt", "mqtts"))
    except ValueError as error:
        raise AnswerError(f"gateway: {error}") from error


def read_interval(text: str) -> float:
    """Raises AnswerError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.001 <= seconds <= INTERVAL_S_MAX:
        raise AnswerError(f"interval_s is {text!r}, expected seconds from 0.001 to {INTERVAL_S_MAX}")
    return seconds


def read_i2c(text: str) -> tuple[int, int, int]:
    """Reads `BUS:SCL:SDA`. Raises AnswerError."""
    found = I2C.fullmatch(text)
    if found is None:
        raise AnswerError(f"i2c is {text!r}, expected BUS:SCL:SDA, as 0:22:21")
    bus, scl, sda = map(int, found.groups())
    return bus, scl, sda


def read_pin(text: str) -> int:
    """Raises AnswerError."""
    if not re.fullmatch(r"\d{1,2}", text):
        raise AnswerError(f"one-wire is {text!r}, expected the number of a pin")
    return int(text)


def read_sensor(text: str) -> dict[str, Any]:
    """Reads `KIND` or `KIND:KEY=VALUE,…`, with the keys of the configuration. Raises AnswerError."""
    found = SENSOR.fullmatch(text.strip())
    pairs = [PAIR.fullmatch(one.strip()) for one in found[2].split(",")] if found is not None and found[2] else []
    if found is None or not all(pairs):
        raise AnswerError(f"sensor is {text!r}, expected KIND:KEY=VALUE,KEY=VALUE as adc:pin=34,full_scale_mv=3300")
    return {"kind": found[1]} | {pair[1]: _value(pair[2]) for pair in pairs if pair is not None}


def read_sensors(text: str) -> list[dict[str, Any]]:
    """Reads sensors with `;` between them. Raises AnswerError."""
    return [read_sensor(one) for one in text.split(";") if one.strip()]


def with_name(cells: Mapping[str, str], name: str) -> dict[str, str]:
    """Puts the device's name in the place of `%u`."""
    return {key: cell.replace("%u", name) for key, cell in cells.items()}


def _value(text: str) -> int | str | None:
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    return None if text == "null" else text
