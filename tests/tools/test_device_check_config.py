"""A device's configuration, checked before it goes on a board."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from device.sensors.config import KINDS
from tools.cli.device.check_config import BAUD_MAX, BAUD_MIN, WATCHDOG_MS_MAX
from tools.cli.main import make_app
from tools.cli.paths import source_root

KEYS: dict[str, Any] = {
    "client_id": "a",
    "topic": "t",
    "network": {"ssid": "attic", "password": "under the roof"},
    "port": {"host": "h"},
    "flash": {"path": "holdfast"},
    "interval_ms": 10_000,
    "sensors": [],
}
TLS = {"kind": "tls", "host": "h", "ca": "ca.pem"}
UART = {"kind": "uart", "path": "/dev/ttyUSB0"}
DUTY = {"connect_every": 2, "awake_ms": 1000}


def check(folder: Path, *options: str, **changes: Any) -> Result:
    path = folder / "device.json"
    path.write_text(json.dumps({key: value for key, value in {**KEYS, **changes}.items() if value is not None}))
    return CliRunner().invoke(make_app(), ["device", "check-config", str(path), *options])


@pytest.mark.parametrize(
    ("change", "code", "said"), [({}, 0, "ok"), ({"interval_ms": None}, 2, "interval_ms is missing")]
)
def test_configuration_is_checked_on_any_machine(change: dict[str, Any], code: int, said: str, tmp_path: Path) -> None:
    done = check(tmp_path, **change)
    assert done.exit_code == code
    assert said in done.output
    assert str(tmp_path / "device.json") in done.output


@pytest.mark.parametrize(
    ("board", "change", "said"),
    [
        ("rp2", {"flash": {"path": "flash.bin"}}, 'flash.path is flash.bin, expected "storage"'),
        ("esp32", {"flash": {"path": "/flash/store.bin"}}, "flash.path is /flash/store.bin, expected"),
        ("esp32", {"flash": {"path": "spi:1"}}, "flash.path is spi:1, expected"),
        ("rp2", {"flash": {"path": "storage"}, "watchdog_ms": 10_000}, "watchdog_ms is 10000, expected at most 8388"),
        ("esp32", {"watchdog_ms": 10_000}, "watchdog_ms is 10000, expected at most 8388"),
        ("rp2", {"flash": {"path": "storage"}, "duty": DUTY}, "duty is an object, expected none"),
        ("esp32", {"port": UART}, "port.path is /dev/ttyUSB0, expected UART:TX:RX"),
        ("esp32", {"port": {**UART, "path": "1:17:16", "baud": 4_000_000}}, "port.baud is 4000000, expected"),
    ],
)
def test_what_a_kind_of_board_refuses_is_refused_off_the_board(
    board: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert check(tmp_path, **change).exit_code == 0
    done = check(tmp_path, "--board", board, **change)
    assert done.exit_code == 2
    assert f"device.json: {said}" in done.output


def test_all_that_a_board_refuses_is_said_at_once(tmp_path: Path) -> None:
    done = check(tmp_path, "--board", "rp2", watchdog_ms=10_000, duty=DUTY)
    assert [line.split("device.json: ")[1].split()[0] for line in done.output.splitlines()] == [
        "flash.path",
        "watchdog_ms",
        "duty",
    ]


@pytest.mark.parametrize(
    ("board", "change", "said"),
    [
        ("esp32", {"network": None}, "network is missing"),
        ("esp32", {"port": TLS}, "clock is not ntp"),
        ("rp2", {"port": TLS, "flash": {"path": "storage"}, "watchdog_ms": 2000}, "watchdog_ms is 2000"),
        ("esp32", {"sensors": ["host"]}, "sensors has host"),
    ],
)
def test_what_a_board_takes_and_is_likely_a_mistake_is_a_warning(
    board: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    done = check(tmp_path, "--board", board, **change)
    assert done.exit_code == 0
    assert f"warning: {said}" in done.output


@pytest.mark.parametrize(
    ("board", "change"),
    [
        ("esp32", {"watchdog_ms": 8000, "duty": DUTY}),
        ("esp32", {"port": {**UART, "path": "1:17:16"}, "network": None, "flash": {"path": "spi:1:13"}}),
        (
            "rp2",
            {"flash": {"path": "storage"}, "watchdog_ms": 8000, "port": TLS, "clock": {"kind": "ntp", "host": "h"}},
        ),
        ("rp2", {"flash": {"path": "spi:0:17"}}),
    ],
)
def test_what_a_board_takes_is_checked_without_a_warning(board: str, change: dict[str, Any], tmp_path: Path) -> None:
    done = check(tmp_path, "--board", board, **change)
    assert done.exit_code == 0
    assert "warning" not in done.output


def test_the_size_that_a_partition_has_to_have_is_told(tmp_path: Path) -> None:
    done = check(tmp_path, "--board", "esp32")
    assert "partition holdfast of 262,144 bytes" in done.output


def test_the_limits_are_those_of_the_boards() -> None:
    source = (source_root() / "device/boards/microcontroller.py").read_text("utf-8")
    assert f"WATCHDOG_MS_MAX = {WATCHDOG_MS_MAX:_}" in source
    assert f"return {BAUD_MIN} <= baud <= {BAUD_MAX:_}" in source


def test_a_file_that_cannot_be_read_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent", "No such file or directory"), (tmp_path, "Is a directory")):
        done = CliRunner().invoke(make_app(), ["device", "check-config", str(path)])
        assert (done.exit_code, done.output) == (2, f"holdfast device check-config: {path}: {reason}\n")


def adc(pin: int, name: str = "adc") -> dict[str, Any]:
    return {"kind": "adc", "pin": pin, "full_scale_mv": 3300, "name": name}


def i2c(scl: int, sda: int, kind: str = "sht31", bus: int = 0) -> dict[str, Any]:
    return {"kind": kind, "bus": bus, "scl": scl, "sda": sda}


PULSE = {"kind": "pulse", "pin": 5, "edge": "falling"}
SPI = {"kind": "max31855", "bus": 1, "sck": 14, "mosi": 15, "miso": 12, "cs": 13}


@pytest.mark.parametrize(
    ("board", "change", "said"),
    [
        ("esp32", {"sensors": [i2c(22, 7)]}, "sensors[0].sda is 7, expected a pin that the ESP32's flash does not use"),
        ("esp32", {"sensors": [i2c(24, 21)]}, "sensors[0].scl is 24, expected a pin of the ESP32, which has none of"),
        ("esp32", {"sensors": [{"kind": "dht22", "pin": 34}]}, "sensors[0].pin is 34, expected a pin that can send"),
        (
            "esp32",
            {"sensors": [{**PULSE, "pin": 35}]},
            "sensors[0].pin is 35, expected a pin with pull-up and pull-down",
        ),
        ("esp32", {"sensors": [adc(26)]}, "sensors[0].pin is 26, expected one of 32 to 39: Wi-Fi needs this pin's"),
        ("esp32", {"sensors": [adc(18)]}, "sensors[0].pin is 18, expected a pin with a converter, as 32"),
        (
            "esp32",
            {"sensors": [adc(34), adc(34, "b")]},
            "sensors[1].pin is 34, expected a pin that nothing else uses: ",
        ),
        ("esp32", {"sensors": [adc(33), {**PULSE, "pin": 33}]}, "nothing else uses: sensors[0].pin uses it"),
        ("esp32", {"sensors": [i2c(22, 22)]}, "sensors[0].sda is 22, expected a pin that nothing else uses"),
        (
            "esp32",
            {"port": {**UART, "path": "1:35:16"}},
            "the second number of port.path is 35, expected a pin that can",
        ),
        (
            "esp32",
            {"flash": {"path": "spi:1:9"}},
            "the last number of flash.path is 9, expected a pin that the ESP32's",
        ),
        (
            "esp32",
            {"flash": {"path": "spi:1:13"}, "sensors": [SPI]},
            "sensors[0].cs is 13, expected a pin that nothing",
        ),
        ("esp32s2", {"sensors": [{**PULSE, "pin": 46}]}, "sensors[0].pin is 46, expected a pin with pull-up"),
        ("esp32s3", {"sensors": [adc(12)]}, "sensors[0].pin is 12, expected one of 1 to 10: Wi-Fi"),
        ("esp32s3", {"sensors": [{**PULSE, "pin": 27}]}, "expected a pin that the ESP32-S3's flash does not use"),
        ("esp32c3", {"sensors": [adc(5)]}, "sensors[0].pin is 5, expected a pin with a converter, as 0"),
        ("esp32c3", {"sensors": [{**PULSE, "pin": 14}]}, "expected a pin that the ESP32-C3's flash does not use"),
        ("rp2", {"sensors": [adc(25)]}, "sensors[0].pin is 25, expected a pin that the radio of a Pico W does not use"),
        ("rp2", {"sensors": [adc(22)]}, "sensors[0].pin is 22, expected a pin with a converter, as 26"),
        (
            "rp2",
            {"sensors": [i2c(22, 21)]},
            "sensors[0].scl is 22, expected a pin that the RP2040 or RP2350 connects with",
        ),
        (
            "rp2",
            {"sensors": [i2c(5, 4, bus=1)]},
            "sensors[0].sda is 4, expected a pin that the RP2040 or RP2350 connects",
        ),
    ],
)
def test_pin_that_cannot_do_what_it_is_for_is_named_with_its_key(
    board: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    flash = {"flash": {"path": "storage"}} if board == "rp2" else {}
    done = check(tmp_path, "--board", board, **{**flash, **change})
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("board", "change"),
    [
        ("esp32", {"sensors": [i2c(22, 21), i2c(22, 21, "bme280"), adc(34), {**PULSE, "pin": 27}, SPI]}),
        ("esp32", {"sensors": [adc(26)], "network": None, "port": {**UART, "path": "1:17:16"}}),
        (
            "esp32",
            {"sensors": [{"kind": "ds18b20", "pin": 4, "rom": 16 * digit, "name": digit} for digit in "12"]},
        ),
        ("esp32s3", {"sensors": [adc(1), {"kind": "dht22", "pin": 48}]}),
        ("esp32c3", {"sensors": [adc(4), i2c(9, 8)]}),
        ("rp2", {"sensors": [adc(26), i2c(5, 4), i2c(7, 6, "bme280", bus=1), SPI]}),
    ],
)
def test_pins_that_can_do_what_they_are_for_are_no_error(board: str, change: dict[str, Any], tmp_path: Path) -> None:
    flash = {"flash": {"path": "storage"}} if board == "rp2" else {}
    done = check(tmp_path, "--board", board, **{**flash, **change})
    assert done.exit_code == 0, done.output


def test_pins_of_every_kind_of_sensor_are_known(tmp_path: Path) -> None:
    """One pin for all of them: each but the first is refused."""
    keys = {
        "bus": 0,
        "scl": 6,
        "sda": 6,
        "sck": 6,
        "mosi": 6,
        "miso": 6,
        "cs": 6,
        "pin": 6,
        "edge": "falling",
        "rom": None,
    }
    own = {
        "adc": ("pin",),
        "bme280": ("bus", "scl", "sda"),
        "dht22": ("pin",),
        "ds18b20": ("pin", "rom"),
        "host": (),
        "max31855": ("bus", "sck", "mosi", "miso", "cs"),
        "pulse": ("pin", "edge"),
        "sht31": ("bus", "scl", "sda"),
    }
    for kind in KINDS:
        entry = {"kind": kind, **{key: keys[key] for key in own[kind]}}
        done = check(tmp_path, "--board", "esp32", sensors=[{**entry, "full_scale_mv": 1} if kind == "adc" else entry])
        assert done.exit_code == (0 if kind == "host" else 2), done.output


BATTERY, FULL = "field.battery.pin", 6600


@pytest.mark.parametrize(
    ("board", "field", "said"),
    [
        ("esp32", {"battery": {"pin": 4, "full_scale_mv": FULL}}, f"{BATTERY} is 4, expected one of 32 to 39: Wi-Fi"),
        ("rp2", {"battery": {"pin": 5, "full_scale_mv": FULL}}, f"{BATTERY} is 5, expected a pin with a converter"),
        ("esp32", {"battery": {"pin": 33, "full_scale_mv": FULL}}, f"that nothing else uses: {BATTERY} uses it"),
        ("esp32", {"button": {"pin": 34}}, "field.button.pin is 34, expected a pin with pull-up and pull-down"),
        ("esp32", {"button": {"pin": 6}}, "field.button.pin is 6, expected a pin that the ESP32's flash does not use"),
    ],
)
def test_the_pins_of_battery_and_button_are_checked(
    board: str, field: dict[str, Any], said: str, tmp_path: Path
) -> None:
    flash = {"path": "storage" if board == "rp2" else "holdfast"}
    done = check(tmp_path, "--board", board, flash=flash, field=field, sensors=[adc(33)] if board == "esp32" else [])
    assert done.exit_code == 2
    assert said in done.output


def test_which_network_counts_is_told_for_a_device_that_takes_commands(tmp_path: Path) -> None:
    assert "a confirmed move counts in place of network and port" in check(tmp_path, commands="to/a").output
    assert "move" not in check(tmp_path).output
