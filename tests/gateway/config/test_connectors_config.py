"""`[[connector]]` in the configuration file: what overlaps or cannot be is told with its key and its place."""

from pathlib import Path

import pytest

from gateway.config.connectors import PROFILES, ModbusRtuConfig, load_profile
from gateway.config.load import load
from host.errors import ConfigError

GATEWAY = """\
name = "plant"
[store]
path = "store"
[[listener]]
kind = "serial"
device = "/dev/taken"
"""
LINE = '[[connector]]\nkind = "line"\nname = "{name}"\nport = "{port}"\n{more}\n'
MODBUS = """\
[[connector]]
kind = "{kind}"
name = "hall"
port = "{port}"
{more}
[[connector.unit]]
device = "meter"
address = {address}
{unit}
[[connector.unit.value]]
name = "power"
address = 12
{value}
"""


def line(name: str = "scale", port: str = "/dev/scale", more: str = "") -> str:
    return LINE.format(name=name, port=port, more=more)


def modbus(
    kind: str = "modbus_rtu", port: str = "/dev/hall", more: str = "", address: int = 1, unit: str = "", value: str = ""
) -> str:
    return MODBUS.format(kind=kind, port=port, more=more, address=address, unit=unit, value=value)


def written(folder: Path, *connectors: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(GATEWAY + "".join(connectors))
    return path


def test_connectors_are_read_with_profiles_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'description = "d"\nsource = "s"\nregisters_most = 20\n[[value]]\nname = "power"\naddress = 3\n'
        '[[value]]\nname = "energy"\naddress = 5\n'
    )
    config, _ = load(written(tmp_path, line(), modbus(unit='profile = "own.toml"')))
    scale, hall = config.connector
    assert (scale.name, scale.baud, scale.topic) == ("scale", 9600, "telemetry/{device}")
    assert isinstance(hall, ModbusRtuConfig)
    assert {one.name: one.address for one in hall.unit[0].value} == {"energy": 5, "power": 12}
    assert hall.unit[0].registers_most == 20


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_each_profile_that_comes_along_names_its_source(name: str) -> None:
    profile = load_profile(name, Path("."))
    assert profile.source and profile.value


@pytest.mark.parametrize(
    ("connectors", "errors"),
    [
        ([line(), line(port="/dev/other")], ["connector[1].name: two connectors are named 'scale'"]),
        ([line(), line("b")], ["connector[1].port: '/dev/scale': connector[0] uses it already"]),
        ([line(port="/dev/taken")], ["connector[0].port: '/dev/taken': listener[0] uses it already"]),
        ([line(), line("b", "/dev/b", 'device = "scale"')], ["the device 'scale' is also connector[0]'s"]),
        ([line(more="baudrate = 5")], ["connector[0].baudrate: unknown key, expected one of kind, name"]),
        ([line(more="baud = 5")], ["connector[0].baud: expected a number of at least 50"]),
        ([line(more='topic = "a/#"')], ["connector[0].topic: 'a/#': expected a topic name"]),
        ([line(port="tcp://host")], ["connector[0].port: 'tcp://host': expected tcp://HOST:PORT"]),
        ([line(more='rule = [{ pattern = "(" }]')], ["connector[0].rule[0].pattern: missing ): ("]),
        ([line(more='rule = [{ pattern = "a" }]')], ["connector[0].rule[0].pattern: it has no group with a name"]),
        ([line(more='rule = [{ columns = ["a", "a"] }]')], ["connector[0].rule[0].columns: a name is there twice"]),
        ([line(more="rule = [{ texts = [] }]")], ["connector[0].rule[0].pattern: expected pattern or columns"]),
        (
            [line().replace('"line"', '"lines"')],
            ['connector[0].kind: Invalid value \'lines\', expected "line", "nmea", "modbus_rtu"'],
        ),
        ([modbus(kind="modbus_tcp")], ["connector[0].port: '/dev/hall': expected tcp://HOST:PORT"]),
        ([modbus(address=248)], ["connector[0].unit: 'meter': address 248: expected 1 to 247"]),
        ([modbus(unit='profile = "nothing"')], ["connector[0].unit[0].profile: no profile is named 'nothing'"]),
        ([modbus(value='type = "string"')], ["connector[0].unit[0].value[0].length: expected with"]),
        ([modbus(value='type = "uint32"\norder = "ABCC"')], ["value[0].order: 'ABCC': expected each letter of 'ABCD'"]),
        ([modbus(value='table = "coil"')], ["value[0].type: 'uint16': a coil is a \"bool\""]),
        ([modbus(value='type = "bool"')], ["value[0].bit: missing"]),
        ([modbus(value="bit = 15\nbits = 2")], ["value[0].bit: the field ends beyond the 16 bits"]),
        ([modbus(value="scale = 0.0")], ["value[0].scale: 0"]),
        (
            [modbus(value='type = "uint32"\n[[connector.unit.value]]\nname = "b"\naddress = 13\ntype = "uint32"')],
            ["connector[0].unit[0].value: 'b' begins within the registers of 'power'"],
        ),
        (
            [modbus(more="baud = 300", unit="interval_s = 0.1")],
            ["connector[0].unit: the polls take", "of the line's time at 300 baud"],
        ),
        ([modbus(value="write = true")], ["value[0].min: missing: a number that may be written needs min and max"]),
        ([modbus(value="write = true\nmin = 5\nmax = 4")], ["value[0].min: 5.0 to 4.0: expected finite numbers"]),
        ([modbus(value="write = true\nmin = nan\nmax = 4")], ["value[0].min: nan to 4.0: expected finite numbers"]),
        (
            [modbus(value="scale = 0.1\nwrite = true\nmin = -1\nmax = 6554")],
            ["value[0].min: -1: 'uint16' with its scale and offset has 0 to 6553.5", "value[0].max: 6554: 'uint16'"],
        ),
        ([modbus(value='type = "int32"\nwrite = true\nmin = 0\nmax = 1e10')], ["value[0].max: 1e+10: 'int32' with"]),
        (
            [modbus(value='type = "float32"\nwrite = true\nmin = 0\nmax = 1e39')],
            ["value[0].max: 1e+39: 'float32' with"],
        ),
        ([modbus(value="min = 5")], ["value[0].min: expected with write = true"]),
        ([modbus(value='table = "input"\nwrite = true')], ['value[0].write: a value of the table "input" can be read']),
        (
            [modbus(value='type = "bool"\nbit = 1\nwrite = true')],
            ["value[0].write: a text, or a field of bits"],
        ),
        ([modbus(value='table = "coil"\ntype = "bool"\nwrite = true\nwrite_function = 6')], ["expected 5 or 15 for"]),
        (
            [modbus(value='type = "uint32"\nwrite = true\nmin = 0\nmax = 9\nwrite_function = 6')],
            ["value[0].write_function: 6: it writes one register, and the value has 2"],
        ),
        ([modbus(more='commands = "a/+"')], ["connector[0].commands: 'a/+': expected a topic name"]),
        ([modbus(more='commands = "telemetry/{device}"')], ["connector[0].commands: 'telemetry/{device}': expected"]),
        (
            [
                modbus(more='commands = "c"', value="write = true\nmin = 0\nmax = 9"),
                modbus("modbus_rtu", "/dev/b", 'commands = "c"', value="write = true\nmin = 0\nmax = 9"),
            ],
            ["connector[1].commands: 'c': also the topic of connector[0], expected {device} in it"],
        ),
        (
            [modbus(unit='[[connector.unit.value]]\nname = "power"\naddress = 1')],
            ["connector[0].unit[0].value: two values are named 'power'"],
        ),
    ],
)
def test_what_overlaps_or_cannot_be_is_told_with_its_place(
    tmp_path: Path, connectors: list[str], errors: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, *connectors))
    text = str(raised.value)
    assert all(error in text for error in errors), text
    assert f"{tmp_path}/gateway.toml:" in text


def test_a_profile_allows_no_write(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'description = "d"\nsource = "s"\n[[value]]\nname = "power"\naddress = 3\nwrite = true\nmin = 0\nmax = 1\n'
    )
    with pytest.raises(ConfigError, match="'power': a profile allows no write"):
        load(written(tmp_path, modbus(unit='profile = "own.toml"')))


def test_the_errors_of_a_profile_name_its_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('description = "d"\nsource = "s"\n[[value]]\nname = "power"\naddres = 3\n')
    with pytest.raises(ConfigError, match=r"own\.toml:5: value\[0\]\.addres: unknown key"):
        load(written(tmp_path, modbus(unit='profile = "own.toml"')))
