"""A command that sets a value of a unit, and its answer: JSON as the commands of devices have it."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gateway.config.connectors import SIZES, ValueConfig, registers_of
from gateway.connectors.modbus.request import Read, Write
from gateway.connectors.modbus.value import reading_of, registers_for
from gateway.connectors.reading import Unreadable, Value

PAYLOAD_MAX = 1024  # bytes
TOLD_MAX = 200  # characters of what a command has said, in an answer

Written = Literal["yes", "no", "unknown"]


class Refused(Exception):
    """A command is not carried out. The text says why."""


class Command(msgspec.Struct, forbid_unknown_fields=True):
    """A command: what it does, and to which value."""

    command: Literal["write"]
    name: str
    value: bool | int | float | str
    correlation: str | None = None


@dataclass(slots=True)
class Outcome:
    """What became of a command.

    ``written`` is "unknown" where the unit may have taken the value. ``value`` was read back, None if it was not.
    """

    written: Written
    error: str = ""
    value: Value | None = None


def command_in(payload: bytes) -> Command:
    """Returns the command of a message. Raises Refused."""
    if len(payload) > PAYLOAD_MAX:
        raise Refused(f"a command of {len(payload)} bytes, expected {PAYLOAD_MAX} at most")
    try:
        return msgspec.json.decode(payload, type=Command)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(f"no command: {error}"[:TOLD_MAX]) from None


def write_of(config: ValueConfig, value: Value) -> Write:
    """Returns the request that sets a value. Raises Refused: it may not be set, or not so."""
    if not config.write:
        raise Refused(f"{config.name!r} may not be written: its configuration has no write = true")
    _check_bounds(config, value)
    try:
        registers = registers_for(config, value)
        taken = reading_of(config, list(registers)).value
    except Unreadable as error:
        raise Refused(str(error)[:TOLD_MAX]) from None
    if config.type in SIZES and not config.type.startswith("float"):
        _check_bounds(config, taken)  # rounding may lead beyond them
    is_single = config.write_function in (5, 6) if config.write_function else len(registers) == 1
    return Write("coil" if config.table == "coil" else "holding", config.address, registers, is_single)


def read_of(config: ValueConfig) -> Read:
    """Returns the request that reads a value back."""
    return Read(config.table, config.address, registers_of(config))


def _check_bounds(config: ValueConfig, value: Value) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if config.min is None or config.max is None or not is_number:
        return
    if not config.min <= value <= config.max:  # type: ignore[operator]
        raise Refused(f"{value!r}: expected {config.min:g} to {config.max:g}")


def answer_of(command: Command | None, outcome: Outcome, correlation: str = "") -> bytes:
    """Returns the payload of an answer.

    Args:
        command: the command, None if the message has none.
        outcome: what became of it.
        correlation: the Correlation Data of the message as a text.
    """
    said: dict[str, Any] = {"command": "write"}
    if command is not None:
        said |= {"name": command.name[:TOLD_MAX], "wanted": command.value}
        correlation = correlation or command.correlation or ""
    said["written"] = outcome.written
    if outcome.value is not None:
        said["value"] = outcome.value
    if outcome.error:
        said["error"] = outcome.error
    if 0 < len(correlation) <= PAYLOAD_MAX:
        said["correlation"] = correlation
    return msgspec.json.encode(said)
