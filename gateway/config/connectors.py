"""The keys of the configuration file for connectors. The reference page is made of it."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.config.errors import Checked, ConfigSource
from gateway.config.kinds import NonEmpty
from host.errors import ConfigError

PROFILES = Path(__file__).parents[1] / "connectors/profiles"
TCP = "tcp://"
SIZES = {"int16": 1, "uint16": 1, "int32": 2, "uint32": 2, "float32": 2, "int64": 4, "uint64": 4, "float64": 4}
"""The registers of each type of a number."""
FLOAT32_MAX = float((2 - 2**-23) * 2**127)
ADDRESSES = 0x10000
BIT_TABLES = ("coil", "discrete")
CHARACTER_BITS = 11  # of RTU mode, at most
TURNAROUND_S = 0.005  # of a unit that answers at once
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9\-:._]{0,63}$")]
ValueName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9\-:./_]{0,63}$")]
Interval = Annotated[float, msgspec.Meta(ge=0.01, le=86_400)]
Address = Annotated[int, msgspec.Meta(ge=0, lt=ADDRESSES)]


class PortConfig(Checked, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What all connectors have."""

    name: Name
    """The connector's name: letters, digits, `-`, `:`, `.` and `_`. The marks of what was read go by it: do not change
    it."""

    port: NonEmpty
    """The path of the serial port, as for a [listener](#listener-with-kind--serial), or `tcp://HOST:PORT` of a serial
    device server. Each port has one connector."""

    baud: Annotated[int, msgspec.Meta(ge=50, le=4_000_000)] = 9600
    """The speed in bits per second."""

    parity: Literal["none", "even", "odd"] = "none"
    """The parity bit of each character."""

    stop_bits: Literal[1, 2] = 1
    """How many stop bits end a character. Modbus asks for 2 where there is no parity bit."""

    data_bits: Literal[7, 8] = 8
    """The data bits of a character."""

    rs485: Literal["adapter", "kernel", "echo"] = "adapter"
    """How the direction of an RS-485 line is switched. With `"adapter"` the adapter does it by itself, as most do. With
    `"kernel"` the port's driver does it (`TIOCSRS485`). `"echo"` is for an adapter that hears what it sends: this
    is read and compared, so a collision is noticed."""

    topic: NonEmpty = "telemetry/{device}"
    """The topic name of the messages. `{device}` is the name of the device."""

    format: Literal["json", "cbor"] = "json"
    """How messages are encoded: SenML in JSON or in CBOR."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        topic = values.get("topic", "")
        if topic.startswith("$") or any(one in topic for one in "+#\0"):
            yield "topic", f"{topic!r}: expected a topic name without '+' and '#' that does not begin with '$'"
        port = values.get("port", "")
        if port.startswith(TCP) and address_of(port) is None:
            yield "port", f"{port!r}: expected {TCP}HOST:PORT"
        if port.startswith(TCP) and values.get("rs485", "adapter") != "adapter":
            yield "rs485", "the port is no serial port of this machine"


class LineRule(Checked, forbid_unknown_fields=True, frozen=True):
    """How lines become values. The rules are tried in order, and the first that fits counts. A line that none fits is
    stored as the text `unread`."""

    pattern: NonEmpty | None = None
    """A regular expression with [RE2's syntax](https://github.com/google/re2/wiki/Syntax). It may match anywhere in the
    line. Each group with a name, `(?P<name>…)`, is a value."""

    columns: tuple[str, ...] = ()
    """The names of the columns of a line of CSV, in order; `""` leaves one out. A line fits if it has as many."""

    delimiter: Annotated[str, msgspec.Meta(min_length=1, max_length=1)] = ","
    """The character between columns."""

    device: str = ""
    """The device's name. `{name}` stands for a group or a column, which is no value then. Without it the connector has
    it."""

    units: dict[str, str] = msgspec.field(default_factory=dict)
    """The units of values by name, as SenML writes them: `Cel`, `%RH`, `kg`."""

    texts: tuple[str, ...] = ()
    """The values that stay texts, also where they look like numbers."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        pattern, columns = values.get("pattern"), values.get("columns", ())
        if (pattern is None) == (not columns):
            yield "pattern", "expected pattern or columns, and not both"
        names = set(columns) - {""}
        if len(names) != sum(bool(one) for one in columns):
            yield "columns", "a name is there twice"
        for one in names:
            if not _NAME.fullmatch(one):
                yield "columns", f"{one!r}: expected letters, digits and - : . / _"
        if pattern is not None:
            names, why = groups_of(pattern)
            if why:
                yield "pattern", why
            elif not names:
                yield "pattern", "it has no group with a name, (?P<name>…), so it gives no value"
        for key in ("units", "texts"):
            for name in values.get(key, ()):
                if names and name not in names:
                    yield key, f"{name!r}: the line has no such value"


class TextConfig(PortConfig, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What connectors have whose device speaks by itself."""

    device: str = ""
    """The name of the device; without it the connector's name."""

    longest: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 1024
    """The most bytes of a line. A longer one is left out, and told as `line.error`."""


class LineConfig(TextConfig, tag_field="kind", tag="line", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A device that sends lines of text. Each line is a message: [how to](../how-to/serial-lines.md)."""

    separator: Annotated[str, msgspec.Meta(min_length=1, max_length=8)] = "\n"
    """What ends a line. A carriage return before it is dropped."""

    rule: list[LineRule] = msgspec.field(default_factory=list)
    """How lines become values. Without a rule each line is one value, `line`: a number or a text."""


class NmeaConfig(TextConfig, tag_field="kind", tag="nmea", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A device that speaks NMEA 0183, such as a GNSS receiver, a wind sensor or an echo sounder. Each sentence is a
    message: [how to](../how-to/nmea.md)."""

    baud: Annotated[int, msgspec.Meta(ge=50, le=4_000_000)] = 4800
    """The speed in bits per second."""

    checksum: Literal["required", "optional"] = "required"
    """Whether a sentence without a checksum is refused. One with a wrong checksum always is."""

    talkers: tuple[str, ...] = ()
    """The talkers whose sentences are stored, such as `"GP"`; without any, all are. `"P"` are sentences of a maker."""

    sentences: tuple[str, ...] = ()
    """The kinds of sentences that are stored, such as `"GGA"`; without any, all are."""


class ValueConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A value in the registers of a unit."""

    name: ValueName
    """The value's name in messages."""

    address: Address
    """The first register or coil, counted from 0 as it is sent: `40001` in a manual is address 0 of `"holding"`."""

    table: Literal["coil", "discrete", "holding", "input"] = "holding"
    """Which of the unit's four tables it is in."""

    type: Literal["bool", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "string"] = (
        "uint16"
    )
    """What it is. A coil or a discrete input is a `"bool"`."""

    length: Annotated[int, msgspec.Meta(ge=1, le=125)] | None = None
    """The registers of a `"string"`."""

    order: str = ""
    """The order of the bytes on the line: letters from `A`, the highest byte, such as `"CDAB"` for 32 bits with the low
    word first. Any order can be written. Without it the highest byte comes first. For a `"string"`, `"BA"` turns each
    register."""

    scale: float = 1.0
    """The factor between the number in the registers and the value."""

    offset: float = 0.0
    """What is added, after the factor."""

    unit: str = ""
    """The unit, as SenML writes it: `V`, `A`, `W`, `Cel`."""

    bit: Annotated[int, msgspec.Meta(ge=0, le=63)] | None = None
    """The lowest bit of a field in the number, counted from 0. A `"bool"` in a register needs it."""

    bits: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    """How many bits the field has; one without this key."""

    invalid: float | None = None
    """The number that says that there is no value, before `scale`: `32768`. It is told as `NAME.error`."""

    interval_s: Interval | None = None
    """The time between two polls in seconds; without it the unit's."""

    dead_band: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """A value that differs from the last stored one by no more is not stored; with 0, one that is the same. The first
    one after a start or an error always is."""

    at_least_s: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    """With `dead_band`: after how many seconds it is stored all the same."""

    write: bool = False
    """Whether a [command](../how-to/modbus.md#set-a-value) may set it: a coil, or holding registers that are no field
    of bits and no text. A number then needs `min` and `max`. A profile does not allow it."""

    min: float | None = None
    """The lowest number that a command may set."""

    max: float | None = None
    """The highest number that a command may set."""

    write_function: Literal[5, 6, 15, 16] | None = None
    """The function with which it is written, for a unit that does not take the usual one: 5 for a coil, 6 for one
    register, 16 for several."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if not {"table", "type", "address", "order", "scale"} <= values.keys():
            return
        kind, table, bit = values["type"], values["table"], values.get("bit")
        if table in BIT_TABLES:
            if kind != "bool":
                yield "type", f'{kind!r}: a {table} is a "bool"'
            if bit is not None:
                yield "bit", f"a {table} is one bit"
        elif kind == "bool" and bit is None:
            yield "bit", 'missing: a "bool" in a register is one of its bits'
        if (kind == "string") != (values.get("length") is not None):
            yield "length", 'expected with type = "string", and only there'
            return
        size = 1 if kind == "bool" else values.get("length") or SIZES[kind]
        if values["address"] + size > ADDRESSES:
            yield "address", f"{values['address']}: its {size} registers end beyond 65535"
        letters = 2 if kind in ("string", "bool") else 2 * size
        expected = "ABCDEFGH"[:letters]
        if values["order"] and sorted(values["order"]) != list(expected):
            yield "order", f"{values['order']!r}: expected each letter of {expected!r} once"
        if values["scale"] == 0:
            yield "scale", "0: each value would be the same"
        if bit is None and values.get("bits") is not None:
            yield "bits", "expected only with bit"
        if bit is not None and table not in BIT_TABLES and bit + (values.get("bits") or 1) > 16 * size:
            yield "bit", f"the field ends beyond the {16 * size} bits of {kind!r}"
        if bit is not None and (kind == "string" or kind.startswith("float")):
            yield "bit", f"a {kind!r} has no fields of bits"
        yield from _errors_in_write(values, size)


def _errors_in_write(values: dict[str, Any], size: int) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the keys of a value that may be written; it has ``size`` registers or is a coil."""
    low, high = values.get("min"), values.get("max")
    function, table = values.get("write_function"), values["table"]
    if not values.get("write"):
        for key in ("min", "max", "write_function"):
            if values.get(key) is not None:
                yield key, "expected with write = true"
        return
    if table in ("discrete", "input"):
        yield "write", f'a value of the table "{table}" can be read only'
    elif values["type"] == "string" or (values.get("bit") is not None):
        yield "write", "a text, or a field of bits, cannot be written"
    elif values["type"] == "bool":
        if (low, high) != (None, None):
            yield "min", 'a "bool" has no bounds'
    elif low is None or high is None:
        yield "min", "missing: a number that may be written needs min and max"
    elif not (math.isfinite(low) and math.isfinite(high) and low <= high):
        yield "min", f"{low} to {high}: expected finite numbers, the lower one first"
    else:
        yield from _errors_in_bounds(values)
    if function is not None and (function in (5, 15)) != (table == "coil"):
        yield "write_function", f'{function}: expected 5 or 15 for a coil, 6 or 16 for table = "holding"'
    elif function == 6 and size > 1:
        yield "write_function", f"6: it writes one register, and the value has {size}"


def _errors_in_bounds(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the bounds that the type of a value cannot have: no command could set them."""
    kind, scale, offset = values["type"], values["scale"], values["offset"]
    if kind.startswith("float"):
        most = FLOAT32_MAX if kind == "float32" else math.inf
        least = -most
    else:
        bits = 16 * SIZES[kind] - (kind[0] == "i")
        least, most = -(2**bits) if kind[0] == "i" else 0, 2**bits - 1
    ends = sorted((least * scale + offset, most * scale + offset))
    for key in ("min", "max"):
        if not ends[0] <= values[key] <= ends[1]:
            yield key, f"{values[key]:g}: {kind!r} with its scale and offset has {ends[0]:g} to {ends[1]:g}"


class UnitConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A unit on the line."""

    device: Name
    """The device's name in its messages and its topic name."""

    address: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    """The unit's address: 1 to 247 on a serial line; over TCP often 1 or 255."""

    interval_s: Interval = 10.0
    """The time between two polls, in seconds."""

    timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.5
    """How long the unit's answer may take to begin, in seconds."""

    backoff_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 60.0
    """The longest time between two attempts to reach a unit that does not answer, in seconds. The first ones come
    sooner, and none comes where it would hold up another unit."""

    read_gap: Annotated[int, msgspec.Meta(ge=0, le=120)] = 0
    """The most registers between two values that are read along with one request. Many units refuse a request in which
    one register does not exist."""

    registers_most: Annotated[int, msgspec.Meta(ge=1, le=125)] = 125
    """The most registers that the unit takes in one request."""

    profile: NonEmpty | None = None
    """A [file with values](../how-to/modbus.md#profiles) that many units share: the name of one that Holdfast brings,
    or a path that ends with `.toml`."""

    value: list[ValueConfig] = msgspec.field(default_factory=list)
    """The unit's values, besides those of the profile. One with the same name replaces the profile's."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if not values.get("value") and values.get("profile", "") is None:
            yield "value", "missing: expected values or a profile"
        yield from errors_among_values([one for one in values.get("value", ()) if one is not None])


class ModbusConfig(PortConfig, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What connectors have that ask units by Modbus."""

    unit: list[UnitConfig]
    """The units on the line."""

    commands: NonEmpty = "commands/{device}"
    """The topic name of the commands for the units that have values with `write = true`. A client that may publish
    to it may set these values. `{device}` is the name of the device."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from PortConfig.errors_in(values)
        if values.get("unit") == []:
            yield "unit", "expected a unit at least"
        topic = values.get("commands", "")
        if topic in (values.get("topic"), f"{values.get('topic')}/answer"):
            yield "commands", f"{topic!r}: expected another topic than that of values and answers"
        if topic.startswith("$") or any(one in topic for one in "+#\0"):
            yield "commands", f"{topic!r}: expected a topic name without '+' and '#' that does not begin with '$'"
        units = [one for one in values.get("unit", ()) if one is not None]
        for key in ("device", "address"):
            found = [getattr(one, key) for one in units]
            for one in sorted({one for one in found if found.count(one) > 1}):
                yield "unit", f"two units have the {key} {one!r}"
        if cls is not ModbusTcpConfig:
            for one in units:
                if not 1 <= one.address <= 247:
                    yield "unit", f"{one.device!r}: address {one.address}: expected 1 to 247 on a serial line"


class ModbusRtuConfig(
    ModbusConfig, tag_field="kind", tag="modbus_rtu", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """Units that answer Modbus in RTU mode, on a serial line or behind a device server: [how
    to](../how-to/modbus.md)."""


class ModbusAsciiConfig(
    ModbusConfig, tag_field="kind", tag="modbus_ascii", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """Units that answer Modbus in ASCII mode. Its checksum finds fewer errors than that of RTU mode: [known
    limits](../explanation/limits-connectors.md)."""


class ModbusTcpConfig(
    ModbusConfig, tag_field="kind", tag="modbus_tcp", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """Units that answer Modbus over TCP; `port` is `tcp://HOST:502`."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from super().errors_in(values)
        if "port" in values and not values["port"].startswith(TCP):
            yield "port", f"{values['port']!r}: expected {TCP}HOST:PORT"


ConnectorConfig = LineConfig | NmeaConfig | ModbusRtuConfig | ModbusAsciiConfig | ModbusTcpConfig


class ProfileConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A profile: the values of a kind of units."""

    description: NonEmpty
    """What it is for."""

    source: NonEmpty
    """The public document with the map."""

    value: list[ValueConfig]
    """The values."""

    read_gap: Annotated[int, msgspec.Meta(ge=0, le=120)] = 0
    """As for a unit, which has this one unless it names one."""

    registers_most: Annotated[int, msgspec.Meta(ge=1, le=125)] = 125
    """As for a unit, which has this one unless it names one."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        found = [one for one in values.get("value", ()) if one is not None]
        yield from errors_among_values(found)
        for one in found:
            if one.write:
                yield "value", f"{one.name!r}: a profile allows no write: name the value in the unit's own table"


def registers_of(value: ValueConfig) -> int:
    """Returns how many registers, or bits of a table of bits, a value has."""
    return 1 if value.type == "bool" else value.length or SIZES[value.type]


def errors_among_values(values: Sequence[ValueConfig]) -> Iterator[tuple[str, str]]:
    """Yields the values with a name that is there twice, and the values whose registers are partly another's."""
    names = [one.name for one in values]
    for name in sorted({one for one in names if names.count(one) > 1}):
        yield "value", f"two values are named {name!r}"
    before: ValueConfig | None = None
    for one in sorted(values, key=lambda value: (value.table, value.address, -registers_of(value))):
        if before is not None and before.table == one.table:
            end = before.address + registers_of(before)
            if one.address < end < one.address + registers_of(one):
                yield "value", f"{one.name!r} begins within the registers of {before.name!r}, and ends behind them"
        if (
            before is None
            or before.table != one.table
            or one.address + registers_of(one) > before.address + (registers_of(before))
        ):
            before = one


def groups_of(pattern: str) -> tuple[set[str], str]:
    """Returns the names of the groups of a pattern, and what is wrong with it, "" if nothing is."""
    import re2  # only these connectors need it

    options = re2.Options()
    options.log_errors = False
    try:
        return set(re2.compile(pattern, options).groupindex), ""
    except re2.error as error:
        (why,) = error.args
        return set(), why.decode(errors="replace") if isinstance(why, bytes) else str(why)


def address_of(port: str) -> tuple[str, int] | None:
    """Returns host and TCP port of a connector's port, None if it is a serial port or not as expected."""
    host, _, number = port.removeprefix(TCP).rpartition(":")
    if not port.startswith(TCP) or not host or not number.isdigit() or not 0 < int(number) < ADDRESSES:
        return None
    return host.strip("[]"), int(number)


def with_profiles(source: ConfigSource, connectors: dict[int, ConnectorConfig]) -> dict[int, ConnectorConfig]:
    """Returns connectors whose units have the values of their profiles; adds an error for each wrong profile."""
    found: dict[int, ConnectorConfig] = {}
    for number, one in connectors.items():
        if isinstance(one, ModbusConfig):
            units = [
                _with_profile(source, f"connector[{number}].unit[{place}]", unit) for place, unit in enumerate(one.unit)
            ]
            one = msgspec.structs.replace(one, unit=units)
        found[number] = one
    return found


def _with_profile(source: ConfigSource, key: str, unit: UnitConfig) -> UnitConfig:
    if unit.profile is None:
        return unit
    try:
        profile = load_profile(unit.profile, source.path.parent)
    except ConfigError as error:
        source.add(f"{key}.profile", str(error), may_pass=error.may_pass)
        return unit
    own = {one.name for one in unit.value}
    values = [*(one for one in profile.value if one.name not in own), *unit.value]
    for _, what in errors_among_values(values):
        source.add(f"{key}.value", what)
    return msgspec.structs.replace(
        unit,
        value=values,
        read_gap=unit.read_gap or profile.read_gap,
        registers_most=min(unit.registers_most, profile.registers_most),
    )


def load_profile(name: str, folder: Path) -> ProfileConfig:
    """Returns the profile of a name, or in a file beside a folder. Raises ConfigError, with all errors of the file."""
    path = folder / name if name.endswith(".toml") else PROFILES / f"{name}.toml"
    if not name.endswith(".toml") and not (_NAME.fullmatch(name) and "/" not in name and path.is_file()):
        known = ", ".join(sorted(one.stem for one in PROFILES.glob("*.toml")))
        raise ConfigError(f"no profile is named {name!r}, expected one of {known}, or a path that ends with .toml")
    source = ConfigSource(path)
    profile = source.struct(source.table, ProfileConfig, "")
    source.raise_errors()
    assert profile is not None
    return profile


def load_of(connector: ModbusConfig) -> float:
    """Returns the part of a line's time, roughly, that its polls take."""
    if connector.port.startswith(TCP):
        return 0.0
    character_s = CHARACTER_BITS / connector.baud
    busy = 0.0
    for unit in connector.unit:
        intervals = {one.interval_s or unit.interval_s for one in unit.value}
        for interval_s in intervals:
            values = [one for one in unit.value if (one.interval_s or unit.interval_s) == interval_s]
            registers = sum(map(registers_of, values))
            requests = -(-registers // unit.registers_most)
            characters = requests * (8 + 5 + 7) + 2 * registers
            busy += (characters * character_s + requests * TURNAROUND_S) / interval_s
    return busy


def errors_among_connectors(connectors: dict[int, ConnectorConfig], taken: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the keys and texts of what overlaps among connectors, and what cannot be.

    ``taken`` says what uses each serial port already.
    """
    names: set[str] = set()
    devices: dict[str, str] = {}
    ports = dict(taken)
    topics: dict[str, str] = {}
    for number, one in connectors.items():
        key = f"connector[{number}]"
        if one.name in names:
            yield f"{key}.name", f"two connectors are named {one.name!r}"
        names.add(one.name)
        if one.port in ports and not isinstance(one, ModbusTcpConfig):
            yield f"{key}.port", f"{one.port!r}: {ports[one.port]} uses it already"
        ports.setdefault(one.port, key)
        for topic in command_topics(one):
            if topic in topics:
                yield f"{key}.commands", f"{topic!r}: also the topic of {topics[topic]}, expected {{device}} in it"
            topics[topic] = key
        own = [unit.device for unit in one.unit] if isinstance(one, ModbusConfig) else [device_of(one)]
        for device in own:
            if device in devices and devices[device] != key:
                yield key, f"the device {device!r} is also {devices[device]}'s: its values would be mixed"
            devices.setdefault(device, key)
        if isinstance(one, ModbusConfig) and (load := load_of(one)) > 1:
            yield f"{key}.unit", f"the polls take {load:.0%} of the line's time at {one.baud} baud"


def command_topics(connector: ConnectorConfig) -> list[str]:
    """Returns the topic names of the commands for a connector's units; units without writable values have none."""
    if not isinstance(connector, ModbusConfig):
        return []
    units = [unit for unit in connector.unit if any(value.write for value in unit.value)]
    return [command_topic(connector, unit) for unit in units]


def command_topic(connector: ModbusConfig, unit: UnitConfig) -> str:
    """Returns the topic name of the commands for a unit."""
    return connector.commands.replace("{device}", unit.device)


def device_of(connector: LineConfig | NmeaConfig) -> str:
    """Returns the name of the device of a connector whose device speaks by itself."""
    return connector.device or connector.name
