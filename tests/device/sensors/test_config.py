"""The key `sensors`: what is refused, with the key's name and what was expected."""

from typing import Any

import pytest

from device.config import Config, ConfigError

BASE: dict[str, Any] = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "port": {"kind": "tcp", "host": "gateway.local", "port": 1883},
    "flash": {"path": "flash.bin", "sector_count": 64},
    "interval_ms": 5000,
    "clock": "system",
    "readings_limit": 0,
    "journal": None,
}
BME280 = {"kind": "bme280", "bus": 0, "scl": 22, "sda": 21, "address": 118}
SHT31 = {**BME280, "kind": "sht31", "address": 68}
DS18B20 = {"kind": "ds18b20", "pin": 4, "rom": None}
MAX31855 = {"kind": "max31855", "bus": 1, "sck": 14, "mosi": 13, "miso": 12, "cs": 15}
ADC = {"kind": "adc", "pin": 26, "full_scale_mv": 3300}
PULSE = {"kind": "pulse", "pin": 5, "edge": "falling"}
DHT22 = {"kind": "dht22", "pin": 4}
QUIET = {**BME280, "thresholds": {"temperature": 0.2}, "heartbeat_ms": 600000}


def read(*sensors: Any, **change: Any) -> Config:
    return Config({**BASE, "sensors": list(sensors), **change})


def test_all_kinds_together_are_read() -> None:
    config = read(ADC, BME280, DHT22, DS18B20, "host", MAX31855, PULSE, SHT31, {**DS18B20, "name": "boiler"})
    assert [sensor.name for sensor in config.sensors] == [
        *("adc", "bme280", "dht22", "ds18b20", "host", "max31855", "pulse", "sht31", "boiler")
    ]


@pytest.mark.parametrize(("given", "expected"), [("0x77", 0x77), (119, 0x77), ("0x76", 0x76), (None, 0x76)])
def test_address_of_a_chip_may_be_written_as_its_data_sheet_has_it(given: Any, expected: int) -> None:
    entry = {key: value for key, value in BME280.items() if key != "address"}
    arguments = read({**entry, "address": given} if given else entry).sensors[0].arguments
    assert arguments[-1] == expected


def test_host_may_be_written_as_an_object_and_named() -> None:
    plain, named = (read(entry).sensors[0] for entry in ({"kind": "host"}, {"kind": "host", "name": "pi"}))
    assert (plain.prefix, plain.error_name) == ("", "host.error")
    assert (named.prefix, named.error_name) == ("pi.", "pi.error")


@pytest.mark.parametrize(
    ("sensor", "expected"),
    [
        ("bme280", "sensors[1].bus is missing, expected an integer from 0 to 1"),
        ({"pin": 4}, 'sensors[1].kind is missing, expected "adc" or "bme280"'),
        ({**BME280, "address": 120}, 'sensors[1].address is 120, expected an address from "0x76" to "0x77", or 118'),
        ({**BME280, "address": "76"}, 'sensors[1].address is "76", expected an address from "0x76"'),
        ({**BME280, "address": "0x78"}, 'sensors[1].address is "0x78", expected an address from "0x76"'),
        ({**BME280, "address": "0xgg"}, 'sensors[1].address is "0xgg", expected an address from "0x76"'),
        ({**BME280, "address": True}, "sensors[1].address is true, expected an address"),
        ({**BME280, "pin": 4}, "sensors[1].pin is no key that this firmware knows"),
        ({**SHT31, "address": 70}, 'sensors[1].address is 70, expected an address from "0x44" to "0x45"'),
        ({**SHT31, "scl": 49}, "sensors[1].scl is 49, expected an integer from 0 to 48"),
        ({**DS18B20, "rom": "28ff"}, 'sensors[1].rom is "28ff", expected null or a ROM code of 16'),
        ({**DS18B20, "rom": "28FF641E05160479"}, "expected null or a ROM code of 16 hexadecimal digits"),
        ({**MAX31855, "cs": None}, "sensors[1].cs is null, expected an integer"),
        ({**ADC, "full_scale_mv": 0}, "sensors[1].full_scale_mv is 0, expected an integer from 1"),
        ({**PULSE, "edge": "both"}, 'sensors[1].edge is "both", expected "falling" or "rising"'),
        ({**DHT22, "name": "a/b"}, 'sensors[1].name is "a/b", expected letters, digits, - and _'),
        ({**DHT22, "name": "x" * 25}, "expected a string of 1 to 24 bytes"),
        ({**DHT22, "name": "host"}, 'sensors[1].name is "host", expected a name that no other sensor has'),
        ({**QUIET, "thresholds": {"colour": 1}}, "sensors[1].thresholds.colour is no key"),
        ({**QUIET, "thresholds": 1}, "sensors[1].thresholds is 1, expected an object"),
        ({**QUIET, "thresholds": {"humidity": 0}}, "thresholds.humidity is 0, expected a number above 0"),
        ({**QUIET, "thresholds": {"humidity": True}}, "thresholds.humidity is true, expected a number"),
        ({**QUIET, "heartbeat_ms": 4999}, "sensors[1].heartbeat_ms is 4999, expected an integer from 5000"),
        ({**BME280, "heartbeat_ms": 5000}, "sensors[1].heartbeat_ms is no key"),
        ({**BME280, "thresholds": {}}, "sensors[1].heartbeat_ms is missing, expected an integer from 5000"),
    ],
)
def test_wrong_key_of_a_sensor_is_named_with_what_was_expected(sensor: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("host", sensor)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("sensor", "shortest_ms"), [(DHT22, 2000), (MAX31855, 100)])
def test_sensor_that_cannot_be_asked_so_often_is_refused(sensor: dict[str, Any], shortest_ms: int) -> None:
    assert read(sensor, interval_ms=shortest_ms)
    with pytest.raises(ConfigError, match=f"expected an interval_ms of {shortest_ms} or more"):
        read(sensor, interval_ms=shortest_ms - 1)
