"""Every wrong configuration is refused with the key's name and what was expected."""

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from device import config
from device.config import ConfigError, load
from device.field import config as field_config
from tools.cli.paths import source_root

GOOD: dict[str, Any] = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "port": {"kind": "tcp", "host": "gateway.local", "port": 1883},
    "flash": {"path": "flash.bin", "sector_count": 64},
    "interval_ms": 1000,
    "clock": "system",
    "sensors": ["host"],
    "readings_limit": 0,
    "journal": None,
}
DUTY = {"connect_every": 6, "awake_ms": 20_000}
TCP = {"kind": "tcp", "host": "gateway.local", "port": 1883}
SCRAM = {**TCP, "user": "u", "password": "p", "authentication": "scram-sha-256"}
ATTIC = {"ssid": "attic", "password": "p"}
UART = {"kind": "uart", "path": "/dev/ttyS0", "baud": 115200}


def written(folder: Path, **change: Any) -> str:
    path = folder / "device.json"
    path.write_text(json.dumps({**GOOD, **change}))
    return str(path)


def test_configuration_for_tcp_is_read(tmp_path: Path) -> None:
    config = load(written(tmp_path))
    assert (config.client_id, config.topic, config.interval_ms) == ("garage-1", "telemetry/garage", 1000)
    assert (config.ports[0].kind, config.ports[0].host, config.ports[0].port) == ("tcp", "gateway.local", 1883)
    assert (config.flash_path, config.sector_count) == ("flash.bin", 64)
    assert [sensor.name for sensor in config.sensors] == ["host"]
    assert (config.clock.kind, config.payload, config.readings_limit, config.journal) == ("system", "json", 0, None)


def test_configuration_for_a_serial_line_is_read(tmp_path: Path) -> None:
    config = load(written(tmp_path, port=UART, journal="made"))
    assert (config.ports[0].kind, config.ports[0].path, config.ports[0].baud) == ("uart", "/dev/ttyS0", 115200)
    assert config.journal == "made"


def test_duty_is_read(tmp_path: Path) -> None:
    duty = load(written(tmp_path, duty=DUTY, interval_ms=600_000)).duty
    assert duty is not None and (duty.connect_every, duty.awake_ms) == (6, 20_000)
    assert load(written(tmp_path)).duty is None


def test_time_server_is_read(tmp_path: Path) -> None:
    clock = load(written(tmp_path, clock={"kind": "ntp", "host": "time.example"})).clock
    assert (clock.kind, clock.host) == ("ntp", "time.example")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"client_id": ""}, 'client_id is "", expected a string of 1 to 128 bytes'),
        ({"client_id": "x" * 129}, "expected a string of 1 to 128 bytes"),
        ({"client_id": "garage 1"}, 'client_id is "garage 1", expected letters, digits'),
        ({"client_id": "-1"}, 'client_id is "-1", expected letters, digits'),
        ({"client_id": "größe"}, "expected letters, digits"),
        ({"topic": 7}, "topic is 7, expected a string"),
        ({"topic": "telemetry/#"}, "expected an MQTT topic name"),
        ({"port": "tcp"}, 'port is "tcp", expected an object'),
        ({"port": {**GOOD["port"], "kind": "smoke"}}, 'port.kind is "smoke", expected "tcp" or "tls" or "uart"'),
        ({"port": {**GOOD["port"], "port": 65536}}, "port.port is 65536, expected an integer from 1 to 65535"),
        ({"port": {**GOOD["port"], "baud": 9600}}, "port.baud is no key"),
        ({"port": {"kind": "tcp", "port": 1883}}, "port.host is missing, expected a string"),
        ({"port": {**UART, "baud": "fast"}}, 'port.baud is "fast", expected an integer'),
        ({"flash": {"path": "f", "sector_count": 5}}, "flash.sector_count is 5, expected an integer from 6 to 4096"),
        ({"flash": {"path": "f", "sector_count": 8, "size": 1}}, "flash.size is no key"),
        ({"interval_ms": 0}, "interval_ms is 0, expected an integer from 1"),
        ({"interval_ms": 0.5}, "interval_ms is 0.5, expected an integer"),
        ({"interval_ms": True}, "interval_ms is true, expected an integer"),
        ({"clock": "sundial"}, 'clock.kind is "sundial", expected "gateway" or "none" or "ntp" or "system"'),
        ({"clock": 7}, "clock is 7, expected an object"),
        ({"clock": "ntp"}, "clock.host is missing, expected a string"),
        ({"clock": {"kind": "gateway", "host": "a"}}, "clock.host is no key"),
        ({"sensors": "host"}, 'sensors is "host", expected a list'),
        ({"sensors": ["nose"]}, 'sensors[0].kind is "nose", expected "adc" or "bme280" or "dht22"'),
        ({"sensors": [7]}, "sensors[0] is 7, expected an object"),
        ({"sensors": ["host"] * 13}, "expected a list of at most 12 objects"),
        ({"sensors": ["host", "host"]}, 'sensors[1].name is "host", expected a name that no other sensor has'),
        ({"duty": {"connect_every": 0, "awake_ms": 20000}, "interval_ms": 60000}, "duty.connect_every is 0, expected"),
        (
            {"duty": {"connect_every": 6}, "interval_ms": 60000},
            "duty.awake_ms is missing, expected an integer from 1000",
        ),
        ({"duty": {**DUTY, "n": 1}, "interval_ms": 60000}, "duty.n is no key"),
        ({"duty": DUTY, "interval_ms": 9999}, "interval_ms is 9999, expected 10000 or more with duty"),
        (
            {"duty": DUTY, "interval_ms": 60000, "sensors": [{"kind": "pulse", "pin": 5, "edge": "falling"}]},
            'sensors[0].kind is "pulse", expected a sensor that a device with duty can put to sleep',
        ),
        ({"port": {"kind": "tls", "host": "a", "port": 8883}}, "port.ca is missing, expected a string"),
        ({"port": {"kind": "tls", "host": "a", "port": 8883, "ca": "c", "key": "k"}}, "port.certificate is missing"),
        ({"port": {"kind": "tls", "host": "a", "port": 8883, "ca": 1}}, "port.ca is 1, expected a string"),
        ({"network": {"ssid": "x" * 33, "password": "p"}}, "expected a string of 1 to 32 bytes"),
        ({"network": {"ssid": "attic"}}, "network.password is missing, expected a string"),
        ({"network": {"ssid": "attic", "password": "p", "channel": 1}}, "network.channel is no key"),
        ({"network": []}, "network is [], expected an object of keys and values, or a list of 1 to 8"),
        ({"network": [ATTIC, {"ssid": "x"}]}, "network[1].password is missing, expected a string"),
        (
            {"network": {**ATTIC, "address": {"ip": "10.0.0.256"}}},
            'network.address.ip is "10.0.0.256", expected an IPv4',
        ),
        ({"host_name": "x" * 33}, "expected a string of 1 to 32 bytes"),
        ({"port": [TCP] * 5}, "expected an object of keys and values, or a list of 1 to 4"),
        ({"port": [TCP, {"kind": "tcp"}]}, "port[1].host is missing"),
        ({"port": {**TCP, "password": "p"}}, "port.user is missing"),
        ({"port": {**TCP, "user": "u"}}, "port.password is missing"),
        ({"port": {**TCP, "authentication": "scram-sha-256"}}, "port.user is missing"),
        ({"network": {"ssid": "attic", "password": 4711}}, 'network.password is "...", expected a string'),
        (
            {"network": {"ssid": "attic", "password": "x" * 64}},
            'network.password is "...", expected a string of 1 to 63',
        ),
        ({"network": {"ssid": "attic", "password": "a" * 65}}, "or a key of 64 hexadecimal digits"),
        ({"country": "Germany"}, 'country is "Germany", expected a string of 1 to 2 bytes'),
        ({"country": "de"}, 'country is "de", expected two capital letters of ISO 3166, such as DE'),
        ({"port": {**TCP, "user": "u", "password": "y" * 257}}, 'port.password is "...", expected a string'),
        ({"port": {**SCRAM, "password": "ä"}}, "expected printable ASCII with authentication"),
        ({"port": {**SCRAM, "authentication": "plain"}}, 'is "plain", expected "password" or "scram-sha-256"'),
        ({"port": SCRAM, "mqtt_version": "3.1.1"}, 'mqtt_version is "3.1.1", expected "5" with port.authentication'),
        ({"restart_after_s": 59}, "restart_after_s is 59, expected an integer from 60"),
        ({"restart_after_s": 60, "duty": DUTY, "interval_ms": 60000}, "restart_after_s is 60, expected none with duty"),
        ({"flash": {**GOOD["flash"], "on_full": "stop"}}, 'flash.on_full is "stop", expected "reject_new" or "drop_ol'),
        ({"qos": 3}, "qos is 3, expected an integer from 0 to 2"),
        ({"qos": 0, "journal": "made"}, "journal is a path, expected null with qos 0"),
        ({"qos": 0, "duty": DUTY, "interval_ms": 60000}, "qos is 0, expected 1 or 2 with duty"),
        ({"mqtt_version": "4"}, 'mqtt_version is "4", expected "3.1.1" or "5"'),
        ({"mqtt_version": 5}, 'mqtt_version is 5, expected "3.1.1" or "5"'),
        ({"retry_interval_ms": -1}, "retry_interval_ms is -1, expected an integer from 0 to 3600000"),
        ({"lost_session": "keep"}, 'lost_session is "keep", expected "drop" or "resend"'),
        ({"status": "status/#"}, 'status.topic is "status/#", expected an MQTT topic name'),
        ({"status": {"topic": "s", "retain": 1}}, "status.retain is 1, expected true or false"),
        ({"commands": "a/#/b"}, 'commands is "a/#/b", expected an MQTT topic filter'),
        ({"commands": "telemetry/+"}, "expected a filter that does not take its own telemetry/garage"),
        ({"commands": "+/garage/answer"}, "expected a filter that does not take its own telemetry/garage/answer"),
        ({"commands": "$share/g/telemetry/#"}, "expected a filter that does not take its own telemetry/garage"),
        ({"commands": "s/#", "status": "s/1"}, "expected a filter that does not take its own s/1"),
        ({"health_interval_ms": 10}, "health_interval_ms is 10, expected an integer from 1000"),
        ({"watchdog_ms": 999}, "watchdog_ms is 999, expected an integer from 1000"),
        ({"payload": "xml"}, 'payload is "xml", expected "cbor" or "json"'),
        (
            {"field": {"battery": {"pin": 49, "full_scale_mv": 6600}}},
            "field.battery.pin is 49, expected an integer from 0 to 48",
        ),
        (
            {"field": {"battery": {"pin": 35}}},
            "field.battery.full_scale_mv is missing, expected an integer from 1 to 100000",
        ),
        ({"field": {"battery": 35}}, "field.battery is 35, expected an object"),
        ({"field": {"button": {"pin": "boot"}}}, 'field.button.pin is "boot", expected an integer from 0 to 48'),
        ({"field": {"button": {"pin": 0, "hold_s": 1}}}, "field.button.hold_s is 1, expected an integer from 2 to 60"),
        ({"field": {"button": {"pin": 0, "active": "low"}}}, "field.button.active is no key"),
        ({"field": {"log_bytes": 100}}, "field.log_bytes is 100, expected an integer from 1024 to 65536"),
        ({"readings_limit": -1}, "readings_limit is -1, expected an integer from 0"),
        ({"readings_limit": 10}, "journal is null, expected a path"),
        ({"journal": 5}, "journal is 5, expected a string or null"),
        ({"colour": "red"}, "colour is no key that this firmware knows"),
    ],
)
def test_wrong_key_is_named_with_what_was_expected(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    path = written(tmp_path, **change)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


LEAST: dict[str, Any] = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "port": {"host": "gateway.local"},
    "flash": {"path": "holdfast"},
    "interval_ms": 1000,
    "sensors": ["host"],
}


def test_what_is_left_out_is_as_most_devices_want_it(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(LEAST))
    config = load(str(path))
    assert (config.ports[0].kind, config.ports[0].port, config.sector_count) == ("tcp", 1883, 64)
    assert (config.clock.kind, config.readings_limit, config.journal) == ("gateway", 0, None)
    tls = load(written(tmp_path, port={"kind": "tls", "host": "a", "ca": "c"})).ports[0]
    uart = load(written(tmp_path, port={"kind": "uart", "path": "/dev/ttyS0"})).ports[0]
    assert (tls.port, uart.baud) == (8883, 115_200)


@pytest.mark.parametrize("key", sorted(LEAST))
def test_missing_key_is_named(key: str, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps({name: value for name, value in LEAST.items() if name != key}))
    with pytest.raises(ConfigError, match=f"{key} is missing, expected"):
        load(str(path))


@pytest.mark.parametrize(("text", "expected"), [("{", "is no JSON"), ("[]", "expected an object"), ("\xff", "JSON")])
def test_file_that_is_no_json_object_is_named(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=expected):
        load(str(path))


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read"):
        load(str(tmp_path / "nowhere.json"))


SECTIONS = {
    "Field": "field.",
    "_Battery": "field.battery.",
    "_Button": "field.button.",
    "Config": "",
    "_Wifi": "network.",
    "_Address": "network.address.",
    "_Port": "port.",
    "_Status": "status.",
    "_Duty": "duty.",
    "_Clock": "clock.",
}
"""Each class of the schema, and where its keys stand."""


MODULES = (config, field_config)


def keys_of_the_schema() -> set[str]:
    """Returns the path of every key in the schema; an object is left out, as its own keys are there."""
    keys = {"sensors"}  # which `device.sensors.config` asks for
    for part in [one for module in MODULES for one in ast.parse(inspect.getsource(module)).body]:
        for node in ast.walk(part):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=("section" | "flash") as section), attr=how),
                    args=[ast.Constant(value=str(key)), *_],
                ) if (
                    isinstance(part, ast.ClassDef) and part.name in SECTIONS and how not in ("section", "some", "wrong")
                ):
                    keys.add(SECTIONS[part.name] + ("flash." if section == "flash" else "") + key)
    return keys


def test_reference_lists_exactly_the_keys_of_the_schema() -> None:
    page = (source_root() / "docs/reference/device-config.md").read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    documented = {key for row in rows for key in re.findall(r"`([\w.]+)`", row)}
    assert documented == keys_of_the_schema()
